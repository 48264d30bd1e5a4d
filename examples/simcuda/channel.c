/*
 * Channels of contexts and streams. A stream gets a compute channel at its first work: a new one
 * while its context has fewer than CUDA_DEVICE_MAX_CONNECTIONS, then one that other streams use
 * too. A context has one channel for each copy engine. The channel of a destroyed stream serves
 * the next new stream, or it ends and its slot serves a new channel.
 */
#include "channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t channels_lock;
struct channel channels[CHANNELS_MAX];
struct channel_context channel_contexts[CHANNEL_CONTEXTS_MAX];
int channels_len;
bool channels_on;

static uint32_t last_number;

static void fail(const char *what)
{
	fprintf(stderr, "simcuda: error: no more %s\n", what);
	_exit(1);
}

/* The GPU thread has a high priority, so a thread that holds the lock inherits it. */
static void init_lock(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&channels_lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

void channels_open(void)
{
	struct device_file file;
	channels_on = channel_config_read();
	if (!channels_on)
		return;
	config.instant = false; /* works of channels take time */
	init_lock();
	slot_memory_open(&file);
	clock_open(&file);
	works_open();
}

/* The child of a process that uses CUDA cannot use it. Another child opens its own channels. */
void channels_after_fork(void)
{
	if (!channels_on)
		return;
	init_lock();
	slot_memory_after_fork();
	works_after_fork();
	gpu_after_fork();
}

static struct channel_context *context_of(struct object *context)
{
	struct channel_context *unused = NULL;
	for (int i = 0; i < CHANNEL_CONTEXTS_MAX; i++) {
		struct channel_context *c = &channel_contexts[i];
		if (c->context == context)
			return c;
		if (!c->context && !unused)
			unused = c;
	}
	if (!unused)
		fail("contexts with channels");
	unused->context = context;
	slot_memory_map(&unused->memory, context->ctx.device->ordinal);
	works_clock(context->ctx.device->ordinal);
	return unused;
}

static struct channel *unused_channel(void)
{
	for (int i = 0; i < channels_len; i++)
		if (!channels[i].alive)
			return &channels[i];
	if (channels_len == CHANNELS_MAX)
		fail("channels");
	return &channels[channels_len++];
}

static struct channel *begin(struct channel_context *of, enum channel_class class)
{
	struct channel *c = unused_channel();
	struct work *queue = c->queue ? c->queue : malloc(QUEUE_MAX * sizeof(*queue));
	struct slot *slot = slot_take(&of->memory);
	if (!queue || !slot)
		fail(queue ? "slots" : "host memory");
	*c = (struct channel){.class = class, .alive = true, .number = ++last_number, .slot = slot, .of = of, .queue = queue};
	works_channel("begin", c, 0);
	return c;
}

void channel_end(struct channel *c)
{
	works_channel("end", c, 0);
	slot_give(&c->of->memory, c->slot);
	c->alive = false;
	c->len = 0;
}

struct channel *channel_of_class(struct channel_context *of, enum channel_class class)
{
	if (!of->copies[class])
		of->copies[class] = begin(of, class);
	return of->copies[class];
}

/* Returns a channel for a new stream: one without streams, a new one, or the least used one. */
static struct channel *choose(struct channel_context *of, enum channel_class class)
{
	struct channel *least = NULL;
	int n = 0;
	for (int i = 0; i < channels_len; i++) {
		struct channel *c = &channels[i];
		if (!c->alive || c->ending || c->of != of || c->class != class)
			continue;
		n++;
		if (!least || c->streams < least->streams)
			least = c;
	}
	return least && (!least->streams || n >= channel_config.connections) ? least : begin(of, class);
}

/* Returns the channel that the queue submits to, or NULL if it has none or its context ended. */
static struct channel *joined(const struct queue *q)
{
	struct channel *c = q->channel ? &channels[q->channel - 1] : NULL;
	return c && c->alive && c->number == q->channel_number ? c : NULL;
}

static void leave(struct queue *q, uint64_t stream);

struct channel *channel_of_queue(struct lane *lane)
{
	struct queue *q = lane->queue;
	struct channel *c = joined(q);
	if (c && c->of->context == lane->context)
		return c;
	leave(q, lane->call->stream); /* a per-thread stream is used in several contexts */
	c = choose(context_of(lane->context), q->high_priority ? COMPUTE_HIGH : COMPUTE);
	c->streams++;
	q->channel = (uint16_t)(c - channels + 1);
	q->channel_number = c->number;
	works_channel("join", c, lane->call->stream);
	return c;
}

static bool ends_with_stream(const struct channel *c)
{
	if (c->streams > 0)
		return false;
	return channel_config.reuse == REUSE_RESET || (channel_config.reuse == REUSE_MIX && random_below(2));
}

static void leave(struct queue *q, uint64_t stream)
{
	struct channel *c = joined(q);
	q->channel = 0;
	if (!c)
		return;
	c->streams--;
	works_channel("leave", c, stream);
	if (!ends_with_stream(c))
		return;
	c->ending = true;
	if (!c->len)
		channel_end(c);
}

void channel_leave(struct queue *q, uint64_t stream)
{
	if (!channels_on)
		return;
	pthread_mutex_lock(&channels_lock);
	leave(q, stream);
	pthread_mutex_unlock(&channels_lock);
}

struct slot *channel_event_slot(struct object *context)
{
	if (!channels_on)
		return NULL;
	pthread_mutex_lock(&channels_lock);
	struct slot *slot = event_slot_take(&context_of(context)->memory);
	pthread_mutex_unlock(&channels_lock);
	return slot;
}

void channel_event_slot_give(struct object *context, struct slot *slot)
{
	if (!slot)
		return;
	pthread_mutex_lock(&channels_lock);
	event_slot_give(&context_of(context)->memory, slot);
	pthread_mutex_unlock(&channels_lock);
}

/* Ends the channels of a context after their last work, and removes its mappings. */
void channels_of_context_end(struct object *context)
{
	if (!channels_on)
		return;
	wait_until(context->ctx.until);
	pthread_mutex_lock(&channels_lock);
	for (int i = 0; i < CHANNEL_CONTEXTS_MAX; i++) {
		struct channel_context *of = &channel_contexts[i];
		if (of->context != context)
			continue;
		for (int j = 0; j < channels_len; j++)
			if (channels[j].alive && channels[j].of == of)
				channel_end(&channels[j]);
		slot_memory_unmap(&of->memory);
		*of = (struct channel_context){0};
	}
	context->ctx.legacy.channel = 0;
	pthread_mutex_unlock(&channels_lock);
}
