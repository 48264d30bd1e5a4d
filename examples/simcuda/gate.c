/*
 * Times that are not known yet. The end of a kernel with a gate follows from what other processes
 * do, and so do the times of all work behind it. Such a time is a number from UNKNOWN_TIME on, which
 * means a gate, a sum or a maximum. It becomes an ordinary time when its gates have ended.
 *
 * A thread asks each gate whose kernel has begun, again and again. simnccl uses gates for kernels of
 * collectives: they end when all ranks have begun them.
 */
#include "channel.h"
#include "state.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TIMES = 1 << 17, GATES = 4096, POLL_NS = 50000, POLL_SHARE = 32, LONG_POLL_NS = 1000000 };

enum time_kind { GATE, SUM, MAXIMUM };

/* The last TIMES unknown times. An older one is in the past. */
static struct unknown {
	uint64_t id, a, b, value; /* value: 0 = unknown */
	enum time_kind kind;
} times[TIMES];
static uint64_t last_id;

static struct open_gate {
	struct gate gate;
	uint64_t start, id;
	int device;
} gates[GATES];
static int gates_len;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, added = PTHREAD_COND_INITIALIZER;
static bool running;
static __thread struct gate next_gate;

static bool is_unknown(uint64_t when)
{
	return when >= UNKNOWN_TIME;
}

/* Returns the time as a number if it is known. */
static uint64_t find_locked(uint64_t when)
{
	if (!is_unknown(when))
		return when;
	struct unknown *t = &times[(when - UNKNOWN_TIME) % TIMES];
	if (t->id != when - UNKNOWN_TIME)
		return 1;
	if (t->value)
		return t->value;
	if (t->kind == GATE)
		return when;
	uint64_t a = find_locked(t->a), b = t->kind == SUM ? t->b : is_unknown(a) ? when : find_locked(t->b);
	if (is_unknown(a) || is_unknown(b))
		return when;
	t->value = t->kind == SUM ? a + b : a > b ? a : b;
	return t->value;
}

static uint64_t new_locked(enum time_kind kind, uint64_t a, uint64_t b)
{
	struct unknown *t;
	do
		t = &times[++last_id % TIMES];
	while (t->id && !t->value && is_unknown(find_locked(UNKNOWN_TIME + t->id)));
	*t = (struct unknown){.id = last_id, .a = a, .b = b, .kind = kind};
	return UNKNOWN_TIME + last_id;
}

bool time_known(uint64_t when, uint64_t *at)
{
	*at = when;
	if (!is_unknown(when))
		return true;
	pthread_mutex_lock(&lock);
	*at = find_locked(when);
	pthread_mutex_unlock(&lock);
	return !is_unknown(*at);
}

uint64_t time_add(uint64_t when, uint64_t ns)
{
	if (!is_unknown(when))
		return when + ns;
	pthread_mutex_lock(&lock);
	uint64_t at = find_locked(when), sum = is_unknown(at) ? new_locked(SUM, at, ns) : at + ns;
	pthread_mutex_unlock(&lock);
	return sum;
}

uint64_t time_later(uint64_t a, uint64_t b)
{
	if ((!is_unknown(a) && !is_unknown(b)) || a == b)
		return a > b ? a : b;
	pthread_mutex_lock(&lock);
	a = find_locked(a);
	b = find_locked(b);
	uint64_t later = a > b ? a : b;
	if (is_unknown(later) && a != b)
		later = new_locked(MAXIMUM, a, b);
	pthread_mutex_unlock(&lock);
	return later;
}

uint64_t time_wait(uint64_t when)
{
	if (!is_unknown(when))
		return when;
	pthread_mutex_lock(&lock);
	while (is_unknown(when = find_locked(when)))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return when;
}

/* ---- gates ---- */

/* Asks a gate whose kernel has begun. Returns true if it has ended. */
static bool ask(int i, uint64_t now)
{
	struct open_gate g = gates[i];
	uint64_t start = find_locked(g.start), end = 0;
	if (is_unknown(start) || start > now)
		return false;
	pthread_mutex_unlock(&lock);
	bool ended = g.gate.end(g.gate.data, start, &end);
	state_busy(g.device, start, ended ? end : now);
	pthread_mutex_lock(&lock);
	if (!ended)
		return false;
	times[g.id % TIMES].value = end;
	gates[i] = gates[--gates_len]; /* only this thread removes gates */
	return true;
}

static bool ask_all(uint64_t now)
{
	bool ended = false;
	for (int i = gates_len - 1; i >= 0; i--)
		ended |= ask(i, now);
	return ended;
}

/* Pauses after gates have been asked for some time: an end is seen late by a small part of the wait. */
static void rest(uint64_t waited_ns)
{
	uint64_t ns = waited_ns / POLL_SHARE;
	struct timespec pause = {.tv_nsec = ns < POLL_NS ? POLL_NS : ns > LONG_POLL_NS ? LONG_POLL_NS : (long)ns};
	nanosleep(&pause, NULL);
}

static void *run(void *unused)
{
	const struct sched_param priority = {.sched_priority = 1};
	uint64_t last = now_ns();
	(void)unused;
	pthread_setname_np(pthread_self(), "simcuda-gates");
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority); /* needs root */
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!gates_len) {
			pthread_cond_wait(&added, &lock);
			last = now_ns();
		}
		uint64_t now = now_ns();
		bool ended = ask_all(now);
		if (ended) {
			last = now;
			pthread_cond_broadcast(&changed);
		}
		pthread_mutex_unlock(&lock);
		if (ended && channels_on)
			gpu_wake();
		rest(now - last);
		pthread_mutex_lock(&lock);
	}
	return NULL;
}

/* Starts the thread. It blocks all signals, so the program's signals go to its threads. */
static void start_locked(void)
{
	pthread_t thread;
	sigset_t all, old;
	if (running)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	running = !pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!running) {
		fprintf(stderr, "simcuda: error: cannot start the thread of gates\n");
		_exit(1);
	}
	pthread_detach(thread);
}

uint64_t gate_open(const struct gate *gate, uint64_t start, int device)
{
	pthread_mutex_lock(&lock);
	if (gates_len == GATES) {
		fprintf(stderr, "simcuda: error: no more gates\n");
		_exit(1);
	}
	uint64_t end = new_locked(GATE, 0, 0);
	gates[gates_len++] = (struct open_gate){.gate = *gate, .start = start, .id = end - UNKNOWN_TIME, .device = device};
	start_locked();
	pthread_cond_signal(&added);
	pthread_mutex_unlock(&lock);
	return end;
}

struct gate gate_take(void)
{
	struct gate g = next_gate;
	next_gate.end = NULL;
	return g;
}

/* Not in CUDA, for simnccl: the next kernel of this thread by cuLaunchKernelEx ends when `end` says so.
 * A thread of its own calls `end` from the start of the kernel on until it returns true and the time. */
EXPORT void simcudaGateNextKernel(bool (*end)(void *data, uint64_t start_ns, uint64_t *end_ns), void *data);
EXPORT void simcudaGateNextKernel(bool (*end)(void *data, uint64_t start_ns, uint64_t *end_ns), void *data)
{
	next_gate = (struct gate){end, data};
}
