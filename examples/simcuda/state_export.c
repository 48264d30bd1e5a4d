/* Exports: memory that processes share by number. IPC handles and shareable handles contain the
 * number. */
#include "state.h"

#include <unistd.h>

enum { CHANGING = -1 };

static bool alive(const struct state_export *e)
{
	int32_t pid = atomic_load(&e->pid);
	return pid == getpid() || (pid > 0 && process_start_ticks(pid) == atomic_load(&e->start_ticks));
}

static bool claim(struct state_export *e)
{
	int32_t pid = atomic_load(&e->pid);
	if (pid == CHANGING || (atomic_load(&e->id) && alive(e)))
		return false;
	return atomic_compare_exchange_strong(&e->pid, &pid, CHANGING);
}

uint64_t state_export(int device, uint64_t size)
{
	struct state *s = state_shared();
	for (int i = 0; s && i < STATE_EXPORTS; i++) {
		struct state_export *e = &s->exports[i];
		if (!claim(e))
			continue;
		uint64_t id = atomic_fetch_add(&s->last_export, 1) + 1;
		atomic_store(&e->start_ticks, process_start_ticks(getpid()));
		atomic_store(&e->device, (uint32_t)device);
		atomic_store(&e->size, size);
		atomic_store(&e->id, id);
		atomic_store(&e->pid, getpid());
		return id;
	}
	return 0;
}

static struct state_export *find(uint64_t id)
{
	struct state *s = state_shared();
	for (int i = 0; s && id && i < STATE_EXPORTS; i++)
		if (atomic_load(&s->exports[i].id) == id)
			return &s->exports[i];
	return NULL;
}

void state_unexport(uint64_t id)
{
	struct state_export *e = find(id);
	if (!e)
		return;
	atomic_store(&e->id, 0);
	atomic_store(&e->pid, 0);
}

bool state_exported(uint64_t id, pid_t *pid, int *device, uint64_t *size)
{
	struct state_export *e = find(id);
	if (!e || !alive(e))
		return false;
	*pid = atomic_load(&e->pid);
	*device = (int)atomic_load(&e->device);
	*size = atomic_load(&e->size);
	return true;
}
