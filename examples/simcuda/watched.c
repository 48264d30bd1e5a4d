/*
 * A program that notices when it is stopped. Its child loads libcuda and calls it; the parent, or
 * another thread of the child, counts what a recorder must not cause:
 *
 *   watched wait    stops that waitpid(WUNTRACED | WCONTINUED) reports, and SIGCHLDs before the end
 *   watched trace   stops of the child that its ptrace tracer did not cause
 *   watched timer   system calls of another thread that were interrupted
 *   watched stop    the child stops itself by SIGTSTP and is continued: 1 stop, 1 continuation
 *   watched signal  queued signals that the child did not receive, or not in their order
 *   watched kill    children that SIGTERM did not end
 *
 * It prints "watched MODE: N" and ends with the child's status.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_sim.h"

static volatile sig_atomic_t children, alarms;

static void on_child(int signal) { (void)signal, children++; }
static void on_alarm(int signal) { (void)signal, alarms++; }

/* use_cuda loads libcuda and calls it at once. It returns an exit status. */
static int use_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned int) = library ? (CUresult(*)(unsigned int))dlsym(library, "cuInit") : NULL;
	CUresult (*count)(int *) = library ? (CUresult(*)(int *))dlsym(library, "cuDeviceGetCount") : NULL;
	int devices = 0;

	if (!init || !count) {
		fprintf(stderr, "watched: %s\n", dlerror());
		return 1;
	}
	for (int i = 0; i < 100; i++)
		if (init(0) || count(&devices))
			return 1;
	return 0;
}

/* stops_seen waits for the child's end and returns how many other changes were reported. */
static int stops_seen(pid_t child, int *status)
{
	int stops = 0;

	for (;;) {
		if (waitpid(child, status, WUNTRACED | WCONTINUED) < 0) {
			if (errno == EINTR)
				continue;
			perror("watched: waitpid");
			exit(1);
		}
		if (WIFEXITED(*status) || WIFSIGNALED(*status))
			return stops;
		stops++;
		if (WIFSTOPPED(*status))
			kill(child, SIGCONT);
	}
}

static int watch_wait(int *status)
{
	struct sigaction action = {.sa_handler = on_child};
	pid_t child;
	int stops;

	sigaction(SIGCHLD, &action, NULL);
	child = fork();
	if (!child)
		_exit(use_cuda());
	stops = stops_seen(child, status);
	return stops + children - 1;
}

static int watch_stop(int *status)
{
	pid_t child = fork();

	if (!child) {
		setpgid(0, 0); /* SIGTSTP stops no process of a group without a parent outside of it */
		raise(SIGTSTP);
		_exit(use_cuda());
	}
	return stops_seen(child, status);
}

static int watch_trace(int *status)
{
	int stops = 0;
	pid_t child = fork();

	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(2);
		raise(SIGSTOP); /* the one stop that the tracer expects */
		_exit(use_cuda());
	}
	waitpid(child, status, 0);
	for (;;) {
		ptrace(PTRACE_CONT, child, NULL, NULL);
		if (waitpid(child, status, 0) < 0 || WIFEXITED(*status) || WIFSIGNALED(*status))
			return stops;
		stops++;
	}
}

enum { SIGNALS = 64, KILLED = 10 };

static volatile sig_atomic_t received, misplaced;

static void on_queued(int signal, siginfo_t *info, void *unused)
{
	(void)signal, (void)unused;
	misplaced += info->si_value.sival_int != received;
	received++;
}

/* The child receives signals while it calls CUDA. It ends with the number of wrong signals. */
static int watch_signal(int *status)
{
	struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
	pid_t child;

	sigaction(SIGRTMIN, &action, NULL);
	child = fork();
	if (!child) {
		int failed = use_cuda();
		while (received < SIGNALS)
			usleep(1000);
		_exit(failed ? 255 : misplaced);
	}
	for (int i = 0; i < SIGNALS; i++) {
		sigqueue(child, SIGRTMIN, (union sigval){.sival_int = i});
		usleep(300);
	}
	waitpid(child, status, 0);
	return WIFEXITED(*status) ? WEXITSTATUS(*status) : 255;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* start_user starts a child that uses CUDA, closes done, and waits for a signal. */
static pid_t start_user(int *done)
{
	int ends[2];
	pid_t child;

	if (pipe(ends)) {
		perror("watched: pipe");
		exit(1);
	}
	child = fork();
	if (!child) {
		close(ends[0]);
		use_cuda();
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	*done = ends[0];
	return child;
}

/* watch_kill ends the first child after its calls, and the others at times spread over as long. Some are held then. */
static int watch_kill(int *status)
{
	double all_us = 0;
	int survivors = 0;

	for (int i = 0; i <= KILLED; i++) {
		double begin_us = now_us();
		char end;
		int done;
		pid_t child = start_user(&done);

		if (i == 0) {
			if (read(done, &end, 1) != 0)
				perror("watched: read");
			all_us = now_us() - begin_us;
		} else {
			usleep(all_us * (i - 1) / KILLED);
		}
		kill(child, SIGTERM);
		waitpid(child, status, 0);
		close(done);
		survivors += !WIFSIGNALED(*status) || WTERMSIG(*status) != SIGTERM;
	}
	*status = 0;
	return survivors;
}

static volatile int over;

/* sleep_in_pieces counts sleeps that ended early, and sleeps that took much too long. */
static void *sleep_in_pieces(void *interrupted)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (!over) {
		struct timespec piece = {.tv_nsec = 1000000};
		if (nanosleep(&piece, NULL))
			++*(int *)interrupted;
	}
	return NULL;
}

static int watch_timer(int *status)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 2000}, {0, 2000}};
	int interrupted = 0;
	pthread_t thread;

	sigaction(SIGALRM, &action, NULL);
	pthread_create(&thread, NULL, sleep_in_pieces, &interrupted);
	setitimer(ITIMER_REAL, &every, NULL);
	*status = use_cuda() << 8;
	while (alarms < 10) /* they come as before */
		pause();
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	over = 1;
	pthread_join(thread, NULL);
	return interrupted;
}

int main(int argc, char **argv)
{
	const struct {
		const char *mode;
		int (*watch)(int *status);
	} modes[] = {{"wait", watch_wait}, {"trace", watch_trace}, {"timer", watch_timer}, {"stop", watch_stop},
		     {"signal", watch_signal}, {"kill", watch_kill}};
	int status = 0;

	for (unsigned i = 0; argc == 2 && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(argv[1], modes[i].mode)) {
			int n = modes[i].watch(&status);
			printf("watched %s: %d\n", argv[1], n);
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
	fprintf(stderr, "usage: watched wait|trace|timer|stop|signal|kill\n");
	return 2;
}
