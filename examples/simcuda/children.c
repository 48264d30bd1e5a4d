/*
 * A program whose processes call CUDA at once, in each way in which a process can begin:
 *
 *   children fork     a forked child calls CUDA without cuInit, after the parent has called it
 *   children vfork    a child of vfork executes this program
 *   children spawn    posix_spawn executes this program
 *   children exec     the process calls CUDA, then executes this program
 *   children thread   a second thread makes the process's first call
 *   children nested   a library is loaded within a CUDA call
 *   children call     the process only calls CUDA
 *
 * Each process makes some hundred calls. Tests compare a recording with the ledger.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_sim.h"

extern char **environ;

/* Functions that must appear as stack frames. */
#define STACK_FRAME __attribute__((noinline))

enum { CALLS = 50 };

static void *find(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function) {
		fprintf(stderr, "children: %s\n", dlerror());
		exit(1);
	}
	return function;
}

/* Makes calls that work in every process, and fail in a forked child. */
STACK_FRAME static void allocate(void)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) = find("cuMemAlloc_v2");
	CUresult (*release)(CUdeviceptr) = find("cuMemFree_v2");

	for (size_t i = 0; i < CALLS; i++) {
		CUdeviceptr p = 0;
		alloc(&p, 1000 + i);
		release(p);
	}
}

STACK_FRAME static void call_cuda(void)
{
	CUresult (*init)(unsigned int) = find("cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) = find("cuDevicePrimaryCtxRetain");
	CUresult (*set)(CUcontext) = find("cuCtxSetCurrent");
	CUcontext context = NULL;

	if (init(0) || retain(&context, 0) || set(context)) {
		fprintf(stderr, "children: a call failed\n");
		exit(1);
	}
	allocate();
}

static int status_of(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) < 0) {
		perror("children: start a child");
		return 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int by_fork(void)
{
	pid_t child;

	call_cuda();
	child = fork();
	if (!child) {
		allocate();
		exit(0); /* writes the ledger */
	}
	return status_of(child);
}

static char *const again[] = {"children", "call", NULL};

static int by_vfork(void)
{
	pid_t child = vfork();

	if (!child) {
		execv("/proc/self/exe", again);
		_exit(127);
	}
	return status_of(child);
}

static int by_spawn(void)
{
	pid_t child = -1;

	call_cuda();
	if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ))
		return 1;
	return status_of(child);
}

/* A thread of its own makes the calls: its lines are in the ledger when it has ended. */
static void *run_thread(void *unused)
{
	call_cuda();
	return unused;
}

static int by_thread(void)
{
	pthread_t thread;

	return pthread_create(&thread, NULL, run_thread, NULL) || pthread_join(thread, NULL);
}

static int by_exec(void)
{
	if (by_thread())
		return 1;
	execv("/proc/self/exe", again);
	return 127;
}

/* While it is set, the next call of mmap loads a library. cuInit calls this mmap. */
static volatile int loads_in_call;

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (loads_in_call) {
		loads_in_call = 0;
		if (!dlopen("libcudart.so.13", RTLD_NOW))
			fprintf(stderr, "children: %s\n", dlerror());
	}
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

static int by_nested(void)
{
	loads_in_call = 1;
	call_cuda();
	return loads_in_call;
}

static int by_call(void)
{
	call_cuda();
	return 0;
}

int main(int argc, char **argv)
{
	const struct {
		const char *mode;
		int (*run)(void);
	} modes[] = {{"fork", by_fork},	    {"vfork", by_vfork},   {"spawn", by_spawn}, {"exec", by_exec},
		     {"thread", by_thread}, {"nested", by_nested}, {"call", by_call}};

	for (unsigned i = 0; argc == 2 && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(argv[1], modes[i].mode))
			return modes[i].run();
	fprintf(stderr, "usage: children fork|vfork|spawn|exec|thread|nested|call\n");
	return 2;
}
