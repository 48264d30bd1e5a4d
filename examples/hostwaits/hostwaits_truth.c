/* The truth about the program hostwaits, as JSON lines. */
#include "hostwaits_chains.h"

#include <stdio.h>
#include <unistd.h>

static FILE *file;

void truth_open(const char *path)
{
	file = fopen(path, "we");
	if (!file)
		fail(path);
}

void truth_flush(void)
{
	if (file)
		fflush(file);
}

#define WRITE(...)                                  \
	do {                                        \
		if (file)                           \
			fprintf(file, __VA_ARGS__); \
	} while (0)

typedef unsigned long long number;

void truth_program(const struct loop *l)
{
	WRITE("{\"event\":\"program\",\"language\":\"c\",\"seed\":%llu,\"pid\":%d,\"tid\":%d,\"steps\":%d,\"hangs\":%s}\n",
	      (number)l->seed, (int)getpid(), (int)gettid(), l->steps, l->hangs ? "true" : "false");
}

void truth_fault(const struct fault *f, const char *function, int line)
{
	WRITE("{\"event\":\"fault\",\"fault\":%d,\"kind\":\"%s\",\"file\":\"hostwaits_places.c\",\"function\":\"%s\",\"line\":%d,"
	      "\"owner\":\"%s\",\"owner_tid\":%d,\"target\":\"%s\"}\n",
	      f->number, kind_names[f->kind], function, line, f->owner, (int)f->owner_tid, f->target);
	truth_flush();
}

void truth_step(const struct loop *l, uint64_t from_ns)
{
	WRITE("{\"event\":\"step\",\"step\":%d,\"from_ns\":%llu,\"to_ns\":%llu}\n", l->step, (number)from_ns, (number)now_ns());
}

void truth_hold(const struct fault *f, enum kind kind, uint64_t from_ns, uint64_t to_ns, uint64_t queued_ns)
{
	WRITE("{\"event\":\"hold\",\"fault\":%d,\"kind\":\"%s\",\"step\":%d,\"from_ns\":%llu,\"to_ns\":%llu,\"queued_ns\":%llu}\n",
	      f->number, kind_names[kind], f->step, (number)from_ns, (number)to_ns, (number)queued_ns);
}

void truth_end(const struct fault *f, const struct member *m, int links)
{
	static const char *const activities[] = {"none", "sleep", "spin", "file"};
	WRITE("{\"event\":\"end\",\"fault\":%d,\"step\":%d,\"activity\":\"%s\",\"pid\":%d,\"tid\":%d,\"thread\":\"%s\","
	      "\"file\":\"hostwaits_chains.c\",\"function\":\"%s\",\"line\":%d,\"links\":%d,\"from_ns\":%llu,\"to_ns\":%llu,"
	      "\"queued_ns\":%llu}\n",
	      f->number, f->step, activities[m->activity], m->pid, m->tid, m->thread, m->place, m->line, links,
	      (number)m->from_ns, (number)m->to_ns, (number)m->queued_ns);
}
