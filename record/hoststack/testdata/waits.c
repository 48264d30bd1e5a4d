/*
 * One thread for each way to wait, or to run. The name of a thread says what it does. With an
 * argument: so many threads that sleep 21 functions deep. It starts when its standard input has a
 * line.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define NO_TAIL_CALL() __asm__ volatile("")
#define THREAD(function, title, ...)               \
	static void *function(void *argument)      \
	{                                          \
		prctl(PR_SET_NAME, title);         \
		__VA_ARGS__;                       \
		return argument;                   \
	}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int pipe_ends[2];

NOINLINE static void leaf_sleep(void)
{
	struct timespec t = {100000, 0};

	nanosleep(&t, 0);
	NO_TAIL_CALL();
}

NOINLINE static void middle(volatile int n)
{
	if (n > 0)
		middle(n - 1);
	else
		leaf_sleep();
	NO_TAIL_CALL();
}

NOINLINE static void wait_for_condition(void)
{
	pthread_mutex_lock(&mutex);
	pthread_cond_wait(&never, &mutex);
}

NOINLINE static void wait_for_events(void)
{
	struct epoll_event event = {EPOLLIN};
	int e = epoll_create1(0);

	epoll_ctl(e, EPOLL_CTL_ADD, pipe_ends[0], &event);
	epoll_wait(e, &event, 1, -1);
	NO_TAIL_CALL();
}

NOINLINE static void wait_for_semaphore(void)
{
	sem_t s;

	sem_init(&s, 0, 0);
	sem_wait(&s);
	NO_TAIL_CALL();
}

static int compare(const void *a, const void *b)
{
	leaf_sleep();
	return 0;
}

static void handler(int signal) { leaf_sleep(); }

NOINLINE static void wait_in_handler(void)
{
	signal(SIGUSR1, handler);
	pthread_kill(pthread_self(), SIGUSR1);
	NO_TAIL_CALL();
}

NOINLINE static void wait_in_big_frame(void)
{
	volatile char big[200000];

	big[0] = 1;
	leaf_sleep();
	big[1] = big[0];
}

NOINLINE static void wait_behind_alloca(long more)
{
	volatile char *big = __builtin_alloca(3000 + more);

	big[0] = 1;
	leaf_sleep();
	big[1] = big[0];
}

NOINLINE static void wait_for_vfork(void)
{
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		leaf_sleep();
		_exit(0);
	}
	NO_TAIL_CALL();
}

/* Its frame is found by the frame pointer, which vfork keeps. */
NOINLINE static void vfork_behind_alloca(long size)
{
	volatile char *space = alloca(1000 + (size & 15));

	space[0] = 0;
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		leaf_sleep();
		_exit(0);
	}
	space[1] = space[0];
}

NOINLINE static void spin(void)
{
	for (volatile long i = 0;; i++)
		;
}

THREAD(sleeper, "sleep", middle(20))
THREAD(locker, "mutex", pthread_mutex_lock(&held))
THREAD(conditioner, "condition", wait_for_condition())
THREAD(reader, "read", char b[8]; read(pipe_ends[0], b, 8))
THREAD(poller, "poll", struct pollfd p = {pipe_ends[0], POLLIN, 0}; poll(&p, 1, -1))
THREAD(epoller, "epoll", wait_for_events())
THREAD(poster, "semaphore", wait_for_semaphore())
THREAD(sorter, "qsort", int v[4] = {3, 1, 2, 0}; qsort(v, 4, sizeof(*v), compare))
THREAD(signaled, "signal", wait_in_handler())
THREAD(big, "bigframe", wait_in_big_frame())
THREAD(allocator, "alloca", wait_behind_alloca((long)argument))
THREAD(forker, "vfork", wait_for_vfork())
THREAD(allocating_forker, "vforkalloca", vfork_behind_alloca((long)argument))
THREAD(spinner, "spin", spin())

int main(int argc, char **argv)
{
	void *(*all[])(void *) = {sleeper, locker, conditioner, reader, poller, epoller, poster,
				  sorter, signaled, big, allocator, forker, allocating_forker, spinner};
	int many = argc > 1 ? atoi(argv[1]) : 0;
	pthread_attr_t small;
	pthread_t thread;

	getchar();
	if (pipe(pipe_ends))
		return 1;
	pthread_mutex_lock(&held);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, many ? 65536 : 1 << 20);
	for (int i = 0; i < (many ? many : (int)(sizeof(all) / sizeof(*all))); i++)
		if (pthread_create(&thread, &small, many ? sleeper : all[i], 0))
			return 1;
	pause();
}
