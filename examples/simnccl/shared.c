/* The file that the ranks of a communicator map. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void path_of(char *path, size_t n, const char *name)
{
	const char *folder = getenv("SIMNCCL_DIR");
	snprintf(path, n, "%s/simnccl-%s", folder && *folder ? folder : "/dev/shm", name);
}

struct shared *shared_open(const char *name)
{
	char path[PATH_MAX];
	path_of(path, sizeof(path), name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	/* All ranks set the same size, so the order does not matter. Pages that no rank uses take no memory. */
	void *at = MAP_FAILED;
	if (!ftruncate(fd, sizeof(struct shared)))
		at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

void shared_close(struct shared *shared)
{
	munmap(shared, sizeof(*shared));
}

void shared_remove(const char *name)
{
	char path[PATH_MAX];
	path_of(path, sizeof(path), name);
	unlink(path);
}

void counter_add(_Atomic uint32_t *counter)
{
	atomic_fetch_add(counter, 1);
	syscall(SYS_futex, counter, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void counter_wait(_Atomic uint32_t *counter, uint32_t n, const _Atomic uint32_t *stop)
{
	const struct timespec moment = {.tv_nsec = 50000000}; /* then it looks at *stop again */
	for (uint32_t seen; (seen = atomic_load(counter)) < n && !atomic_load(stop);)
		syscall(SYS_futex, counter, FUTEX_WAIT, seen, &moment, NULL, 0);
}

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
