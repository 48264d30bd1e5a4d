/* Leaks and caches of several threads and several processes. */
#include "verdicts.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child(void (*run)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		usleep(20000); /* like a process that loads libraries first: gpurec attaches to the child in this time */
		run();
		_exit(0);
	}
	if (pid < 0)
		exit(1);
	return pid;
}

static void leak_all_along(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak(64 * KiB);
	}
}

static void use_a_ring(void)
{
	CUdeviceptr slots[32] = {0};
	use_device();
	weights(4, 16 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		drop(&slots[step % 32]);
		slots[step % 32] = cached(128 * KiB);
	}
}

static void child_leaks(void)
{
	pid_t pid = child(leak_all_along);
	use_a_ring();
	waitpid(pid, NULL, 0);
}

static void parent_leaks(void)
{
	pid_t pid = child(use_a_ring);
	leak_all_along();
	waitpid(pid, NULL, 0);
}

/* A job does not free its memory. The driver frees it when the job's process exits. */
static void job(void)
{
	use_device();
	weights(4, 8 * MiB);
	for (long step = 0; next(&step, STEPS / 20);)
		temporaries(step);
}

static void process_per_job(void)
{
	for (int i = 0; i < 20; i++)
		waitpid(child(job), NULL, 0);
}

static void leak_for_half(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS / 2);)
		leak(64 * KiB);
}

/* Two processes leak at the same call site. One process exits earlier. */
static void two_ranks(void)
{
	pid_t pid = child(leak_for_half);
	leak_all_along();
	waitpid(pid, NULL, 0);
}

/* A queue between two threads: one thread allocates blocks, the other frees them `lag` blocks later. */
static struct {
	pthread_mutex_t lock;
	CUdeviceptr blocks[STEPS + 1];
	long made, lag;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *free_queue(void *unused)
{
	long freed = 0;
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		pthread_mutex_lock(&queue.lock);
		long ready = queue.made - queue.lag;
		pthread_mutex_unlock(&queue.lock);
		for (; freed < ready; freed++)
			drop(&queue.blocks[freed]);
	}
	return unused;
}

static void fill_queue(long lag, bool leaks)
{
	pthread_t reader;
	queue.lag = lag;
	use_device();
	pthread_create(&reader, NULL, free_queue, NULL);
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr p = buffer(128 * KiB);
		pthread_mutex_lock(&queue.lock);
		queue.blocks[queue.made++] = p;
		pthread_mutex_unlock(&queue.lock);
		if (leaks && step % 2)
			leak(64 * KiB);
	}
	pthread_join(reader, NULL);
}

static void other_thread_frees(void) { fill_queue(0, false); }
static void other_thread_lags(void) { fill_queue(200, false); }
static void leak_next_to_a_queue(void) { fill_queue(16, true); }

static void *worker(void *leaks)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (leaks)
			leak(64 * KiB);
	}
	return NULL;
}

static void one_thread_leaks(void)
{
	pthread_t threads[3];
	use_device();
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, worker, i == 1 ? &threads : NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

/* Every job creates a context and frees nothing. Destroying the context frees the job's memory. */
static void context_per_job(void)
{
	use_device();
	weights(2, 16 * MiB);
	for (long step = 0; next(&step, STEPS);)
		if (step % 10 == 0) {
			CUcontext context;
			CUDA(cuCtxCreate_v2, &context, 0, 0);
			buffer(2 * MiB);
			CUDA(cuCtxDestroy_v2, context);
			use_device();
		}
}

const struct scenario processes[] = {
	{"child-leaks", child_leaks}, {"parent-leaks", parent_leaks}, {"process-per-job", process_per_job}, {"two-ranks", two_ranks},
	{"other-thread-frees", other_thread_frees}, {"other-thread-lags", other_thread_lags},
	{"leak-next-to-a-queue", leak_next_to_a_queue}, {"one-thread-leaks", one_thread_leaks}, {"context-per-job", context_per_job},
	{NULL, NULL},
};
