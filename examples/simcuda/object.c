/* The slab that holds the objects behind all handles. */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { OBJECT_BYTES = 128, OBJECTS_MAX = 1 << 20 };

/* Each cell has two cache lines, so streams of different threads never share a line. */
union cell {
	struct object object;
	char bytes[OBJECT_BYTES];
};
_Static_assert(sizeof(union cell) == OBJECT_BYTES, "a cell has OBJECT_BYTES");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Address space for all cells. Pages get memory when they are first used. */
static union cell *slab;
static _Atomic size_t slab_len;
static struct object *free_list;

bool objects_init(void)
{
	void *at = mmap(NULL, sizeof(union cell) * OBJECTS_MAX, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	slab = at == MAP_FAILED ? NULL : at;
	return slab != NULL;
}

struct object *object_new(enum kind kind, struct object *context)
{
	struct object *o = NULL;
	pthread_mutex_lock(&lock);
	if (free_list) {
		o = free_list;
		free_list = o->next;
	} else if (slab_len < OBJECTS_MAX) {
		o = &slab[slab_len].object;
		slab_len++;
	}
	if (o) {
		o->name = NULL;
		o->next = NULL;
		/* objects_of_context may read it concurrently */
		atomic_store_explicit(&o->context, context, memory_order_relaxed);
		/* Clear everything after the common head: the cell may have held another object. */
		for (char *p = (char *)&o->ctx; p < (char *)o + sizeof(*o); p++)
			*p = 0;
		atomic_store_explicit(&o->kind, (uint32_t)kind, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return o;
}

struct object *object_of(const void *handle, enum kind kind)
{
	uintptr_t at = (uintptr_t)handle, start = (uintptr_t)slab;
	if (!handle || at < start || at >= start + sizeof(union cell) * slab_len || (at - start) % sizeof(union cell))
		return NULL;
	struct object *o = (struct object *)at;
	return atomic_load_explicit(&o->kind, memory_order_acquire) == (uint32_t)kind ? o : NULL;
}

void object_free(struct object *o)
{
	pthread_mutex_lock(&lock);
	enum kind kind = (enum kind)atomic_exchange(&o->kind, FREE_OBJECT);
	free(o->name);
	o->name = NULL;
	/* Do not reuse a context's cell: other threads may still have the destroyed context as
	 * current. */
	if (kind != CONTEXT && kind != FREE_OBJECT) {
		o->next = free_list;
		free_list = o;
	}
	pthread_mutex_unlock(&lock);
}

void objects_of_context(struct object *context, void (*visit)(struct object *))
{
	size_t n = slab_len;
	for (size_t i = 0; i < n; i++) {
		struct object *o = &slab[i].object;
		if (atomic_load(&o->kind) != FREE_OBJECT && o->context == context)
			visit(o);
	}
}
