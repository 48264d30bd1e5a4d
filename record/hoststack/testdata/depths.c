/*
 * Threads that wait at changing depths. The innermost own function names the depth: wait_at_3 is
 * called by three frames of deep.
 * Arguments: number of threads, length of a wait in µs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define NO_TAIL_CALL() __asm__ volatile("")

static long wait_ns;

static inline __attribute__((always_inline)) void wait_some(void)
{
	struct timespec t = {0, wait_ns};

	nanosleep(&t, 0);
	NO_TAIL_CALL();
}

#define WAIT_AT(n) \
	NOINLINE static void wait_at_##n(void) { wait_some(); NO_TAIL_CALL(); __asm__ volatile("nop # " #n); }
WAIT_AT(1)
WAIT_AT(2)
WAIT_AT(3)
WAIT_AT(4)
WAIT_AT(5)
WAIT_AT(6)
WAIT_AT(7)
WAIT_AT(8)

static void (*const waits[])(void) = {wait_at_1, wait_at_2, wait_at_3, wait_at_4,
				      wait_at_5, wait_at_6, wait_at_7, wait_at_8};

NOINLINE static void deep(int left, int depth)
{
	volatile char space[64];

	space[0] = 0;
	if (left > 1)
		deep(left - 1, depth);
	else
		waits[depth - 1]();
	NO_TAIL_CALL();
	space[1] = space[0];
}

static void *run(void *seed)
{
	unsigned s = (long)seed;

	for (;;) {
		int depth = 1 + rand_r(&s) % 8;

		deep(depth, depth);
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 3)
		return 1;
	wait_ns = atol(argv[2]) * 1000;
	for (long i = 0; i < atol(argv[1]); i++)
		if (pthread_create(&thread, 0, run, (void *)i))
			return 1;
	pause();
}
