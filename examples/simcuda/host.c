/*
 * Host functions that streams run (cuLaunchHostFunc). One thread runs the functions of all streams,
 * in the order of their submission. So the ticket of a completed function implies that all earlier
 * ones completed.
 *
 * Work submitted after a host function starts as if the function took no time. A thread that waits
 * for the stream also waits for the function.
 */
#include "graph.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct work {
	struct work *next;
	uint64_t when;
	void (*run)(void *);
	void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t submitted_or_done = PTHREAD_COND_INITIALIZER;
static struct work *first, **end = &first;
static uint64_t submitted;
static _Atomic uint64_t done;
static bool running;
static __thread bool is_runner;

static void *run_all(void *unused)
{
	(void)unused;
	is_runner = true;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!first)
			pthread_cond_wait(&submitted_or_done, &lock);
		struct work *w = first;
		first = w->next;
		if (!first)
			end = &first;
		pthread_mutex_unlock(&lock);
		wait_until(w->when);
		w->run(w->data);
		free(w);
		pthread_mutex_lock(&lock);
		atomic_fetch_add(&done, 1);
		pthread_cond_broadcast(&submitted_or_done);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* Starts the thread for host functions. The thread blocks all signals, so the program's signals
 * go to the program's threads. */
static bool start_locked(void)
{
	pthread_t thread;
	sigset_t all, old;
	if (running)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	running = !pthread_create(&thread, NULL, run_all, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (running)
		pthread_detach(thread);
	return running;
}

/* Queues a host function to run at time `when` and returns its ticket. Returns 0 if out of
 * memory or if the thread cannot start. */
uint64_t host_enqueue(uint64_t when, void (*run)(void *), void *data)
{
	struct work *w = malloc(sizeof(*w));
	if (!w)
		return 0;
	*w = (struct work){NULL, when, run, data};
	pthread_mutex_lock(&lock);
	uint64_t ticket = start_locked() ? ++submitted : 0;
	if (ticket) {
		*end = w;
		end = &w->next;
		pthread_cond_broadcast(&submitted_or_done);
	}
	pthread_mutex_unlock(&lock);
	if (!ticket)
		free(w);
	return ticket;
}

bool host_done(uint64_t ticket)
{
	return ticket <= atomic_load(&done);
}

void host_wait(uint64_t ticket)
{
	/* A host function that waits for its own stream would deadlock. The real driver leaves
	 * that undefined; simcuda returns at once. */
	if (host_done(ticket) || is_runner)
		return;
	pthread_mutex_lock(&lock);
	while (!host_done(ticket))
		pthread_cond_wait(&submitted_or_done, &lock);
	pthread_mutex_unlock(&lock);
}

static CUresult host_launch(struct lane *lane, CUhostFn fn, void *data)
{
	struct op op = {.kind = OP_HOST, .host = {fn, data}};
	uint64_t over;
	return fn ? op_submit(lane, &op, &over) : CUDA_ERROR_INVALID_VALUE;
}

#define LAUNCH_HOST_FUNC(fn_name, zero)                                                 \
	EXPORT CUresult fn_name(CUstream hStream, CUhostFn fn, void *userData)          \
	{                                                                               \
		BEGIN(fn_name, NEEDS_CONTEXT, .ptr = H(fn), .stream = H(hStream));      \
		struct lane lane;                                                       \
		DO(lane_of(&call, hStream, zero, &lane));                               \
		DO(host_launch(&lane, fn, userData));                                   \
		return END();                                                           \
	}
LAUNCH_HOST_FUNC(cuLaunchHostFunc, LEGACY)
LAUNCH_HOST_FUNC(cuLaunchHostFunc_ptsz, PER_THREAD)

struct callback {
	CUstreamCallback run;
	CUstream stream;
	void *data;
};

static void run_callback(void *argument)
{
	struct callback *c = argument;
	c->run(c->stream, CUDA_SUCCESS, c->data);
	free(c);
}

static CUresult callback_add(struct lane *lane, CUstream stream, CUstreamCallback run, void *data, unsigned int flags)
{
	if (!run || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct callback *c = malloc(sizeof(*c));
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*c = (struct callback){run, stream, data};
	CUresult result = host_launch(lane, run_callback, c);
	if (result)
		free(c);
	return result;
}

#define STREAM_ADD_CALLBACK(fn, zero)                                                                                  \
	EXPORT CUresult fn(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)            \
	{                                                                                                              \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(callback), .stream = H(hStream));                                    \
		struct lane lane;                                                                                      \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                      \
		DO(callback_add(&lane, hStream, callback, userData, flags));                                           \
		return END();                                                                                          \
	}
STREAM_ADD_CALLBACK(cuStreamAddCallback, LEGACY)
STREAM_ADD_CALLBACK(cuStreamAddCallback_ptsz, PER_THREAD)
