/*
 * The ledger: SIMNCCL_LEDGER names a file to which all processes append. Each line is one write, so
 * lines never mix and a killed process loses none.
 */
#include "sim.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int file = -1;

static void open_file(void)
{
	const char *path = getenv("SIMNCCL_LEDGER");
	if (!path || !*path)
		return;
	file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (file < 0) {
		fprintf(stderr, "simnccl: error: SIMNCCL_LEDGER: %s: %m\n", path);
		_exit(1);
	}
}

static void put(const char *text, int n)
{
	if (n > 0 && write(file, text, (size_t)n) != n)
		fprintf(stderr, "simnccl: error: cannot write the ledger: %m\n");
}

uint64_t ledger_next_id(void)
{
	static _Atomic uint64_t last;
	return ++last;
}

typedef unsigned long long number;

void ledger_call(const struct line *l)
{
	const struct task none = {.function = SEND, .op = ncclNumOps, .root = -1}, *t = l->task ? l->task : &none;
	char text[640];
	pthread_once(&once, open_file);
	if (file < 0)
		return;
	put(text, snprintf(text, sizeof(text),
			   "call\t%d\t%d\t%llu\t%s\t%d\t%llu\t%llu\t%llu\t%016llx\t%d\t%d\t%llu\t%llu\t%llu\t%d\t%d\t%d\t%llu\t%llu\n",
			   (int)getpid(), (int)syscall(SYS_gettid), (number)l->id, l->name, (int)l->result, (number)l->entry_ns,
			   (number)now_ns(), (number)(uintptr_t)l->handle, (number)l->hash, l->rank, l->size, (number)l->number,
			   (number)l->group, (number)(l->task ? t->count : l->operations), l->task ? (int)t->type : -1,
			   t->op == ncclNumOps ? -1 : (int)t->op, t->root, (number)(uintptr_t)t->stream,
			   (number)(l->task ? task_bytes(t) : 0)));
}

void ledger_gpu(const char *event, uint64_t id, uint64_t at)
{
	char text[128];
	pthread_once(&once, open_file);
	if (file >= 0)
		put(text, snprintf(text, sizeof(text), "%s\t%d\t%llu\t%llu\n", event, (int)getpid(), (number)id, (number)at));
}
