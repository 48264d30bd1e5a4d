/*
 * Waits that a known thread ends. "wakers MODE N" prints "thread TID" for three threads, waits for a line of input, and
 * lets them run. The first one waits N times, for about 20 ms, and writes "wait FROM TO" for each wait, CLOCK_MONOTONIC
 * in ns. After another line of input, the program ends.
 *
 *   chain     the second thread ends the waits by a semaphore. It waits for a pipe, into which the third one writes
 *   signals   the second thread ends them, and the third one sends a signal every 3 ms
 *   timeouts  the second thread ends them. The first one waits for 5 ms again and again
 *   loopback  the second thread ends them by a TCP connection
 *   sleep     the first thread sleeps
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH_NS = 20000000, SIGNAL_NS = 3000000, TIMEOUT_NS = 5000000 };

static sem_t begin, listed, wanted, given;
static const char *mode;
static int count, word, ends[2], sockets[2];
static volatile int ended;
static pthread_t first;
static struct { long long from, to; } *logged;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int is(const char *name) { return !strcmp(mode, name); }

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((noinline)) static void wait_sleeping(long ns)
{
	struct timespec t = {0, ns};

	nanosleep(&t, 0);
	__asm__ volatile("");
}

/* connect_loopback connects the two sockets by TCP. */
static void connect_loopback(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(to);
	int server = socket(AF_INET, SOCK_STREAM, 0);

	sockets[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(server, (void *)&to, length) || listen(server, 1) || getsockname(server, (void *)&to, &length) ||
	    connect(sockets[1], (void *)&to, length))
		fail("connect");
	sockets[0] = accept(server, 0, 0);
}

static void wait_once(void)
{
	struct timespec t = {0, TIMEOUT_NS};
	char byte;

	if (is("sleep"))
		wait_sleeping(LENGTH_NS);
	else if (is("loopback") && recv(sockets[0], &byte, 1, 0) != 1)
		fail("recv");
	else if (is("timeouts"))
		while (!__atomic_exchange_n(&word, 0, __ATOMIC_SEQ_CST))
			syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, 0, 0);
	else if (is("chain") || is("signals"))
		while (sem_wait(&given))
			;
}

static void run_first(void)
{
	for (int i = 0; i < count; i++) {
		sem_post(&wanted);
		logged[i].from = now();
		wait_once();
		logged[i].to = now();
	}
	ended = 1;
	sem_post(&wanted);
	if (write(ends[1], "x", 1) != 1)
		fail("write");
	for (int i = 0; i < count; i++)
		printf("wait %lld %lld\n", logged[i].from, logged[i].to);
	printf("done\n");
	fflush(stdout);
}

static void run_second(void)
{
	char byte;

	while (!ended) {
		while (sem_wait(&wanted))
			;
		if (is("chain") && read(ends[0], &byte, 1) != 1)
			fail("read");
		if (!is("chain"))
			wait_sleeping(LENGTH_NS);
		if (is("loopback") && send(sockets[1], "x", 1, 0) != 1)
			fail("send");
		if (is("timeouts")) {
			__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
			syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
		}
		sem_post(&given);
	}
}

static void run_third(void)
{
	while (!ended) {
		wait_sleeping(is("signals") ? SIGNAL_NS : LENGTH_NS);
		if (is("signals"))
			pthread_kill(first, SIGUSR1);
		if (is("chain") && write(ends[1], "x", 1) != 1)
			fail("write");
	}
}

static void *worker(void *number)
{
	static void (*const runs[])(void) = {run_first, run_second, run_third};

	if (!number)
		first = pthread_self();
	printf("thread %d\n", gettid());
	fflush(stdout);
	sem_post(&listed);
	while (sem_wait(&begin))
		;
	runs[(long)number]();
	pause(); /* the thread stays, so its ID is not used again */
	return 0;
}

static void on_signal(int number) { (void)number; }

static void next_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t t;

	if (argc < 3 || pipe(ends))
		return 1;
	mode = argv[1];
	count = atoi(argv[2]);
	logged = calloc(count, sizeof(*logged));
	sigaction(SIGUSR1, &action, 0);
	sem_init(&begin, 0, 0);
	sem_init(&listed, 0, 0);
	sem_init(&wanted, 0, 0);
	sem_init(&given, 0, 0);
	if (is("loopback"))
		connect_loopback();
	for (long i = 0; i < 3; i++) {
		pthread_create(&t, 0, worker, (void *)i);
		sem_wait(&listed); /* the threads are listed in their order */
	}
	next_line();
	for (int i = 0; i < 3; i++)
		sem_post(&begin);
	next_line();
	return 0;
}
