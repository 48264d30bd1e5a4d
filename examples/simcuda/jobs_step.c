/*
 * One step of the program jobs: forward, backward and optimizer. Each phase is a function that calls
 * CUDA itself, so the stack of a call names the phase and its line.
 */
#include "jobs.h"

#include <stdio.h>

#define PHASE __attribute__((noinline)) static void

/* Notes the place of a call, which ends a delay of the host. */
static void at_call(struct job *j, const char *function, int line)
{
	struct site site = {function, line};
	if (j->delayed_ns)
		truth_delay(j, site);
	j->delayed_ns = 0;
	j->site = site;
	j->called_ns = job_now_ns();
}

static struct kernel *at_launch(struct job *j, enum role role, const char *function, int line)
{
	struct kernel *k = &j->kernels[role];
	if (j->pause_ns)
		job_sleep_ns(j->pause_ns);
	at_call(j, function, line);
	j->launches++;
	j->duration_ns = k->ns;
	if (role == j->slow && j->slow_in && !--j->slow_in) {
		j->duration_ns = j->slow_ns;
		truth_slow(j, k);
	}
	return k;
}

/* Launches a kernel from the line of the macro. */
#define LAUNCH(j, role, stream)                                                                                               \
	do {                                                                                                                  \
		struct kernel *kernel_ = at_launch(j, role, __func__, __LINE__);                                              \
		void *arguments_[1] = {&(j)->duration_ns};                                                                    \
		CALL(cuLaunchKernel, kernel_->function, kernel_->grid, 1, 1, 128, 1, 1, 0, stream, arguments_, NULL);         \
	} while (0)

/* Makes a call from the line of the macro. */
#define CALL_AT(j, fn, ...)                         \
	do {                                        \
		at_call(j, __func__, __LINE__);     \
		CALL(fn, __VA_ARGS__);              \
	} while (0)

static void delay(struct job *j)
{
	j->delayed_ns = job_now_ns();
	job_sleep_ns(j->late_ns);
}

/* ---- phases ---- */

PHASE embed_tokens(struct job *j)
{
	LAUNCH(j, EMBED, j->main);
}

PHASE self_attention(struct job *j)
{
	LAUNCH(j, NORM, j->main);
	LAUNCH(j, QUERY, j->main);
	LAUNCH(j, ATTEND, j->main);
	LAUNCH(j, PROJECT, j->main);
}

PHASE feed_forward(struct job *j)
{
	LAUNCH(j, FEED_IN, j->main);
	LAUNCH(j, ACTIVATE, j->main);
	LAUNCH(j, FEED_OUT, j->main);
}

PHASE compute_loss(struct job *j)
{
	LAUNCH(j, LOSS, j->main);
}

PHASE backward_layer(struct job *j)
{
	LAUNCH(j, BACK_FEED, j->main);
	LAUNCH(j, BACK_ATTEND, j->main);
	LAUNCH(j, REDUCE, j->main);
}

PHASE optimizer_step(struct job *j)
{
	LAUNCH(j, ADAM, j->main);
}

PHASE evaluate(struct job *j)
{
	for (int i = 0; i < 8 * j->layers; i++)
		LAUNCH(j, SCORE, j->main);
}

/* ---- functions in which the host can be late; each one ends with a call ---- */

#define LATE(name)                               \
	PHASE name(struct job *j)                \
	{                                        \
		delay(j);                        \
		LAUNCH(j, SCORE, j->main);       \
	}
LATE(load_batch)
LATE(tokenize_text)
LATE(augment_images)
LATE(collate_samples)
LATE(write_metrics)
LATE(clip_gradients)

static const struct {
	const char *name;
	void (*run)(struct job *);
} late_functions[] = {
	{"load_batch", load_batch},           {"tokenize_text", tokenize_text}, {"augment_images", augment_images},
	{"collate_samples", collate_samples}, {"write_metrics", write_metrics}, {"clip_gradients", clip_gradients},
};

const char *late_function(const struct job *j)
{
	return late_functions[j->late].name;
}

static void come(struct job *j, enum place place)
{
	bool is_late = j->scenario == LATE_HOST || (j->scenario == OUTLIERS && j->outlier == HOST_LATE);
	if (is_late && place == j->place)
		late_functions[j->late].run(j);
}

/* ---- the GPU waits for a copy or for another stream ---- */

PHASE upload_batch(struct job *j)
{
	CUstream stream = j->copies_on_main ? j->main : j->side;
	if (j->scenario == COPY_WAIT && stream == j->side) { /* the step before uses the buffer */
		CALL_AT(j, cuEventRecord, j->side_done, j->main);
		CALL_AT(j, cuStreamWaitEvent, j->side, j->side_done, 0);
	}
	CALL_AT(j, cuMemcpyHtoDAsync_v2, j->device, j->host, j->copy_bytes, stream);
	if (j->scenario == COPY_WAIT)
		truth_event(j, "copy");
	if (stream == j->main)
		return;
	CALL_AT(j, cuEventRecord, j->copied, stream);
	CALL_AT(j, cuStreamWaitEvent, j->main, j->copied, 0);
}

PHASE update_statistics(struct job *j)
{
	CALL_AT(j, cuEventRecord, j->copied, j->main);
	CALL_AT(j, cuStreamWaitEvent, j->side, j->copied, 0);
	LAUNCH(j, SIDE, j->side);
	truth_event(j, "stream");
	CALL_AT(j, cuEventRecord, j->side_done, j->side);
	CALL_AT(j, cuStreamWaitEvent, j->main, j->side_done, 0);
}

/* ---- steps ---- */

/* Waits until the GPU is at most `ahead` steps behind. */
PHASE limit_queue(struct job *j)
{
	enum { ENDS = sizeof(j->ends) / sizeof(*j->ends) };
	CALL_AT(j, cuEventRecord, j->ends[j->step % ENDS], j->main);
	if (j->step >= j->ahead)
		CALL_AT(j, cuEventSynchronize, j->ends[(j->step - j->ahead) % ENDS]);
}

PHASE wait_for_result(struct job *j)
{
	truth_event(j, "stuck");
	truth_flush();
	printf("stuck\n");
	fflush(stdout);
	CALL_AT(j, cuStreamSynchronize, j->main);
}

__attribute__((noinline)) void job_step(struct job *j)
{
	come(j, BEFORE_FORWARD);
	upload_batch(j);
	embed_tokens(j);
	for (int i = 0; i < j->layers; i++) {
		self_attention(j);
		feed_forward(j);
	}
	if (j->scenario == STREAM_WAIT)
		update_statistics(j);
	compute_loss(j);
	come(j, BEFORE_BACKWARD);
	for (int i = 0; i < j->layers; i++)
		backward_layer(j);
	come(j, BEFORE_OPTIMIZER);
	optimizer_step(j);
	if (j->outlier == MORE_LAUNCHES)
		evaluate(j);
	if (j->scenario == STUCK && j->slow_in == 0 && j->slow_ns)
		wait_for_result(j);
	limit_queue(j);
}

__attribute__((noinline)) void job_warm_up(struct job *j)
{
	CALL(cuMemcpyHtoDAsync_v2, j->device, j->host, 4096, j->main);
	CALL(cuMemcpyHtoDAsync_v2, j->device, j->host, 4096, j->side);
	for (int i = 0; i < 8; i++) {
		LAUNCH(j, EMBED, j->main);
		LAUNCH(j, LOSS, j->side);
	}
	CALL(cuCtxSynchronize);
}

void job_drain(struct job *j)
{
	CALL_AT(j, cuCtxSynchronize);
}
