/* What holds up the launching thread of hostwaits: other threads, a file server, and spinning processes. */
#include "hostwaits_chains.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

const char *const kind_names[KINDS] = {
	[SLEEP] = "sleep", [MUTEX] = "mutex", [PIPE] = "pipe", [SLOW_FILE] = "file", [SPIN] = "spin", [CGROUP] = "cgroup",
	[OVERSUBSCRIBED] = "oversubscribed", [VFORK] = "vfork", [NONE] = "none",
	[CONDITION] = "condition", [QUEUE] = "queue", [PIPE_CHAIN] = "pipe_chain", [FUTEX] = "futex",
	[MUTEX_DISK] = "mutex_disk", [POOL] = "pool", [PROCESSES] = "processes",
};

/* A pause of a computing thread that is longer is written as a hold. */
enum { PAUSE_NS = 1000000 };
#define FOLDER "/mnt" /* of the slow file, in the namespace of the program */
static const uint64_t forever_ns = 100000ull * 1000000000;

atomic_bool released;
static pthread_t launching;

/* ---- other threads ---- */

static void *own_mutex(void *argument)
{
	struct fault *f = argument;
	prctl(PR_SET_NAME, f->owner);
	f->owner_tid = gettid();
	for (;;) {
		pthread_mutex_lock(&f->mutex);
		atomic_store(&f->holds, true);
		sem_wait(&f->wanted);
		if (f->endless)
			sem_wait(&f->wanted);
		else
			sleep_ns(f->length_ns);
		atomic_store(&f->holds, false);
		pthread_mutex_unlock(&f->mutex);
		sem_wait(&f->taken);
	}
	return NULL;
}

static void *write_pipe(void *argument)
{
	struct fault *f = argument;
	prctl(PR_SET_NAME, f->owner);
	f->owner_tid = gettid();
	for (char byte = 'a';; byte = byte == 'z' ? 'a' : (char)(byte + 1)) {
		sem_wait(&f->wanted);
		if (f->endless)
			sem_wait(&f->wanted);
		else
			sleep_ns(f->length_ns);
		if (write(f->pipe[1], &byte, 1) != 1)
			fail("write into the pipe");
		sem_wait(&f->taken);
	}
	return NULL;
}

static void start_owner(struct loop *l, struct fault *f, void *(*run)(void *))
{
	static const char *const names[] = {"prefetch", "logger", "uploader", "watcher", "reader"};
	enum { NAMES = sizeof(names) / sizeof(*names) };
	snprintf(f->owner, sizeof(f->owner), "%s-%d", names[draw(l, 0, NAMES - 1)], draw(l, 0, 9));
	sem_init(&f->wanted, 0, 0);
	sem_init(&f->taken, 0, 0);
	pthread_mutex_init(&f->mutex, NULL);
	if (pthread_create(&f->thread, NULL, run, f))
		fail("start of a thread");
}

/* ---- the file server ---- */

pid_t start_child(int output)
{
	pid_t parent = getpid(), child = fork();
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, STDIN_FILENO);
	dup2(output < 0 ? null : output, STDOUT_FILENO);
	return 0;
}

void start_server(struct fault *f)
{
	char byte;
	int ready[2];
	/* The mount ends with the namespace. */
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || pipe2(ready, O_CLOEXEC))
		fail("namespace of mounts");
	f->child = start_child(ready[1]);
	if (!f->child) {
		prctl(PR_SET_NAME, "fileserver");
		serve_slow_file(FOLDER);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("start of the file server");
	strcpy(f->owner, "fileserver");
	snprintf(f->target, sizeof(f->target), FOLDER "/batch-%d.bin", f->function);
	f->file = open(f->target, O_RDONLY | O_CLOEXEC);
	if (f->file < 0)
		fail(f->target);
}

/* ---- processes that spin on the processor of the launching thread ---- */

static struct spinning {
	atomic_bool on;
	sem_t begin;
} *spinning;

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("choice of a processor");
}

static void spin_while_on(int cpu)
{
	pin(cpu);
	prctl(PR_SET_NAME, "spinner");
	for (;;) {
		sem_wait(&spinning->begin);
		while (atomic_load(&spinning->on))
			;
	}
}

