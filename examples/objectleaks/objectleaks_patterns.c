/* How tasks use their objects. */
#include "objectleaks.h"

const char *const pattern_names[PATTERN_COUNT] = {
#define X(pattern, name) [pattern] = name,
	PATTERNS(X)
#undef X
};

static uint64_t create(struct task *t) { return sites[t->site].create(t->kind); }

/* Creates objects, and destroys some of them at once. */
static void leak(struct task *t)
{
	for (int i = 0; i < t->size; i++) {
		uint64_t handle = create(t);
		if (i > 0)
			destroy(t->kind, handle);
	}
}

/* Fills a pool at an even rate. A full pool replaces its oldest object by a new one. */
static void fill(struct task *t, int step)
{
	int wanted = t->size * (step - t->from + 1) / (t->to - t->from);
	if (wanted > t->size)
		wanted = t->size;
	while (t->count < wanted)
		t->held[t->count++] = create(t);
	if (t->count == t->size && step % 7 == 0) {
		destroy(t->kind, t->held[t->next]);
		t->held[t->next] = create(t);
		t->next = (t->next + 1) % t->size;
	}
}

/* Looks up random keys. A miss creates an object, and destroys the oldest one if the cache is full. */
static void look_up(struct task *t)
{
	int key = below(t->keys);
	for (int i = 0; i < t->count; i++)
		if (t->key[i] == key)
			return;
	int at = t->count;
	if (t->count == t->size) {
		at = t->next;
		destroy(t->kind, t->held[at]);
		t->next = (t->next + 1) % t->size;
	} else {
		t->count++;
	}
	t->held[at] = create(t);
	t->key[at] = key;
}

/* Creates many objects in a few steps, and destroys some of them later. */
static void burst(struct task *t, int step)
{
	if (step < t->to && t->count < HELD_MAX - t->size)
		for (int i = 0; i < t->size; i++)
			t->held[t->count++] = create(t);
	if (step != t->to + 10)
		return;
	for (int i = 0; i < t->count; i++)
		if (below(100) >= t->kept)
			destroy(t->kind, t->held[i]);
	t->count = 0;
}

/* Creates an object in each step, and keeps the last few. */
static void each_step(struct task *t)
{
	if (t->count == t->size) {
		destroy(t->kind, t->held[t->next]);
		t->count--;
	}
	t->held[t->next] = create(t);
	t->next = (t->next + 1) % t->size;
	t->count++;
}

/* Creates objects in a context of its own, and destroys only the context. */
static void renew(struct task *t)
{
	CUcontext popped;
	if (t->context) {
		CUDA(cuCtxDestroy_v2, t->context);
		t->context = NULL;
	}
	t->context = worker_context();
	for (int i = 0; i < t->size; i++)
		create(t);
	CUDA(cuCtxPopCurrent_v2, &popped);
}

void run_task(struct task *t, int step)
{
	if (step < t->from || step % t->every)
		return;
	switch (t->pattern) {
	case LEAK: leak(t); break;
	case FILL: fill(t, step); break;
	case CACHE: look_up(t); break;
	case BURST: burst(t, step); break;
	case STEP: each_step(t); break;
	case RENEW: renew(t); break;
	case PATTERN_COUNT: break;
	}
}
