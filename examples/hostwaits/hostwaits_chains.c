/*
 * Chains of threads and processes. All code of a function of a member has the line of its macro, so what it
 * does has one true line.
 */
#include "hostwaits_chains.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum { TURNS = 20000, PAGE = 4096, MS = 1000000 };

/* ---- between members ---- */

/* Asks a member to begin. */
static void ask(struct member *m)
{
	if (m->workers == 1) {
		sem_post(&m->wanted);
		return;
	}
	pthread_mutex_lock(&m->jobs_lock);
	m->jobs++;
	pthread_cond_signal(&m->has_jobs);
	pthread_mutex_unlock(&m->jobs_lock);
}

/* Waits until the member is asked. */
static void wait_until_asked(struct member *m)
{
	if (m->workers == 1) {
		while (sem_wait(&m->wanted))
			;
		return;
	}
	pthread_mutex_lock(&m->jobs_lock);
	while (!m->jobs)
		pthread_cond_wait(&m->has_jobs, &m->jobs_lock);
	m->jobs--;
	pthread_mutex_unlock(&m->jobs_lock);
}

/* Ends the wait of the member before. */
static void give(struct member *m)
{
	uint64_t one = 1;
	switch (m->means) {
	case BY_CONDITION:
	case BY_QUEUE:
		pthread_mutex_lock(&m->mutex);
		m->ring[(m->first + m->full++) % SLOTS] = m->line;
		pthread_cond_signal(&m->changed);
		pthread_mutex_unlock(&m->mutex);
		break;
	case BY_FUTEX:
		atomic_store(&m->word, 1);
		syscall(SYS_futex, &m->word, FUTEX_WAKE, 1, NULL, NULL, 0);
		break;
	case BY_MUTEX: pthread_mutex_unlock(&m->mutex); break;
	case BY_SEMAPHORE: sem_post(&m->given); break;
	default:
		if (write(m->out, &one, sizeof(one)) != sizeof(one))
			fail("write of a member");
	}
}

/* ---- functions of members ---- */

static void begin_work(struct member *m, const char *place, int line)
{
	m->pid = getpid();
	m->tid = gettid();
	prctl(PR_GET_NAME, m->thread);
	m->place = place;
	m->line = line;
	m->queued_ns = queued_ns();
	m->from_ns = now_ns();
}

static void end_work(struct member *m)
{
	m->to_ns = now_ns();
	m->queued_ns = queued_ns() - m->queued_ns;
}

#define MEMBER(name)                                                                                              \
	__attribute__((noinline)) static void name(struct member *m)                                              \
	{                                                                                                         \
		char page[PAGE];                                                                                  \
		begin_work(m, __func__, __LINE__);                                                                \
		struct timespec t = {0, (long)m->length_ns};                                                      \
		switch (m->activity) {                                                                            \
		case NO_ACTIVITY: break;                                                                          \
		case SLEEPS: nanosleep(&t, NULL); break;                                                          \
		case SPINS:                                                                                       \
			do                                                                                        \
				for (volatile int i = 0; i < TURNS; i++)                                          \
					;                                                                         \
			while (now_ns() < m->from_ns + m->length_ns);                                             \
			break;                                                                                    \
		case READS_FILE:                                                                                  \
			if (pread(m->chain->file, page, PAGE, (off_t)(m->length_ns / 1000) * PAGE) < 0)           \
				fail("read of the slow file");                                                    \
		}                                                                                                 \
		end_work(m);                                                                                      \
		if (m->next && !m->is_early)                                                                      \
			ask(m->next);                                                                             \
		if (m->next)                                                                                      \
			RECEIVE(m->next);                                                                         \
		give(m);                                                                                          \
	}

MEMBER(decode_shard)
MEMBER(fetch_shard)


MEMBER(unpack_record)
MEMBER(parse_header)

MEMBER(resize_frame)
MEMBER(merge_parts)



MEMBER(refill_cache)
MEMBER(verify_digest)

