/*
 * Threads with known waits. "hostwaits MODE [N]" prints "thread TID" for each worker, waits for a line
 * of input, and lets the workers run. Each worker writes "wait FROM TO" for each of its waits, and
 * "ran NS" with its CPU time, CLOCK_MONOTONIC in ns. In mode "preempted", the first worker waits while
 * the second one runs: the second one writes these times. After another line of input, the program ends.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static sem_t begin, done, ready, woken;
static const char *mode;
static int count, word, ends[2];
static struct { long long from, to; } *logged;
static volatile unsigned long work;

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_ns(long ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};

	nanosleep(&t, 0);
}

__attribute__((noinline)) static void wait_sleeping(long ns)
{
	pause_ns(ns);
	__asm__ volatile("");
}

__attribute__((noinline)) static void wait_futex(void)
{
	syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0);
	word = 0;
}

__attribute__((noinline)) static void wait_pipe(void)
{
	char byte;

	if (read(ends[0], &byte, 1) != 1)
		abort();
}

/* run_spinning spins for a time of a clock: that of the machine, or of the thread on its processor. */
__attribute__((noinline)) static void run_spinning(clockid_t clock, long long ns)
{
	for (long long end = now(clock) + ns; now(clock) < end;)
		for (int i = 0; i < 1000; i++)
			work += i;
}

static void print_log(int n)
{
	for (int i = 0; i < n; i++)
		printf("wait %lld %lld\n", logged[i].from, logged[i].to);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void pin(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		fail("sched_setaffinity");
}

/*
 * run_preempted wakes the thread of run_preempting. Both are pinned to one processor, so this thread
 * continues only when that one waits again.
 */
static void run_preempted(void)
{
	sem_wait(&ready);
	for (int i = 0; i < count; i++)
		sem_post(&woken);
}

/* run_preempting spins each time that it is woken. No thread of a lower priority runs meanwhile. */
static void run_preempting(void)
{
	struct sched_param highest = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};

	if (sched_setscheduler(0, SCHED_FIFO, &highest))
		fail("sched_setscheduler");
	sem_post(&ready);
	for (int i = 0; i < count; i++) {
		sem_wait(&woken);
		logged[i].from = now(CLOCK_MONOTONIC);
		run_spinning(CLOCK_MONOTONIC, 30000000);
		logged[i].to = now(CLOCK_MONOTONIC);
	}
	print_log(count);
}

static void run_pair(long number)
{
	pin();
	if (number == 0)
		run_preempted();
	else
		run_preempting();
}

static void run_mode(void)
{
	long ns = !strcmp(mode, "short") ? 100000 : !strcmp(mode, "many") ? 2000000 : 30000000;
	int loops = !strcmp(mode, "spin") || !strcmp(mode, "pinned") ? 0 : count;

	if (!strcmp(mode, "pinned"))
		pin();
	if (!loops)
		run_spinning(!strcmp(mode, "spin") ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, 1000000000LL * count);
	for (int i = 0; i < loops; i++) {
		logged[i].from = now(CLOCK_MONOTONIC);
		if (!strcmp(mode, "futex"))
			wait_futex();
		else if (!strcmp(mode, "pipe"))
			wait_pipe();
		else
			wait_sleeping(ns);
		logged[i].to = now(CLOCK_MONOTONIC);
	}
	print_log(loops);
}

static void *worker(void *number)
{
	long long before;

	printf("thread %d\n", gettid());
	fflush(stdout);
	sem_post(&done);
	sem_wait(&begin);
	before = now(CLOCK_THREAD_CPUTIME_ID);
	if (!strcmp(mode, "preempted"))
		run_pair((long)number);
	else
		run_mode();
	printf("ran %lld\n", now(CLOCK_THREAD_CPUTIME_ID) - before);
	sem_post(&done);
	return 0;
}

/* start_child starts a process that sleeps 30 ms again and again, until this one ends. */
static void start_child(void)
{
	pid_t child = fork();

	if (child) {
		printf("thread %d\n", child);
		fflush(stdout);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		wait_sleeping(30000000);
}

static void next_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

int main(int argc, char **argv)
{
	long threads;
	pthread_t t;

	if (argc < 3 || pipe(ends))
		return 1;
	mode = argv[1];
	count = atoi(argv[2]);
	threads = !strcmp(mode, "pinned") || !strcmp(mode, "preempted") ? 2 : 1;
	logged = calloc(count, sizeof(*logged));
	if (!strcmp(mode, "child"))
		start_child();
	sem_init(&begin, 0, 0);
	sem_init(&done, 0, 0);
	sem_init(&ready, 0, 0);
	sem_init(&woken, 0, 0);
	for (long i = 0; i < threads; i++) {
		pthread_create(&t, 0, worker, (void *)i);
		sem_wait(&done); /* the threads are listed in their order */
	}
	next_line();
	for (int i = 0; i < threads; i++)
		sem_post(&begin);
	for (int i = 0; i < count; i++) {
		if (!strcmp(mode, "futex")) {
			pause_ns(30000000);
			word = 1;
			while (word && syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0) == 0)
				pause_ns(100000);
		} else if (!strcmp(mode, "pipe")) {
			pause_ns(30000000);
			if (write(ends[1], "x", 1) != 1)
				return 1;
		}
	}
	for (int i = 0; i < threads; i++)
		sem_wait(&done);
	printf("done\n");
	fflush(stdout);
	next_line();
	return 0;
}
