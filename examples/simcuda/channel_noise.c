/*
 * Words of the driver that change without work: decoys and heartbeats. A thread of their own changes
 * them, which takes no lock of the channels and writes no file. So these words still change when the program
 * and its ledger wait for a busy machine, as words of a real driver do.
 */
#include "channel.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { INTERVAL_NS = 2000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot_memory *memories[CHANNEL_CONTEXTS_MAX]; /* NULL: free */
static bool running;
static uint64_t random_state;

static uint64_t noise_below(uint64_t n)
{
	return hash_mix(random_state += 0x9e3779b97f4a7c15ull) % n;
}

static void write_words(struct slot *slot, uint64_t counter, uint64_t gpu_ns)
{
	atomic_store_explicit(&slot->counter, counter, memory_order_release);
	atomic_store_explicit(&slot->gpu_ns, gpu_ns, memory_order_release);
}

/* Decoys count at a rate of their own. Heartbeats have a new time and an old counter. */
static void disturb(struct slot_memory *m)
{
	uint64_t gpu = clock_gpu_ns(m->device, now_ns());
	for (int i = 0; i < DECOYS && m->decoys[i]; i++)
		if (!noise_below((uint64_t)i + 1))
			write_words(m->decoys[i], m->decoys[i]->counter + 1 + noise_below((uint64_t)i * 4 + 1), gpu);
	for (int i = 0; i < HEARTBEATS && m->heartbeats[i]; i++)
		write_words(m->heartbeats[i], 1ull << i, gpu);
}

static void *run(void *unused)
{
	const struct sched_param priority = {.sched_priority = 1};
	const struct timespec interval = {.tv_nsec = INTERVAL_NS};
	(void)unused;
	pthread_setname_np(pthread_self(), "simcuda-noise");
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority); /* needs root */
	for (;;) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < CHANNEL_CONTEXTS_MAX; i++)
			if (memories[i])
				disturb(memories[i]);
		pthread_mutex_unlock(&lock);
		nanosleep(&interval, NULL);
	}
	return NULL;
}

/* Starts the thread. It blocks all signals, so the program's signals go to its threads. */
static void start_locked(void)
{
	pthread_t thread;
	sigset_t all, old;
	random_state = random_next();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	running = !pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!running) {
		fprintf(stderr, "simcuda: error: cannot start the thread of decoys\n");
		_exit(1);
	}
	pthread_detach(thread);
}

void noise_add(struct slot_memory *m)
{
	if (!channel_config.decoys)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHANNEL_CONTEXTS_MAX; i++) {
		if (memories[i])
			continue;
		memories[i] = m;
		break;
	}
	if (!running)
		start_locked();
	pthread_mutex_unlock(&lock);
}

void noise_remove(struct slot_memory *m)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHANNEL_CONTEXTS_MAX; i++)
		if (memories[i] == m)
			memories[i] = NULL;
	pthread_mutex_unlock(&lock);
}

void noise_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(memories, 0, sizeof(memories));
	running = false;
}