MEMBER(stage_block)
MEMBER(index_rows)
MEMBER(pad_tokens)

MEMBER(warp_image)

static void (*const functions[])(struct member *) = {
	decode_shard, fetch_shard,   unpack_record, parse_header, resize_frame, merge_parts,
	refill_cache, verify_digest, stage_block,   index_rows,   pad_tokens,   warp_image,
};
enum { FUNCTIONS = sizeof(functions) / sizeof(*functions), PRIORITY = -15 };

/* ---- threads and processes ---- */

static void *run_member(void *argument)
{
	struct member *m = argument;
	char name[2 * sizeof(m->name)];
	int number = atomic_load(&m->started);
	snprintf(name, sizeof(name), m->workers > 1 ? "%s_%d" : "%s", m->name, number);
	prctl(PR_SET_NAME, name);
	if (!m->chain->normal_priority)
		setpriority(PRIO_PROCESS, 0, PRIORITY); /* of this thread */
	atomic_store(&m->started, number + 1);
	for (;;) {
		if (m->means == BY_MUTEX) {
			pthread_mutex_lock(&m->mutex);
			sem_post(&m->holding);
		}
		if (!m->is_early)
			wait_until_asked(m);
		functions[m->function](m);
		while (m->means == BY_MUTEX && sem_wait(&m->taken))
			;
	}
	return NULL;
}

/* Starts the threads of a member in this process. Each one gets its number. */
static void start_threads(struct member *m)
{
	pthread_t thread;
	for (int i = 0; i < m->workers; i++) {
		if (pthread_create(&thread, NULL, run_member, m))
			fail("start of a thread");
		while (atomic_load(&m->started) <= i)
			sched_yield();
	}
}

/* Starts the members of this process after a member, which is not started. */
static void start_members_after(struct chain *c, int number)
{
	for (int i = number + 1; i < c->count && !c->members[i].is_process; i++)
		start_threads(&c->members[i]);
}

static void start_members(struct chain *c)
{
	for (int i = 0; i < c->count; i++) {
		struct member *m = &c->members[i];
		if (m->is_process && !start_child(-1)) {
			start_members_after(c, i);
			run_member(m);
		}
	}
	start_members_after(c, -1);
	for (int i = 0; i < c->count; i++)
		while (atomic_load(&c->members[i].started) < c->members[i].workers)
			sched_yield();
}

/* ---- what the seed draws ---- */

static enum means draw_means(struct loop *l, const struct fault *f, const struct member *m, bool first)
{
	static const enum means of_processes[] = {BY_PIPE, BY_SOCKET, BY_EVENTFD, BY_SEMAPHORE};
	if (f->kind == MUTEX_DISK)
		return BY_MUTEX;
	if (m->is_process)
		return of_processes[draw(l, 0, 3)];
	bool is_drawn = !first && draw(l, 0, 1);
	switch (is_drawn ? NONE : f->kind) {
	case CONDITION:
	case POOL: return BY_CONDITION;
	case QUEUE: return BY_QUEUE;
	case PIPE_CHAIN: return BY_PIPE;
	case FUTEX: return BY_FUTEX;
	default: return (enum means)draw(l, BY_CONDITION, BY_FUTEX);
	}
}

/* Opens what the means need. */
static void open_means(struct member *m)
{
	int fds[2] = {-1, -1};
	bool failed = false;
	switch (m->means) {
	case BY_PIPE: failed = pipe2(fds, O_CLOEXEC); break;
	case BY_SOCKET: failed = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds); break;
	case BY_EVENTFD:
		fds[0] = fds[1] = eventfd(0, EFD_CLOEXEC);
		failed = fds[0] < 0;
		break;
	default: break;
	}
	if (failed || sem_init(&m->given, 1, 0) || sem_init(&m->wanted, 1, 0) || sem_init(&m->taken, 1, 0) ||
	    sem_init(&m->holding, 1, 0))
		fail("connection of members");
	m->in = fds[0];
	m->out = fds[1];
	pthread_mutex_init(&m->mutex, NULL);
	pthread_cond_init(&m->changed, NULL);
	pthread_mutex_init(&m->jobs_lock, NULL);
	pthread_cond_init(&m->has_jobs, NULL);
}

