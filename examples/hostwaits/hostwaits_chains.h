/*
 * Chains of hostwaits: the launching thread waits for a thread or process, which waits for the next one, and
 * so on. The last one does something.
 */
#ifndef HOSTWAITS_CHAINS_H
#define HOSTWAITS_CHAINS_H

#include "hostwaits.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MEMBERS_MAX = 4, WORKERS_MAX = 3, SLOTS = 4 };

/* How a member ends the wait of the one before it. */
enum means { BY_CONDITION, BY_QUEUE, BY_PIPE, BY_FUTEX, BY_MUTEX, BY_SOCKET, BY_EVENTFD, BY_SEMAPHORE };

/* What a member does before it waits for the next one. */
enum activity { NO_ACTIVITY, SLEEPS, SPINS, READS_FILE };

/* A thread of a chain, a process of one thread, or a pool of threads. It is in memory that processes share. */
struct member {
	struct chain *chain;
	struct member *next;     /* whom it waits for; NULL: the last one */
	enum means means;
	int function;            /* index of the function of hostwaits_chains.c */
	bool is_process;         /* else a thread of the process of the member before */
	bool is_early;           /* waits for the next one without a request, already before the delay */
	int workers;             /* threads that wait for its requests: 1, but for a pool */
	char name[16];           /* of the thread; of a pool: of all its threads, without their numbers */
	atomic_int started;      /* number of its threads that have started */

	/* What it does in a delay, and when and where it did. */
	enum activity activity;
	uint64_t least_ns, most_ns, length_ns, from_ns, to_ns, queued_ns;
	int pid, tid, line;
	char thread[16];
	const char *place;

	/* Requests. */
	sem_t wanted, taken;     /* posted when it shall begin, and when the delay has ended */
	sem_t holding;           /* of BY_MUTEX: posted when it holds the mutex */
	pthread_mutex_t jobs_lock;
	pthread_cond_t has_jobs;
	int jobs;                /* of a pool */

	/* The end of the wait of the member before. */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int full, first, ring[SLOTS];
	atomic_int word;
	int in, out;             /* file descriptors */
	sem_t given;
};

struct chain {
	struct member members[MEMBERS_MAX];
	int count, file;         /* number of members, and the slow file */
	struct member *asked;    /* whom the launching thread asks */
	bool normal_priority;
};

/* Waits until a member gives. It is a macro, so that it has the line of the function that waits. */
#define RECEIVE(m)                                                                                               \
	do {                                                                                                     \
		uint64_t received;                                                                               \
		switch ((m)->means) {                                                                            \
		case BY_CONDITION:                                                                               \
		case BY_QUEUE:                                                                                   \
			pthread_mutex_lock(&(m)->mutex);                                                         \
			while (!(m)->full)                                                                       \
				pthread_cond_wait(&(m)->changed, &(m)->mutex);                                   \
			(m)->full--;                                                                             \
			received = (uint64_t)(m)->ring[(m)->first];                                              \
			(m)->first = ((m)->first + 1) % SLOTS;                                                   \
			pthread_mutex_unlock(&(m)->mutex);                                                       \
			break;                                                                                   \
		case BY_FUTEX:                                                                                   \
			while (!atomic_exchange(&(m)->word, 0))                                                  \
				syscall(SYS_futex, &(m)->word, FUTEX_WAIT, 0, NULL, NULL, 0);                    \
			break;                                                                                   \
		case BY_MUTEX:                                                                                   \
			pthread_mutex_lock(&(m)->mutex);                                                         \
			pthread_mutex_unlock(&(m)->mutex);                                                       \
			break;                                                                                   \
		case BY_SEMAPHORE:                                                                               \
			while (sem_wait(&(m)->given))                                                            \
				;                                                                                \
			break;                                                                                   \
		default:                                                                                         \
			while (read((m)->in, &received, sizeof(received)) < 0)                                   \
				;                                                                                \
		}                                                                                                \
	} while (0)

/* Draws and starts the members, before the CUDA driver is loaded. */
struct chain *chain_start(struct loop *l, struct fault *f);
/* Waits until the members are ready for a delay, and draws what they do. */
void chain_prepare(struct loop *l, struct chain *c);
/* Begins a delay of the launching thread, which receives from the first member afterwards. */
void chain_ask(struct chain *c);
/* Ends the delay, and writes what the members did. */
void chain_end(struct fault *f);

/* Writes an interval in which a member did something. It is links members away from the launching thread. */
void truth_end(const struct fault *f, const struct member *m, int links);

#endif