/* Chooses a processor for the launching thread, and starts processes that will spin on it. */
static void start_spinners(struct loop *l, struct fault *f)
{
	cpu_set_t set;
	f->cpu = 0;
	if (sched_getaffinity(0, sizeof(set), &set))
		fail("list of processors");
	for (int left = draw(l, 0, CPU_COUNT(&set) - 1); !CPU_ISSET(f->cpu, &set) || left--;)
		f->cpu++;
	spinning = mmap(NULL, sizeof(*spinning), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (spinning == MAP_FAILED || sem_init(&spinning->begin, 1, 0))
		fail("shared memory");
	strcpy(f->owner, "spinner");
	f->spinners = draw(l, 2, SPINNERS_MAX);
	for (int i = 0; i < f->spinners; i++)
		if (!start_child(-1))
			spin_while_on(f->cpu);
}

/* Lets the processes spin on the processor of the launching thread, which then waits for its processor. */
static void begin_spinning(struct fault *f, bool first)
{
	if (first)
		pin(f->cpu);
	atomic_store(&spinning->on, true);
	for (int i = 0; i < f->spinners; i++)
		sem_post(&spinning->begin);
}

/* ---- one delay ---- */

uint64_t queued_ns(void)
{
	static _Thread_local int file = -1; /* it names the thread that opened it */
	char text[128] = "";
	unsigned long long running, queued = 0;
	if (file < 0)
		file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (file < 0 || pread(file, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%llu %llu", &running, &queued) != 2)
		return 0;
	return queued;
}

void fault_start(struct loop *l, struct fault *f)
{
	f->step = -1;
	launching = pthread_self();
	switch (f->kind) {
	case MUTEX: start_owner(l, f, own_mutex); break;
	case PIPE:
		if (pipe2(f->pipe, O_CLOEXEC))
			fail("pipe");
		strcpy(f->target, "pipe");
		start_owner(l, f, write_pipe);
		break;
	case SLOW_FILE: start_server(f); break;
	case OVERSUBSCRIBED: start_spinners(l, f); break;
	default:
		if (f->kind >= CONDITION)
			f->chain = chain_start(l, f);
	}
}

void fault_begin(struct loop *l, struct fault *f, const char *function, int line)
{
	bool first = f->step < 0;
	f->step = l->step;
	f->endless = l->hangs && l->step == l->stuck_step && f->number == l->fault_count - 1;
	f->length_ns = f->endless ? forever_ns : (uint64_t)draw(l, (int)(f->least_ns / 1000), (int)(f->most_ns / 1000)) * 1000;
	while (f->kind == MUTEX && !atomic_load(&f->holds))
		;
	if (f->chain)
		chain_prepare(l, f->chain);
	if (f->kind == OVERSUBSCRIBED)
		begin_spinning(f, first);
	if (f->kind == MUTEX || f->kind == PIPE)
		while (!f->owner_tid)
			;
	if (first)
		truth_fault(f, function, line);
	if (f->endless) {
		truth_flush();
		printf("stuck %d\n", (int)gettid());
		fflush(stdout);
	}
	f->queued_ns = queued_ns();
	f->computed_ns = 0;
	f->begin_ns = f->last_ns = now_ns();
	if (f->kind == MUTEX || f->kind == PIPE)
		sem_post(&f->wanted);
	if (f->chain)
		chain_ask(f->chain);
}

bool fault_computes(struct fault *f)
{
	uint64_t now = now_ns(), pause_ns = now - f->last_ns;
	bool is_paused = f->kind != SPIN && pause_ns >= PAUSE_NS;
	if (is_paused)
		truth_hold(f, f->kind, f->last_ns, now, 0);
	else
		f->computed_ns += pause_ns;
	f->last_ns = now;
	if (f->endless)
		return !atomic_load(&released);
	return f->computed_ns < f->length_ns;
}

void fault_end(struct loop *l, struct fault *f)
{
	uint64_t now = now_ns();
	if (f->kind == CGROUP || f->kind == OVERSUBSCRIBED)
		truth_hold(f, SPIN, f->begin_ns, now, 0); /* the computation, with its pauses */
	else
		truth_hold(f, f->kind, f->begin_ns, now, queued_ns() - f->queued_ns);
	if (f->chain)
		chain_end(f);
	if (f->kind == OVERSUBSCRIBED)
		atomic_store(&spinning->on, false);
	if (f->kind == MUTEX || f->kind == PIPE)
		sem_post(&f->taken);
	l->checksum = l->checksum * 31 + (uint64_t)f->step;
}

/* The child of vfork: its parent waits in the state D until it ends. Both use the same memory. */
void fault_wait_for_child(struct fault *f)
{
	f->child = getpid();
	if (f->endless)
		for (;;)
			pause();
	sleep_ns(f->length_ns);
	_exit(0);
}

void fault_release(struct fault *f)
{
	atomic_store(&released, true);
	switch (f->kind) {
	case SLEEP: pthread_kill(launching, SIGUSR1); break;
	case MUTEX:
	case PIPE: sem_post(&f->wanted); break;
	case SLOW_FILE: kill(f->child, SIGUSR1); break;
	case VFORK:
		if (f->child > 0)
			kill(f->child, SIGKILL);
		break;
	default: break;
	}
}
