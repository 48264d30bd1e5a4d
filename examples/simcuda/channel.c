/*
 * Channels of contexts and streams. A context has CUDA_DEVICE_MAX_CONNECTIONS compute channels,
 * and new streams use them in turn. The legacy default stream and each copy engine have a channel
 * of their own. A channel begins with its first operation, and keeps its slot when its streams are
 * destroyed. With reuse=reset it ends then, and its slot serves a new channel.
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
	config.instant = false; /* operations of channels take time */
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

struct channel *channel_at(struct channel_context *of, enum channel_class class, int place)
{
	if (!of->places[class][place])
		of->places[class][place] = begin(of, class);
	return of->places[class][place];
}

static enum channel_class class_of(const struct queue *q)
{
	return q->high_priority ? COMPUTE_HIGH : COMPUTE;
}

static void choose(struct queue *q, struct channel_context *of)
{
	q->turn = (uint16_t)(of->streams[class_of(q)]++ % (uint32_t)channel_config.connections + 1);
}

void channel_choose(struct queue *q, struct object *context)
{
	if (!channels_on)
		return;
	pthread_mutex_lock(&channels_lock);
	choose(q, context_of(context));
	pthread_mutex_unlock(&channels_lock);
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
	if (c) {
		leave(q, lane->call->stream); /* a per-thread stream is used in several contexts */
		q->turn = 0;
	}
	struct channel_context *of = context_of(lane->context);
	if (q == &lane->context->ctx.legacy) {
		c = channel_at(of, COMPUTE_LEGACY, 0);
	} else {
		if (!q->turn)
			choose(q, of);
		c = channel_at(of, class_of(q), q->turn - 1);
	}
	c->streams++;
	q->channel = (uint16_t)(c - channels + 1);
	q->channel_number = c->number;
	works_channel("join", c, lane->call->stream);
	return c;
}

static void leave(struct queue *q, uint64_t stream)
{
	struct channel *c = joined(q);
	q->channel = 0;
	if (!c)
		return;
	c->streams--;
	works_channel("leave", c, stream);
	if (c->streams > 0 || channel_config.reuse == REUSE_KEEP)
		return;
	c->of->places[c->class][q->turn - 1] = NULL;
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

/* Ends the channels of a context after their last operation, and removes its mappings. */
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
