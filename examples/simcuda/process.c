/* Process and thread state: set-up at the first call, tear-down at exit, and reset in a forked
 * child. */
#include "arguments.h"
#include "graph.h"

#include "memory.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct config config;
pid_t process_pid;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct thread *self;
static struct thread *threads;
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool initialised;
static bool was_initialised_by_parent;

static void thread_exit(void *arg)
{
	struct thread *t = arg;
	capture_leave(&t->queue);
	channel_leave(&t->queue, H(CU_STREAM_PER_THREAD));
	ledger_flush(t);
	pthread_mutex_lock(&threads_lock);
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	pthread_mutex_unlock(&threads_lock);
	self = NULL; /* later destructors of this thread may call CUDA and need a new state */
	ledger_release(t);
	free(t);
}

static void before_fork(void)
{
	pthread_mutex_lock(&threads_lock);
}

static void parent_after_fork(void)
{
	pthread_mutex_unlock(&threads_lock);
}

/*
 * Resets the state in a forked child. Drops the buffered ledger lines, which the parent still
 * has. If the parent had initialised CUDA, all calls of the child return
 * CUDA_ERROR_NOT_INITIALIZED (3), as in the real driver. Otherwise the child starts
 * uninitialised.
 */
static void child_after_fork(void)
{
	process_pid = getpid();
	if (initialised)
		was_initialised_by_parent = true;
	atomic_store(&initialised, false);
	pthread_mutex_init(&threads_lock, NULL);
	pthread_mutex_init(&init_lock, NULL);
	state_after_fork();
	faults_after_fork();
	channels_after_fork();
	struct thread *other, *next;
	for (other = threads; other; other = next) {
		next = other->next;
		if (other == self)
			continue;
		ledger_release(other);
		free(other);
	}
	threads = self;
	if (!self)
		return;
	self->next = NULL;
	self->link = &threads;
	self->tid = process_pid;
	self->length = 0;
	self->depth = 0;
	pthread_mutex_init(&self->lock, NULL);
}

static void process_start(void)
{
	process_pid = getpid();
	config_read(&config);
	channels_open();
	ledger_open();
	arguments_open();
	faults_read();
	pthread_key_create(&key, thread_exit);
	pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

static struct thread *thread_start(void)
{
	pthread_once(&once, process_start);
	struct thread *t = calloc(1, sizeof(*t));
	if (!t) {
		fprintf(stderr, "simcuda: error: out of host memory\n");
		abort();
	}
	t->tid = gettid();
	t->queue.blocking = true;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_lock(&threads_lock);
	t->next = threads;
	t->link = &threads;
	if (threads)
		threads->link = &t->next;
	threads = t;
	pthread_mutex_unlock(&threads_lock);
	pthread_setspecific(key, t);
	self = t;
	return t;
}

struct thread *thread_self(void)
{
	struct thread *t = self;
	return t ? t : thread_start();
}

bool process_initialised(void)
{
	return atomic_load_explicit(&initialised, memory_order_acquire);
}

CUresult process_init(void)
{
	if (was_initialised_by_parent)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (config.devices == 0)
		return CUDA_ERROR_NO_DEVICE;
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&init_lock);
	if (!initialised) {
		if (objects_init() && device_init() && memory_init()) {
			state_join(&config);
			atomic_store_explicit(&initialised, true, memory_order_release);
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&init_lock);
	return result;
}

/* Flushes all ledger buffers at exit. Threads that are still running then write each line at
 * once. */
__attribute__((destructor)) static void process_exit(void)
{
	ledger_at_exit();
	channels_close();
	pthread_mutex_lock(&threads_lock);
	for (struct thread *t = threads; t; t = t->next)
		ledger_flush(t);
	pthread_mutex_unlock(&threads_lock);
	state_leave();
}
