/*
 * Communicators. The object behind a handle has the layout of ncclComm in NCCL 2.28.9 for the fields
 * that recorders read. The other bytes are zero. The state of the simulation lies elsewhere, at the
 * pointer PRIVATE.
 */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x0280028002800280ull

struct layout {
	size_t hash, sequence, device, end; /* offsets of commHash, seqNumber, devComm and endMagic */
};
enum { PRIVATE = 64, COMMUNICATORS = 256 };

/* Offsets by version. odd is a build that no table has. */
static const struct { const char *name; struct layout layout; } layouts[] = {
	{"2.28", {1066184, 1075728, 1069096, 1082960}},
	{"2.26", {492720, 501008, 494456, 506744}},
	{"2.30", {1181416, 1191576, 1184344, 1199736}},
	{"odd", {1066512, 1076104, 1069480, 1083408}},
};
static const struct layout *layout = &layouts[0].layout;

/* NCCL's own list, under its name: recorders find the communicators by it. NULL is a free place, as in NCCL. */
static ncclComm_t *ncclComms;
static int nNcclComms; /* places */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void choose_layout(void)
{
	const char *name = getenv("SIMNCCL_LAYOUT");
	for (size_t i = 0; name && i < sizeof(layouts) / sizeof(*layouts); i++)
		if (!strcmp(name, layouts[i].name))
			layout = &layouts[i].layout;
}

static size_t object_bytes(void)
{
	return (layout->end + 8 + 4095) / 4096 * 4096;
}

static void *field(ncclComm_t handle, size_t offset)
{
	return (char *)handle + offset;
}

static void put64(ncclComm_t handle, size_t offset, uint64_t value)
{
	memcpy(field(handle, offset), &value, sizeof(value));
}

static void put32(ncclComm_t handle, size_t offset, int value)
{
	memcpy(field(handle, offset), &value, sizeof(value));
}

uint64_t hash_bytes(const void *bytes, size_t n)
{
	uint64_t hash = 5381;
	for (size_t i = 0; i < n; i++)
		hash = hash * 33 ^ ((const unsigned char *)bytes)[i];
	hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

struct communicator *communicator_of(ncclComm_t handle)
{
	struct communicator *c = NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < nNcclComms && handle && !c; i++)
		if (ncclComms[i] == handle)
			memcpy(&c, field(handle, PRIVATE), sizeof(c));
	pthread_mutex_unlock(&lock);
	return c;
}

static bool add_to_list(ncclComm_t handle)
{
	pthread_mutex_lock(&lock);
	if (!ncclComms && (ncclComms = calloc(COMMUNICATORS, sizeof(*ncclComms))))
		nNcclComms = COMMUNICATORS;
	int i = 0;
	while (i < nNcclComms && ncclComms[i])
		i++;
	bool room = i < nNcclComms;
	if (room)
		ncclComms[i] = handle;
	pthread_mutex_unlock(&lock);
	return room;
}

static void remove_from_list(ncclComm_t handle)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < nNcclComms; i++)
		if (ncclComms[i] == handle)
			ncclComms[i] = NULL;
	pthread_mutex_unlock(&lock);
}

/* Makes an object that has its magic words only, as NCCL does before it waits for other ranks. */
static struct communicator *object_new(void)
{
	struct communicator *c = calloc(1, sizeof(*c));
	void *at = mmap(NULL, object_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!c || at == MAP_FAILED) {
		free(c);
		return NULL;
	}
	c->handle = at;
	put64(c->handle, 0, MAGIC);
	put64(c->handle, layout->end, MAGIC);
	memcpy(field(c->handle, PRIVATE), &c, sizeof(c));
	if (add_to_list(c->handle))
		return c;
	munmap(at, object_bytes());
	free(c);
	return NULL;
}

ncclResult_t communicator_join(ncclComm_t *out, const char *name, uint64_t hash, int rank, int size)
{
	struct communicator *c = object_new();
	if (!c)
		return ncclSystemError;
	c->hash = hash;
	c->rank = rank;
	c->size = size;
	snprintf(c->name, sizeof(c->name), "%s", name);
	ncclResult_t result = driver_ready(&c->device);
	if (!result && driver.cuMemAlloc_v2(&c->device_communicator, 1 << 16))
		result = ncclUnhandledCudaError;
	if (!result && !(c->shared = shared_open(name)))
		result = ncclSystemError;
	if (result) {
		communicator_free(c);
		return result;
	}
	counter_add(&c->shared->joined);
	c->init.pending = true;
	*out = c->handle;
	return ncclSuccess;
}

