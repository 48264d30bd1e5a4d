/*
 * The GPU thread. It sleeps until the next operation of any channel begins, or the next copy ends, and publishes it. It
 * has a real-time priority where that is allowed, because a GPU does not wait for a CPU. A sleep
 * ends some microseconds late. So the thread sleeps less and spins for the rest, for at most a
 * quarter of all time. A thread that waits for an operation publishes it too, so the operation is visible
 * when the wait ends.
 */
#include "channel.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { SPIN_NS = 15000, SPIN_SHARE = 4, LONG_NS = 100000000, SLEEP_MAX_NS = 2000000 };

static pthread_cond_t wake;
static bool running, closed;
static uint64_t sleeps_until;
static uint64_t started_ns, spun_ns;

static struct work *first_of(const struct channel *c)
{
	return &c->queue[c->first];
}

/* Reports whether the time of a channel's next words is known. */
static bool next_is_known(const struct channel *c)
{
	struct work *w = first_of(c);
	return time_known(w->word_ns, &w->word_ns);
}

/* Returns the channel whose words change next, or NULL if no work is queued. */
static struct channel *next_channel(void)
{
	struct channel *next = NULL;
	for (int i = 0; i < channels_len; i++) {
		struct channel *c = &channels[i];
		if (c->alive && c->len && next_is_known(c) && (!next || first_of(c)->word_ns < first_of(next)->word_ns))
			next = c;
	}
	return next;
}

static void publish(struct channel *c)
{
	enum { EVENT_PAYLOAD = 5 /* as seen on an H200 */, TORN_MAX_NS = 150 };
	struct work *w = first_of(c);
	uint64_t gpu_ns = clock_gpu_ns(c->of->memory.device, w->word_ns);
	c->counter++;
	works_write(w);
	if (w->event)
		slot_write(w->event, EVENT_PAYLOAD, gpu_ns);
	uint64_t torn_ns = slot_write(c->slot, c->counter, gpu_ns);
	if (torn_ns > TORN_MAX_NS)
		works_torn(c, torn_ns);
	c->first = (c->first + 1) % QUEUE_MAX;
	if (!--c->len && c->ending)
		channel_end(c);
}

void gpu_publish_locked(uint64_t until)
{
	struct channel *c;
	while ((c = next_channel()) && first_of(c)->word_ns <= until)
		publish(c);
	if (!c || first_of(c)->word_ns > until + LONG_NS)
		works_flush(); /* the GPU is idle or busy for long: readers find every operation in the ledger */
}

void channels_publish(uint64_t until)
{
	pthread_mutex_lock(&channels_lock);
	if (!closed)
		gpu_publish_locked(until);
	pthread_mutex_unlock(&channels_lock);
}

static void sleep_until(uint64_t when)
{
	struct timespec t = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)};
	sleeps_until = when;
	pthread_cond_timedwait(&wake, &channels_lock, &t);
	sleeps_until = 0;
}

static bool may_spin(uint64_t now)
{
	return spun_ns + SPIN_NS < (now - started_ns) / SPIN_SHARE;
}

/* Waits for a time in the near future. */
static void spin_until(uint64_t when, uint64_t now)
{
	uint64_t from = now;
	pthread_mutex_unlock(&channels_lock);
	while (now < when)
		now = now_ns();
	pthread_mutex_lock(&channels_lock);
	spun_ns += now - from;
}

/* Waits for the next operation or an earlier one, but not for long. */
static void wait_for_end(uint64_t now)
{
	struct channel *next = next_channel();
	uint64_t at = next ? first_of(next)->word_ns : UINT64_MAX;
	uint64_t early = may_spin(now) ? SPIN_NS : 0;
	if (at > now + early)
		sleep_until(at < now + SLEEP_MAX_NS ? at - early : now + SLEEP_MAX_NS);
	else if (at > now)
		spin_until(at, now);
}

static void *run(void *unused)
{
	const struct sched_param priority = {.sched_priority = 1};
	(void)unused;
	pthread_setname_np(pthread_self(), "simcuda-gpu");
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority); /* needs root */
	pthread_mutex_lock(&channels_lock);
	started_ns = now_ns();
	while (!closed) {
		uint64_t now = now_ns();
		gpu_publish_locked(now);
		wait_for_end(now);
	}
	pthread_mutex_unlock(&channels_lock);
	return NULL;
}

/* Starts the thread. It blocks all signals, so the program's signals go to its threads. */
static void start(void)
{
	pthread_condattr_t attributes;
	pthread_t thread;
	sigset_t all, old;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&wake, &attributes);
	pthread_condattr_destroy(&attributes);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	running = !pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!running) {
		fprintf(stderr, "simcuda: error: cannot start the GPU thread\n");
		_exit(1);
	}
	pthread_detach(thread);
}

void gpu_push(const struct work *w)
{
	struct channel *c = w->channel;
	if (closed)
		return;
	if (!running)
		start();
	c->queue[(c->first + c->len++) % QUEUE_MAX] = *w;
	if (w->word_ns < sleeps_until)
		pthread_cond_signal(&wake);
}

void gpu_wake(void)
{
	pthread_mutex_lock(&channels_lock);
	if (sleeps_until)
		pthread_cond_signal(&wake);
	pthread_mutex_unlock(&channels_lock);
}

void gpu_after_fork(void)
{
	running = false;
	sleeps_until = 0;
	for (int i = 0; i < channels_len; i++)
		channels[i].alive = false;
}

/* Publishes what has ended. Operations that have not are lost, as when a process ends. */
void channels_close(void)
{
	if (!channels_on)
		return;
	pthread_mutex_lock(&channels_lock);
	gpu_publish_locked(now_ns());
	works_flush();
	closed = true;
	pthread_mutex_unlock(&channels_lock);
}