static void draw_member(struct loop *l, struct fault *f, struct chain *c, int i)
{
	static const char *const names[] = {"fetch", "decode", "stage", "cache", "merge", "parse", "shard", "relay"};
	static bool used[FUNCTIONS];
	enum { NAMES = sizeof(names) / sizeof(*names) };
	struct member *m = &c->members[i];
	m->chain = c;
	m->next = i + 1 < c->count ? m + 1 : NULL;
	m->is_process = f->kind == PROCESSES && (i == 0 || draw(l, 0, 1));
	m->means = draw_means(l, f, m, i == 0);
	m->workers = f->kind == POOL && (i == 0 || draw(l, 0, 1)) ? draw(l, 2, WORKERS_MAX) : 1;
	do
		m->function = draw(l, 0, FUNCTIONS - 1);
	while (used[m->function]);
	used[m->function] = true;
	snprintf(m->name, sizeof(m->name), "%s-%d%d", names[draw(l, 0, NAMES - 1)], f->number, i);
	open_means(m);
}

/* Draws what members do: the last one does something, and the first one may compute before it waits. */
static void draw_work(struct loop *l, struct fault *f, struct chain *c)
{
	struct member *first = &c->members[0], *last = &c->members[c->count - 1];
	last->activity = f->kind == MUTEX_DISK ? READS_FILE : (enum activity)draw(l, SLEEPS, READS_FILE);
	last->least_ns = f->least_ns;
	last->most_ns = f->most_ns;
	int kind = draw(l, 0, 3); /* 0: two causes, 1: members wait early */
	if (c->count > 1 && kind == 0) {
		first->activity = SPINS;
		first->least_ns = (uint64_t)draw(l, 5, 8) * MS;
		first->most_ns = first->least_ns + (uint64_t)draw(l, 0, 2) * MS;
		last->least_ns -= first->least_ns;
		last->most_ns -= first->least_ns;
	}
	c->asked = first;
	if (kind != 1 || f->kind == MUTEX_DISK || f->kind == POOL)
		return;
	for (int i = 0; i + 1 < c->count; i++)
		c->members[i].is_early = true;
	c->asked = last;
}

struct chain *chain_start(struct loop *l, struct fault *f)
{
	struct chain *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c == MAP_FAILED)
		fail("shared memory");
	c->normal_priority = l->normal_priority;
	c->count = f->kind == MUTEX_DISK ? draw(l, 1, 3) : draw(l, 2, MEMBERS_MAX);
	for (int i = 0; i < c->count; i++)
		draw_member(l, f, c, i);
	draw_work(l, f, c);
	struct member *last = &c->members[c->count - 1];
	if (last->activity == READS_FILE) {
		start_server(f);
		c->file = f->file;
	}
	start_members(c);
	strcpy(f->owner, last->name);
	return c;
}

/* ---- one delay ---- */

void chain_prepare(struct loop *l, struct chain *c)
{
	for (int i = 0; i < c->count; i++) {
		struct member *m = &c->members[i];
		while (m->means == BY_MUTEX && sem_wait(&m->holding))
			;
		m->length_ns = (uint64_t)draw(l, (int)(m->least_ns / 1000), (int)(m->most_ns / 1000)) * 1000;
	}
}

void chain_ask(struct chain *c)
{
	ask(c->asked);
}

void chain_end(struct fault *f)
{
	struct chain *c = f->chain;
	for (int i = 0; i < c->count; i++) {
		struct member *m = &c->members[i];
		if (m->activity != NO_ACTIVITY)
			truth_end(f, m, i + 1);
		if (m->means == BY_MUTEX)
			sem_post(&m->taken);
	}
}
