/* The driver's side of the shared state: one slot per process. */
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct state *shared;
static struct state_slot *own_slot;
/* Counters of a process that cannot use the state file. NVML does not see such a process. */
static struct state_slot private_slot;

struct state *state_shared(void)
{
	return shared;
}

static void retire(struct state_slot *slot)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		struct state_device *dev = &slot->devices[d];
		atomic_fetch_add(&shared->retired_busy_ns[d], atomic_load(&dev->busy_ns));
		memset(dev, 0, sizeof(*dev));
	}
}

void state_reap(void)
{
	if (!shared)
		return;
	uint32_t n = atomic_load(&shared->slots_used);
	for (uint32_t i = 0; i < n && i < STATE_SLOTS; i++) {
		struct state_slot *slot = &shared->slots[i];
		int32_t pid = atomic_load(&slot->pid);
		if (pid <= 0 || state_slot_alive(slot))
			continue;
		if (!atomic_compare_exchange_strong(&slot->pid, &pid, SLOT_CHANGING))
			continue;
		retire(slot);
		atomic_store(&slot->pid, SLOT_FREE);
	}
}

static struct state_slot *claim(void)
{
	for (uint32_t i = 0; i < STATE_SLOTS; i++) {
		struct state_slot *slot = &shared->slots[i];
		int32_t pid = SLOT_FREE;
		if (!atomic_compare_exchange_strong(&slot->pid, &pid, SLOT_CHANGING))
			continue;
		atomic_store(&slot->start_ticks, process_start_ticks(getpid()));
		atomic_store(&slot->pid, getpid());
		uint32_t used = atomic_load(&shared->slots_used);
		while (used < i + 1 && !atomic_compare_exchange_weak(&shared->slots_used, &used, i + 1))
			;
		return slot;
	}
	return NULL;
}

static struct state *map(const char *path)
{
	/* First open without O_CREAT: in a sticky directory, O_CREAT fails for another user's
	 * file (fs.protected_regular). */
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return NULL;
	struct state *s = NULL;
	struct stat st;
	if (!fstat(fd, &st) && (st.st_size >= (off_t)sizeof(*s) || !ftruncate(fd, sizeof(*s))))
		s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (!s || s == MAP_FAILED)
		return NULL;
	uint64_t magic = 0;
	if (atomic_compare_exchange_strong(&s->magic, &magic, STATE_MAGIC) || magic == STATE_MAGIC)
		return s;
	munmap(s, sizeof(*s));
	return NULL;
}

void state_join(const struct config *config)
{
	char path[64];
	snprintf(path, sizeof(path), STATE_DEFAULT_PATH "%u", (unsigned)getuid());
	const char *name = config->state ? config->state : path;
	own_slot = &private_slot;
	shared = map(name);
	if (!shared) {
		fprintf(stderr, "simcuda: warning: %s: not a state file or not writable; NVML will not see this process\n", name);
		return;
	}
	atomic_store(&shared->devices, (uint32_t)config->devices);
	atomic_store(&shared->memory, config->memory);
	state_reap();
	struct state_slot *slot = claim();
	if (slot)
		own_slot = slot;
	else
		fprintf(stderr, "simcuda: warning: %s: all %d slots taken; NVML will not see this process\n", name, STATE_SLOTS);
}

void state_leave(void)
{
	if (!shared || own_slot == &private_slot)
		return;
	struct state_slot *slot = own_slot;
	/* Threads that outlive the exit handlers update counters that NVML does not see. */
	own_slot = &private_slot;
	atomic_store(&slot->pid, SLOT_CHANGING);
	retire(slot);
	atomic_store(&slot->pid, SLOT_FREE);
}

/* The parent still uses the shared slot. */
void state_after_fork(void)
{
	shared = NULL;
	own_slot = &private_slot;
}

static void add_busy_time(struct state_device *d, uint64_t start, uint64_t end)
{
	if (end - start > (uint64_t)BUCKETS * BUCKET_NS)
		start = end - (uint64_t)BUCKETS * BUCKET_NS;
	while (start < end) {
		uint64_t epoch = start / BUCKET_NS, edge = (epoch + 1) * BUCKET_NS;
		uint64_t part = (edge < end ? edge : end) - start;
		_Atomic uint64_t *bucket = &d->buckets[epoch % BUCKETS];
		uint64_t old = atomic_load(bucket), new;
		do {
			uint64_t old_epoch = old >> BUCKET_BUSY_BITS;
			if (old_epoch > epoch)
				break; /* the bucket already has later work */
			new = old_epoch == epoch ? old + part : (epoch << BUCKET_BUSY_BITS) | part;
		} while (!atomic_compare_exchange_weak(bucket, &old, new));
		start += part;
	}
}

/* Adds busy time of a device. Work on parallel streams counts once: only time after the end of
 * earlier work is added. */
void state_busy(int device, uint64_t start, uint64_t end)
{
	struct state_device *d = &own_slot->devices[device];
	uint64_t until = atomic_load(&d->busy_until);
	do {
		if (end <= until)
			return;
	} while (!atomic_compare_exchange_weak(&d->busy_until, &until, end));
	if (start < until)
		start = until;
	atomic_fetch_add(&d->busy_ns, end - start);
	add_busy_time(d, start, end);
}

void state_used(int device, uint64_t bytes)
{
	atomic_store(&own_slot->devices[device].used, bytes);
}

void state_contexts(int device, int change)
{
	atomic_fetch_add(&own_slot->devices[device].contexts, (uint32_t)change);
}

uint64_t state_used_by_others(int device)
{
	uint64_t sum = 0;
	uint32_t n = shared ? atomic_load(&shared->slots_used) : 0;
	for (uint32_t i = 0; i < n && i < STATE_SLOTS; i++) {
		struct state_slot *slot = &shared->slots[i];
		if (slot != own_slot && atomic_load(&slot->pid) > 0)
			sum += atomic_load(&slot->devices[device].used);
	}
	return sum;
}
