/* Submission: computes the start and the end of an operation, and gives it to the GPU thread. */
#include "channel.h"
#include "state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LATENCY_MIN_NS = 2000, LATENCY_MAX_NS = 10000, GAP_MIN_NS = 1000, GAP_MAX_NS = 3000 };
enum { COPY_LATE_MIN_NS = 300, COPY_LATE_MAX_NS = 1500, EARLY_NS = 300 };
enum { OVERHEAD_NS = 1000 /* of copies, sets and extra operations */, EVENT_MIN_NS = 300, EVENT_MAX_NS = 900 };

static uint64_t random_between(uint64_t from, uint64_t to)
{
	return from + random_below(to - from + 1);
}

/* Returns the mean duration of a kernel, which depends on its name and grid only. Durations are
 * spread evenly on a logarithmic scale. */
uint64_t channel_kernel_ns(const char *name, const uint32_t grid[3])
{
	const struct channel_config *c = &channel_config;
	uint64_t hash = 0;
	for (const char *p = name ? name : ""; *p; p++)
		hash = hash_mix(hash + (unsigned char)*p + 1);
	for (int i = 0; i < 3; i++)
		hash = hash_mix(hash + grid[i] + 1);
	double share = (double)(hash >> 11) / (double)(1ull << 53);
	return (uint64_t)(c->kernel_min_us * pow(c->kernel_max_us / c->kernel_min_us, share) * 1000);
}

static uint64_t duration_of(enum work_kind kind, uint64_t ns)
{
	switch (kind) {
	case WORK_EVENT: return random_between(EVENT_MIN_NS, EVENT_MAX_NS);
	case WORK_KERNEL: case WORK_GRAPH: break;
	default: ns += OVERHEAD_NS;
	}
	return (uint64_t)((double)ns * (1 + channel_config.jitter * (2 * random_unit() - 1)));
}

/* Returns a permanent copy of a kernel's name: its module may be unloaded before the operation ends. */
static const char *keep_name(const char *name)
{
	enum { BUCKETS = 1024 };
	struct entry { struct entry *next; char name[]; };
	static struct entry *buckets[BUCKETS];
	uint64_t hash = 0;
	if (!name)
		return NULL;
	for (const char *p = name; *p; p++)
		hash = hash * 31 + (unsigned char)*p;
	struct entry **bucket = &buckets[hash_mix(hash) % BUCKETS];
	for (struct entry *e = *bucket; e; e = e->next)
		if (!strcmp(e->name, name))
			return e->name;
	struct entry *e = malloc(sizeof(*e) + strlen(name) + 1);
	if (!e)
		return NULL;
	strcpy(e->name, name);
	e->next = *bucket;
	*bucket = e;
	return e->name;
}

static struct channel *channel_of_work(struct lane *lane, enum work_kind kind)
{
	struct channel *own = channel_of_queue(lane);
	int place = own->class == COMPUTE_LEGACY; /* its copies have channels of their own */
	if (kind == WORK_COPY_ANY)
		kind = random_below(2) ? WORK_COPY_SHORT : WORK_COPY_IN;
	switch (kind) {
	case WORK_COPY_IN: return channel_at(own->of, COPY_IN, place);
	case WORK_COPY_OUT: return channel_at(own->of, COPY_OUT, place);
	default: return own;
	}
}

/* Returns the channel of an operation, which has room for it and an extra one. While it has none,
 * the call waits, as the real driver does. */
static struct channel *wait_for_room(struct lane *lane, enum work_kind kind)
{
	for (;;) {
		struct channel *c = channel_of_work(lane, kind);
		if (c->len < QUEUE_MAX - 1)
			return c;
		uint64_t end = c->queue[c->first].end_ns;
		pthread_mutex_unlock(&channels_lock);
		wait_until(end);
		pthread_mutex_lock(&channels_lock);
	}
}

