/* Declarations shared by the source files of the program jobs. */
#ifndef JOBS_H
#define JOBS_H

#include "cuda_sim.h"

#include <stdbool.h>
#include <stdint.h>

#define JOBS_FUNCTIONS(X)                                                                                       \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData)        \
	X(cuModuleGetFunction) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuStreamCreateWithPriority)                 \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize)     \
	X(cuLaunchKernel) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)

struct jobs_api {
#define X(name) __typeof__(name) *name;
	JOBS_FUNCTIONS(X)
#undef X
};
extern struct jobs_api api;

void check(CUresult result, const char *call);
#define CALL(fn, ...) check(api.fn(__VA_ARGS__), #fn)

/* The kernels of a step, by what they are for. */
enum role {
	EMBED, NORM, QUERY, ATTEND, PROJECT, FEED_IN, ACTIVATE, FEED_OUT, LOSS, BACK_FEED, BACK_ATTEND, REDUCE, ADAM, SCORE, SIDE,
	ROLES
};

struct kernel {
	const char *name;
	CUfunction function;
	unsigned int grid;
	uint64_t ns; /* usual duration */
};

enum scenario { GPU_BOUND, HOST_BOUND, ALTERNATING, LATE_HOST, COPY_WAIT, STREAM_WAIT, SLOW_KERNEL, OUTLIERS, STUCK, SCENARIOS };
/* What differs in a step. */
enum outlier { USUAL, HOST_LATE, KERNEL_SLOW, MORE_LAUNCHES, OUTLIER_KINDS };
/* Where in a step the host is late. */
enum place { BEFORE_FORWARD, BEFORE_BACKWARD, BEFORE_OPTIMIZER, PLACES };

/* A place of the program's source. */
struct site {
	const char *function;
	int line;
};

/* The random program and what it does now. */
struct job {
	enum scenario scenario;
	uint64_t seed, random; /* random is never 0 */
	int steps, layers, ahead /* steps that the host runs ahead of the GPU */;
	struct kernel kernels[ROLES];
	enum role slow;          /* the kernel that is slow in some launches, or never ends */
	int late;                /* index of the function in which the host is late */
	enum place place;
	uint64_t late_ns, copy_bytes;
	bool copies_on_main;     /* the batch is copied on the stream that uses it */
	int phase_steps;         /* ALTERNATING: steps until the limit changes */

	CUcontext context;
	CUstream main, side;
	CUevent copied, side_done, ends[3];
	CUdeviceptr device;
	void *host;

	int step;
	uint64_t launches;       /* of this step */
	enum outlier outlier;
	uint64_t pause_ns;       /* work of the host before each launch */
	uint64_t duration_ns;    /* argument of the next launch */
	int slow_in;             /* launches of the slow kernel until it is slow; 0: never */
	uint64_t slow_ns;        /* its duration then */
	struct site site;        /* of the last call */
	uint64_t called_ns;      /* a time shortly before that call */
	uint64_t delayed_ns;     /* start of the delay that the next call ends; 0: none */
};

uint64_t job_now_ns(void);
int job_below(struct job *j, int n);
int job_between(struct job *j, int from, int to);
void job_sleep_ns(uint64_t ns);

/* ---- the program ---- */

void job_step(struct job *j);
void job_warm_up(struct job *j);
void job_drain(struct job *j);
const char *late_function(const struct job *j);

/* ---- scenarios ---- */

extern const char *const scenario_names[SCENARIOS];
void job_draw(struct job *j);  /* before the set-up */
void job_plan_step(struct job *j);

/* ---- truth: a file of JSON lines; times are CLOCK_MONOTONIC in ns ---- */

void truth_open(const char *path);
void truth_job(const struct job *j);
void truth_step(const struct job *j, uint64_t start_ns);
void truth_delay(const struct job *j, struct site to);
void truth_slow(const struct job *j, const struct kernel *k);
/* Writes an event of the last call. */
void truth_event(const struct job *j, const char *name);
void truth_flush(void);

#endif
