/* The scenarios of the program jobs: what the seed draws, and what differs from step to step. */
#include "jobs.h"

#include <stddef.h>

const char *const scenario_names[SCENARIOS] = {
	[GPU_BOUND] = "gpu-bound", [HOST_BOUND] = "host-bound", [ALTERNATING] = "alternating", [LATE_HOST] = "late-host",
	[COPY_WAIT] = "copy-wait", [STREAM_WAIT] = "stream-wait", [SLOW_KERNEL] = "slow-kernel", [OUTLIERS] = "outliers",
	[STUCK] = "stuck",
};

enum { US = 1000, MS = 1000 * US };

static const char *const names[] = {
	"ampere_sgemm_128x64_tn", "cutlass_80_tensorop_gemm_f16", "_Z9layernormPKfPfi", "_Z7softmaxPKfPfi", "_Z4geluPfi",
	"_Z9embeddingPKiPKfPf", "_Z4adamPfPKff", "_Z7dropoutPfPKfm", "_Z6reducePKfPf", "_Z9transposePKfPfii", "_Z3addPKfS0_Pf",
	"_Z5scalePff", "_Z4castPKfPt", "_Z6gatherPfPKiPf", "_Z7scatterPfPKiPKf", "_Z4normPKfPf", "_Z4fillPff", "_Z4expfPfi",
	"_Z5attnfPKfS0_S0_Pf", "_Z5attnbPKfS0_S0_Pf", "_Z7forwardPKfPf", "_Z8backwardPKfPf", "_Z6rotaryPfi", "_Z7entropyPKfPf",
};
enum { NAMES = sizeof(names) / sizeof(*names) };

/* Draws a different name for each kernel, and durations of least_us to most_us. */
static void draw_kernels(struct job *j, int least_us, int most_us)
{
	int order[NAMES];
	for (int i = 0; i < NAMES; i++) {
		int at = job_below(j, i + 1);
		order[i] = order[at];
		order[at] = i;
	}
	for (int i = 0; i < ROLES; i++)
		j->kernels[i] = (struct kernel){
			.name = names[order[i]], .grid = 16u << job_below(j, 5), .ns = (uint64_t)job_between(j, least_us, most_us) * US,
		};
}

/* The work of a step takes 5 to 12 ms on the GPU in most scenarios. */
static void draw_program(struct job *j)
{
	enum { LAUNCHES_LAYER = 10, LAUNCHES_REST = 3 };
	j->layers = job_between(j, 2, 5);
	int mean_us = job_between(j, 5000, 12000) / (LAUNCHES_LAYER * j->layers + LAUNCHES_REST);
	draw_kernels(j, mean_us / 2, mean_us + mean_us / 2);
	j->steps = job_between(j, 120, 180);
	j->ahead = job_between(j, 1, 2);
	j->copy_bytes = (size_t)job_between(j, 64, 512) << 10;
	j->copies_on_main = job_below(j, 2);
	j->late = job_below(j, 6);
	j->place = (enum place)job_below(j, PLACES);
	j->late_ns = (uint64_t)job_between(j, 12, 20) * MS;
	j->slow = (enum role)job_between(j, QUERY, FEED_OUT);
}

/* Draws how the host works before each launch: longer than the GPU's work. */
static uint64_t draw_pause(struct job *j)
{
	return (uint64_t)job_between(j, 100, 200) * US;
}

void job_draw(struct job *j)
{
	draw_program(j);
	struct kernel *side = &j->kernels[SIDE];
	switch (j->scenario) {
	case HOST_BOUND:
		draw_kernels(j, 5, 30);
		j->pause_ns = draw_pause(j);
		break;
	case ALTERNATING:
		j->layers = 3;
		draw_kernels(j, 60, 120);
		j->phase_steps = job_between(j, 30, 50);
		j->steps = 4 * j->phase_steps;
		break;
	case LATE_HOST:
		j->steps = job_between(j, 80, 110);
		break;
	case COPY_WAIT: /* 3 to 8 ms */
		j->copy_bytes = (size_t)job_between(j, 12, 32) << 20;
		break;
	case STREAM_WAIT:
		side->ns = (uint64_t)job_between(j, 3, 8) * MS;
		break;
	case SLOW_KERNEL:
		j->slow_ns = j->kernels[j->slow].ns * (uint64_t)job_between(j, 15, 30);
		j->slow_in = job_between(j, 50, 150);
		break;
	case OUTLIERS:
		j->late_ns = (uint64_t)job_between(j, 40, 70) * MS;
		j->slow_ns = (uint64_t)job_between(j, 20, 40) * MS;
		break;
	case STUCK:
		j->slow_ns = UINT64_MAX;
		j->slow_in = j->layers * job_between(j, 60, 100) + job_below(j, j->layers) + 1;
		break;
	default: break;
	}
}

static void plan_alternating(struct job *j)
{
	if (j->step % j->phase_steps)
		return;
	bool is_host = j->step / j->phase_steps % 2 == (int)(j->seed % 2);
	j->pause_ns = is_host ? draw_pause(j) : 0;
	for (int i = 0; i < ROLES; i++)
		j->kernels[i].ns = (uint64_t)(is_host ? job_between(j, 5, 30) : job_between(j, 200, 350)) * US;
	for (int i = 0; i < ROLES; i++)
		j->kernels[i].grid = is_host ? 8 : 256;
}

/* One step in 12 to 30 is an outlier, and none of the first 20. */
static void plan_outlier(struct job *j)
{
	static const int first = 20;
	j->outlier = USUAL;
	if (j->step < first || job_below(j, 24))
		return;
	j->outlier = (enum outlier)job_between(j, HOST_LATE, OUTLIER_KINDS - 1);
	if (j->outlier == KERNEL_SLOW)
		j->slow_in = 1;
}

void job_plan_step(struct job *j)
{
	switch (j->scenario) {
	case ALTERNATING: plan_alternating(j); break;
	case OUTLIERS: plan_outlier(j); break;
	case SLOW_KERNEL:
		if (!j->slow_in)
			j->slow_in = job_between(j, 50, 150);
		break;
	default: break;
	}
}