/* Sets the time at which the GPU writes the words of an operation, as seen on an H200: the words of a copy
 * engine follow the end of a copy, and those of a kernel with programmatic serialization the start of
 * the kernel before it. */
static void set_word(struct work *w, const struct channel *c, const struct queue *q, bool early, uint64_t earliest)
{
	w->word_ns = w->start_ns;
	if (c->class == COPY_IN || c->class == COPY_OUT)
		w->word_ns = time_add(w->end_ns, random_between(COPY_LATE_MIN_NS, COPY_LATE_MAX_NS));
	else if (early && c->last == q && w->kind == WORK_KERNEL)
		w->word_ns = time_later(earliest, time_add(c->word_ns, EARLY_NS));
}

static uint64_t submit(struct lane *lane, struct channel *c, struct work *w, uint64_t ns)
{
	struct queue *q = lane->queue;
	bool early = lane->call->early;
	uint64_t gap = random_between(GAP_MIN_NS, GAP_MAX_NS);
	uint64_t earliest = w->submitted_ns + random_between(LATENCY_MIN_NS, LATENCY_MAX_NS);
	w->channel = c;
	w->start_ns = time_later(earliest, time_add(time_later(c->until, q->until), gap));
	const struct gate *gate = &lane->call->gate;
	int device = c->of->memory.device;
	w->end_ns = gate->end && w->kind == WORK_KERNEL ? gate_open(gate, w->start_ns, device) : time_add(w->start_ns, ns);
	set_word(w, c, q, early, earliest);
	c->until = time_later(w->word_ns, w->end_ns);
	c->last = w->kind == WORK_KERNEL ? q : NULL;
	c->word_ns = w->word_ns;
	timeline_raise(&q->until, c->until);
	timeline_raise(&lane->context->ctx.until, c->until);
	if (w->end_ns < UNKNOWN_TIME)
		state_busy(device, w->start_ns, w->end_ns);
	gpu_push(w);
	return w->end_ns;
}

/* Some operations make the driver submit another one that no call shows. For matrix products the
 * other one can be on another channel. */
static void submit_extra(struct lane *lane, struct channel *c, const struct work *w)
{
	bool product = w->kind == WORK_KERNEL && w->kernel && strstr(w->kernel, "gemm");
	if (!product && w->kind != WORK_SET && w->kind != WORK_COPY_ON_DEVICE)
		return;
	if (random_unit() >= channel_config.extra)
		return;
	if (product) {
		struct channel *other = &channels[random_below((uint64_t)channels_len)];
		if (other->alive && !other->ending && other->of == c->of && other->class == COMPUTE && other->len < QUEUE_MAX)
			c = other;
	}
	struct work extra = {.kind = WORK_EXTRA, .call_ns = w->call_ns, .submitted_ns = w->submitted_ns, .tid = w->tid, .stream = w->stream};
	submit(lane, c, &extra, duration_of(WORK_EXTRA, 0));
}

uint64_t channel_enqueue(struct lane *lane, enum work_kind kind, uint64_t ns, struct slot *event)
{
	const struct call *call = lane->call;
	pthread_mutex_lock(&channels_lock);
	struct channel *c = wait_for_room(lane, kind);
	if (kind == WORK_COPY_SHORT || kind == WORK_COPY_ANY)
		kind = WORK_COPY_IN;
	struct work w = {
		.kind = kind, .event = event, .call_ns = call->start_ns, .submitted_ns = now_ns(), .tid = call->thread->tid, .stream = call->stream,
	};
	if (kind == WORK_KERNEL) {
		w.kernel = keep_name(call->kernel);
		memcpy(w.grid, call->grid, sizeof(w.grid));
	}
	submit(lane, c, &w, duration_of(kind, ns));
	submit_extra(lane, c, &w);
	uint64_t until = lane->queue->until;
	pthread_mutex_unlock(&channels_lock);
	return kind == WORK_EVENT ? w.end_ns : until;
}
