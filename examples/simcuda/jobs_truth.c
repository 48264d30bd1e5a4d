/* The truth about the program jobs, as JSON lines. */
#include "jobs.h"

#include <stdio.h>
#include <stdlib.h>

static FILE *file;

void truth_open(const char *path)
{
	static char buffer[1 << 20];
	file = fopen(path, "we");
	if (!file) {
		perror(path);
		exit(1);
	}
	setvbuf(file, buffer, _IOFBF, sizeof(buffer));
}

void truth_flush(void)
{
	if (file)
		fflush(file);
}

#define WRITE(...)                                \
	do {                                      \
		if (file)                         \
			fprintf(file, __VA_ARGS__); \
	} while (0)

typedef unsigned long long number;

void truth_job(const struct job *j)
{
	WRITE("{\"event\":\"job\",\"scenario\":\"%s\",\"seed\":%llu,\"layers\":%d,\"main_stream\":%llu,\"side_stream\":%llu,"
	      "\"late_function\":\"%s\",\"slow_kernel\":\"%s\",\"side_kernel\":\"%s\",\"copy_bytes\":%llu,\"copies_on_main\":%s}\n",
	      scenario_names[j->scenario], (number)j->seed, j->layers, (number)(uintptr_t)j->main, (number)(uintptr_t)j->side,
	      late_function(j), j->kernels[j->slow].name, j->kernels[SIDE].name, (number)j->copy_bytes,
	      j->copies_on_main ? "true" : "false");
}

void truth_step(const struct job *j, uint64_t start_ns)
{
	static const char *const outliers[OUTLIER_KINDS] = {
		[USUAL] = "", [HOST_LATE] = "host", [KERNEL_SLOW] = "kernel", [MORE_LAUNCHES] = "launches",
	};
	WRITE("{\"event\":\"step\",\"step\":%d,\"start_ns\":%llu,\"end_ns\":%llu,\"launches\":%llu,\"outlier\":\"%s\",\"bound\":\"%s\"}\n",
	      j->step, (number)start_ns, (number)job_now_ns(), (number)j->launches, outliers[j->outlier],
	      j->pause_ns ? "host" : "gpu");
}

void truth_delay(const struct job *j, struct site to)
{
	WRITE("{\"event\":\"delay\",\"step\":%d,\"start_ns\":%llu,\"end_ns\":%llu,\"from_function\":\"%s\",\"from_line\":%d,"
	      "\"function\":\"%s\",\"line\":%d}\n",
	      j->step, (number)j->delayed_ns, (number)job_now_ns(), j->site.function, j->site.line, to.function, to.line);
}

void truth_slow(const struct job *j, const struct kernel *k)
{
	WRITE("{\"event\":\"slow\",\"step\":%d,\"start_ns\":%llu,\"kernel\":\"%s\",\"grid\":%u,\"function\":\"%s\",\"line\":%d,"
	      "\"launches\":%llu}\n",
	      j->step, (number)j->called_ns, k->name, k->grid, j->site.function, j->site.line, (number)j->launches);
}

void truth_event(const struct job *j, const char *name)
{
	WRITE("{\"event\":\"%s\",\"step\":%d,\"start_ns\":%llu,\"function\":\"%s\",\"line\":%d,\"launches\":%llu}\n", name,
	      j->step, (number)j->called_ns, j->site.function, j->site.line, (number)j->launches);
}
