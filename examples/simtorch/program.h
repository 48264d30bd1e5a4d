/* Functions shared by the C++ programs: waiting for a recorder, random numbers and time. */
#ifndef SIMTORCH_PROGRAM_H
#define SIMTORCH_PROGRAM_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

inline double now_ns()
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

inline void sleep_ns(double ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1e9), .tv_nsec = 0};
	t.tv_nsec = (long)(ns - (double)t.tv_sec * 1e9);
	nanosleep(&t, nullptr);
}

/* Waits until stdin has a byte or is closed. */
inline void wait_for_stdin()
{
	char byte;
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0)
		;
}

inline void announce_ready()
{
	printf("ready %d\n", (int)getpid());
	wait_for_stdin();
}

struct Random {
	uint64_t state;

	/* An odd multiplier makes neighbouring seeds and threads differ. The lowest bit is set,
	 * because the state must not be 0. */
	Random(uint64_t seed, uint64_t thread) : state((seed * 1000003 + thread + 1) * 0x9e3779b97f4a7c15ull | 1) {}

	uint64_t below(uint64_t n)
	{
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		return (state >> 16) % n;
	}
	bool one_in(uint64_t n) { return below(n) == 0; }
};

#endif
