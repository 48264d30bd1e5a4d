/*
 * A thread whose stack has pages that no read of it ever gets, as pages on a dead file server. It
 * prints "ready" when they are in place.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define NOINLINE __attribute__((noinline))

static volatile uintptr_t frame;
static volatile int tid;

/* Waits until the thread is in a system call. */
static void wait_until_asleep(void)
{
	char path[64], call[16] = "running";
	FILE *file;

	while (!frame)
		;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	while (call[0] == 'r' || call[0] == '-') {
		file = fopen(path, "r");
		if (!file || !fgets(call, sizeof(call), file))
			_exit(1);
		fclose(file);
	}
}

NOINLINE static void bottom(void)
{
	volatile char space[8 * PAGE];
	struct timespec t = {100000, 0};

	space[0] = 0;
	tid = syscall(SYS_gettid);
	frame = (uintptr_t)__builtin_frame_address(0);
	nanosleep(&t, 0);
	space[1] = space[0];
}

static void *run(void *argument)
{
	volatile char space[8 * PAGE];

	space[0] = 0;
	prctl(PR_SET_NAME, "stalls");
	bottom();
	return (void *)(long)space[0];
}

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register all = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t thread;
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || pthread_create(&thread, 0, run, 0)) {
		puts("no userfaultfd");
		return 1;
	}
	wait_until_asleep();
	all.range.start = frame & ~(PAGE - 1);
	all.range.len = 2 * PAGE;
	if (ioctl(fd, UFFDIO_REGISTER, &all) || madvise((void *)all.range.start, all.range.len, MADV_DONTNEED)) {
		puts("no userfaultfd");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	pause();
}