ncclResult_t communicator_split(struct communicator *parent, int color, int key, ncclComm_t *out, struct communicator **child)
{
	struct communicator *c = object_new();
	if (!c)
		return ncclSystemError;
	uint32_t number = parent->splits++;
	struct split *split = &parent->shared->splits[number % SPLITS];
	split->ranks[parent->rank].color = color;
	split->ranks[parent->rank].key = key;
	counter_add(&split->entered);
	c->init.pending = true;
	c->init.parent = parent;
	c->init.split = number;
	c->init.color = color;
	*child = c;
	*out = color == NCCL_SPLIT_NOCOLOR ? NULL : c->handle;
	return ncclSuccess;
}

/* A shrink has a file and a hash that follow from its parent and the ranks that leave. */
ncclResult_t communicator_shrink(struct communicator *parent, const int *without, int n, ncclComm_t *out,
				 struct communicator **child)
{
	uint64_t keep = parent->size == RANKS_MAX ? UINT64_MAX : (1ull << parent->size) - 1;
	for (int i = 0; i < n; i++)
		if (without[i] >= 0 && without[i] < parent->size)
			keep &= ~(1ull << without[i]);
	uint64_t key[3] = {parent->hash, parent->shrinks++, keep}, hash = hash_bytes(key, sizeof(key));
	int rank = __builtin_popcountll(keep & ((1ull << parent->rank) - 1));
	char name[NAME_BYTES];
	snprintf(name, sizeof(name), "%016llx-shrink", (unsigned long long)hash);
	ncclResult_t result = communicator_join(out, name, hash, rank, __builtin_popcountll(keep));
	*child = result ? NULL : communicator_of(*out);
	return result;
}

void communicator_drain(struct communicator *c)
{
	while (c->open)
		usleep(200);
}

static bool before(const struct split *s, int a, int b)
{
	int key_a = s->ranks[a].key, key_b = s->ranks[b].key;
	return key_a < key_b || (key_a == key_b && a < b);
}

/* Waits until all ranks of the parent have called, then joins the ranks of the same color. */
static ncclResult_t finish_split(struct communicator *c)
{
	struct communicator *parent = c->init.parent;
	struct split *split = &parent->shared->splits[c->init.split % SPLITS];
	uint32_t rounds = c->init.split / SPLITS + 1;
	counter_wait(&split->entered, rounds * (uint32_t)parent->size, &parent->aborted);
	if (parent->aborted)
		return ncclInternalError;
	for (int r = 0; r < parent->size; r++) {
		if (split->ranks[r].color != c->init.color)
			continue;
		c->size++;
		c->rank += before(split, r, parent->rank);
	}
	if (c->init.color == NCCL_SPLIT_NOCOLOR) {
		communicator_free(c);
		return ncclSuccess;
	}
	uint64_t key[3] = {parent->hash, c->init.split, (uint64_t)(int64_t)c->init.color};
	c->hash = hash_bytes(key, sizeof(key));
	snprintf(c->name, sizeof(c->name), "%016llx-split", (unsigned long long)c->hash);
	ncclResult_t result = driver_ready(&c->device);
	if (!result && driver.cuMemAlloc_v2(&c->device_communicator, 1 << 16))
		result = ncclUnhandledCudaError;
	if (!result && !(c->shared = shared_open(c->name)))
		result = ncclSystemError;
	if (!result)
		counter_add(&c->shared->joined);
	return result;
}

ncclResult_t communicator_ready(struct communicator *c)
{
	bool leaves = c->init.color == NCCL_SPLIT_NOCOLOR && c->init.parent;
	ncclResult_t result = c->init.parent ? finish_split(c) : ncclSuccess;
	if (result || leaves)
		return result;
	put64(c->handle, layout->hash, c->hash);
	put32(c->handle, layout->hash + 8, c->rank);
	put32(c->handle, layout->hash + 12, c->size);
	counter_wait(&c->shared->joined, (uint32_t)c->size, &c->aborted);
	if (c->aborted)
		return ncclInternalError;
	put64(c->handle, layout->device, c->device_communicator);
	c->init.pending = false;
	if (c->rank == 0)
		shared_remove(c->name); /* all ranks have mapped it */
	return ncclSuccess;
}

void communicator_free(struct communicator *c)
{
	remove_from_list(c->handle);
	if (c->device_communicator)
		driver.cuMemFree_v2(c->device_communicator);
	if (c->shared)
		shared_close(c->shared);
	munmap(c->handle, object_bytes());
	free(c);
}

void communicator_count(struct communicator *c, enum function function)
{
	_Atomic uint64_t *counts = field(c->handle, layout->sequence);
	if (function < COUNTED)
		counts[function]++;
}
