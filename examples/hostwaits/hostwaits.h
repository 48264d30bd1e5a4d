/* Declarations shared by the source files of the program hostwaits. */
#ifndef HOSTWAITS_H
#define HOSTWAITS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What holds up the launching thread. */
enum kind {
	SLEEP, MUTEX, PIPE, SLOW_FILE, SPIN, CGROUP, OVERSUBSCRIBED, VFORK, NONE,
	CONDITION, QUEUE, PIPE_CHAIN, FUTEX, MUTEX_DISK, POOL, PROCESSES, /* chains: see hostwaits_chains.h */
	KINDS,
};
extern const char *const kind_names[KINDS];

enum { FAULTS_MAX = 2, SPINNERS_MAX = 4, PLACES = 3 };

/* A cause of delays, with the function in which they happen. */
struct fault {
	enum kind kind;
	int number;              /* 0 or 1: its place in the list of the program */
	int function;            /* index of the function of hostwaits_places.c */
	int place;               /* where in a step: 0 to PLACES - 1 */
	int percent;             /* share of steps with a delay */
	uint64_t least_ns, most_ns; /* length of a delay; of CGROUP and OVERSUBSCRIBED: without its pauses */

	/* The delay now. */
	bool endless;
	uint64_t length_ns, begin_ns, last_ns, queued_ns, computed_ns;
	int step;

	/* The thread or process that ends the delay. */
	pthread_t thread;
	char owner[16];          /* its name; empty: none */
	atomic_int owner_tid;
	sem_t wanted, taken;     /* posted when a delay begins, and when it has ended */
	atomic_bool holds;       /* the owner holds the mutex */
	pthread_mutex_t mutex;
	int pipe[2], file;
	pid_t child;             /* of VFORK and SLOW_FILE */
	int cpu, spinners;       /* of OVERSUBSCRIBED: the processor and the number of processes */
	char target[128];        /* what is read */
	struct chain *chain;     /* of the kinds from CONDITION on; else NULL */
};

/* The random program. */
struct loop {
	uint64_t seed, random;   /* random is never 0 */
	struct fault faults[FAULTS_MAX];
	int fault_count, steps, launches, step;
	uint64_t kernel_ns;
	bool copies_back;        /* a step ends with a copy, not with a wait for the stream */
	bool hangs, normal_priority;
	int stuck_step;
	uint64_t checksum;       /* of what the faults read, with the number of interrupted calls */
};

uint64_t now_ns(void);
void sleep_ns(uint64_t ns);
int draw(struct loop *l, int from, int to);
void fail(const char *what) __attribute__((noreturn));

/* ---- functions with delays ---- */

int place_count(void);
/* Delays the calling thread in the function of the fault. */
void delay(struct loop *l, struct fault *f);

/* ---- mechanisms ---- */

/* Starts threads and processes of a fault, before the CUDA driver is loaded. */
void fault_start(struct loop *l, struct fault *f);
/* Starts what needs the launching thread as it runs later. */
void fault_begin(struct loop *l, struct fault *f, const char *function, int line);
void fault_end(struct loop *l, struct fault *f);
/* Returns false when a computing delay shall end. It notes pauses of the thread. */
bool fault_computes(struct fault *f);
/* Ends a delay without end. It is called by another thread. */
void fault_release(struct fault *f);
void fault_wait_for_child(struct fault *f);
/* Starts a process that ends with this one, and does not hold its stdin. Its stdout is output; -1: none. */
pid_t start_child(int output);
/* Starts the process that serves the slow file of the fault, and opens the file. */
void start_server(struct fault *f);
/* Returns for how long the calling thread has waited in run queues; 0: unknown. */
uint64_t queued_ns(void);
extern atomic_bool released;

/* Serves a folder with one file, in which a read at offset 4096 × N takes N µs. It never returns. */
void serve_slow_file(const char *folder) __attribute__((noreturn));

/* ---- truth: a file of JSON lines; times are CLOCK_MONOTONIC in ns ---- */

void truth_open(const char *path);
void truth_program(const struct loop *l);
void truth_fault(const struct fault *f, const char *function, int line);
void truth_step(const struct loop *l, uint64_t from_ns);
/*
 * An interval in which the launching thread was held up by the kind. Of this time it was queued_ns in run
 * queues, because of other programs.
 */
void truth_hold(const struct fault *f, enum kind kind, uint64_t from_ns, uint64_t to_ns, uint64_t queued_ns);
void truth_flush(void);

#endif
