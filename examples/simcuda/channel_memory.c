/*
 * Mappings of the device file. A context has several of several sizes. One of them has the slots,
 * at a place and in an order that change with every context. The rest is other data of a driver:
 * numbers, words that look like times, and decoys, which look like slots that move. One mapping
 * cannot be read, as the registers of a real GPU.
 */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAIRS_PER_PAGE = PAGE / sizeof(struct slot), NOISE_SHARE = 16, PLACE_TRIES = 64 };

static uint64_t random_state = 1;
static bool time_first; /* which of the two words the GPU writes first */

uint64_t hash_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t random_next(void)
{
	return hash_mix(random_state += 0x9e3779b97f4a7c15ull);
}

uint64_t random_below(uint64_t n)
{
	return random_next() % n;
}

double random_unit(void)
{
	return (double)(random_next() >> 11) / (double)(1ull << 53);
}

static void fail(const char *what)
{
	fprintf(stderr, "simcuda: error: %s: %m; SIMCUDA_CHANNELS needs the program devfiles\n", what);
	_exit(1);
}

static int open_device(const char *path, struct device_file *header)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX))
		fail(path);
	if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) || header->magic != DEVICE_FILE_MAGIC) {
		errno = ENODEV;
		fail(path);
	}
	return fd;
}

static void close_device(int fd)
{
	flock(fd, LOCK_UN); /* a mapping keeps the file open, and with it the lock */
	close(fd);
}

void slot_memory_open(struct device_file *header)
{
	close_device(open_device("/dev/nvidiactl", header));
	random_state = hash_mix(header->seed) + hash_mix((uint64_t)getpid());
	time_first = random_below(2);
}

void slot_memory_after_fork(void)
{
	random_state += hash_mix((uint64_t)getpid());
	noise_after_fork();
}

/* Takes bytes of the device file that no other process has, and returns their offset. */
static off_t take_bytes(int fd, struct device_file *header, size_t bytes)
{
	off_t at = (off_t)header->used;
	header->used += bytes;
	if (ftruncate(fd, (off_t)header->used) || pwrite(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header))
		fail("/dev/nvidiactl");
	return at;
}

/* Maps at a random low address, where the real driver puts its mappings. */
static void *map_low(int fd, off_t at, size_t bytes)
{
	for (int i = 0; i < PLACE_TRIES; i++) {
		void *wanted = (void *)(0x200000000ull + random_below(1 << 20) * PAGE);
		void *got = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, at);
		if (got == wanted)
			return got;
		if (got != MAP_FAILED)
			munmap(got, bytes);
	}
	fail("mmap");
	return NULL;
}

/* Registers are beyond the end of their file, so no process can read them. */
static char *map_bytes(struct slot_memory *m, size_t bytes, bool registers)
{
	const off_t far = 1ll << 40;
	struct device_file header;
	int fd = open_device(registers ? "/dev/nvidia0" : "/dev/nvidiactl", &header);
	char *start = map_low(fd, registers ? far : take_bytes(fd, &header, bytes), bytes);
	close_device(fd);
	m->mappings[m->mappings_len].start = start;
	m->mappings[m->mappings_len++].bytes = bytes;
	return start;
}

/* Fills one page with words of a driver. Some of them look like times of the last minute. */
static void fill_page(uint64_t *words, uint64_t now_gpu_ns)
{
	enum { MINUTE_S = 60 };
	for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
		switch (random_below(8)) {
		case 0: words[i] = random_below(1000); break;
		case 1: words[i] = random_next(); break;
		case 2: words[i] = 0x7f0000000000ull + random_below(1ull << 36); break;
		case 3:
			if (!random_below(8))
				words[i] = now_gpu_ns - random_below(MINUTE_S * 1000000000ull);
			break;
		default: break; /* 0 */
		}
	}
}

static void fill(char *start, size_t bytes, int device)
{
	uint64_t now = clock_gpu_ns(device, now_ns());
	for (size_t at = 0; at < bytes; at += PAGE)
		if (!random_below(NOISE_SHARE))
			fill_page((uint64_t *)(start + at), now);
}

/* Clears a page range of a mapping and returns it. */
static struct slot *clear_range(char *start, size_t bytes, size_t pairs)
{
	size_t range = pairs * sizeof(struct slot);
	char *at = start + random_below((bytes - range) / PAGE + 1) * PAGE;
	memset(at, 0, range);
	return (struct slot *)at;
}

static void shuffle_slots(struct slot_memory *m)
{
	for (int i = 0; i < SLOTS; i++) {
		int j = (int)random_below((uint64_t)i + 1);
		m->order[i] = m->order[j];
		m->order[j] = (uint16_t)i;
	}
}

/* Places decoys among the noise: pairs that change by themselves. */
static void place_decoys(struct slot_memory *m, char *start, size_t bytes)
{
	struct slot *page = clear_range(start, bytes, PAIRS_PER_PAGE);
	int step = PAIRS_PER_PAGE / (DECOYS + HEARTBEATS), at = 0;
	for (int i = 0; i < DECOYS; i++, at += step) {
		m->decoys[i] = &page[at + (int)random_below((uint64_t)step)];
		m->decoys[i]->counter = random_below(100000);
	}
	for (int i = 0; i < HEARTBEATS; i++, at += step)
		m->heartbeats[i] = &page[at + (int)random_below((uint64_t)step)];
}

void slot_memory_map(struct slot_memory *m, int device)
{
	enum { SLOT_MAPPING, DECOY_MAPPING, REGISTERS, KINDS = 8 };
	static const size_t sizes[KINDS] = {256 << 10, 1 << 20, 64 << 10, PAGE, 64 << 10, 2 << 20, 4 << 20, 128 << 10};
	int order[KINDS];
	*m = (struct slot_memory){.device = device};
	for (int i = 0; i < KINDS; i++) {
		int j = (int)random_below((uint64_t)i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	for (int i = 0; i < KINDS; i++) {
		size_t bytes = sizes[order[i]];
		bool registers = order[i] == REGISTERS;
		char *start = map_bytes(m, bytes, registers);
		if (registers)
			continue;
		fill(start, bytes, device);
		if (order[i] == SLOT_MAPPING && channel_config.slots)
			m->range = clear_range(start, bytes, SLOTS);
		if (order[i] == DECOY_MAPPING && channel_config.decoys)
			place_decoys(m, start, bytes);
	}
	if (!channel_config.slots)
		m->range = m->unmapped = calloc(SLOTS, sizeof(*m->range));
	if (!m->range)
		fail("slots");
	shuffle_slots(m);
	noise_add(m);
}

void slot_memory_unmap(struct slot_memory *m)
{
	noise_remove(m);
	for (int i = 0; i < m->mappings_len; i++)
		munmap(m->mappings[i].start, m->mappings[i].bytes);
	free(m->unmapped);
	*m = (struct slot_memory){0};
}

struct slot *slot_take(struct slot_memory *m)
{
	if (m->free_len > 0)
		return m->free_slots[--m->free_len];
	return m->given < SLOTS ? &m->range[m->order[m->given++]] : NULL;
}

void slot_give(struct slot_memory *m, struct slot *slot)
{
	atomic_store(&slot->counter, 0);
	atomic_store(&slot->gpu_ns, 0);
	if (m->free_len < CHANNELS_MAX)
		m->free_slots[m->free_len++] = slot;
}

struct slot *event_slot_take(struct slot_memory *m)
{
	if (m->free_event_len > 0)
		return m->free_event_slots[--m->free_event_len];
	return m->given < SLOTS - CHANNELS_MAX ? &m->range[m->order[m->given++]] : NULL;
}

void event_slot_give(struct slot_memory *m, struct slot *slot)
{
	m->free_event_slots[m->free_event_len++] = slot;
}

uint64_t slot_write(struct slot *slot, uint64_t counter, uint64_t gpu_ns)
{
	enum { TEAR_SHARE = 100 };
	_Atomic uint64_t *words[2] = {&slot->counter, &slot->gpu_ns};
	const uint64_t values[2] = {counter, gpu_ns};
	uint64_t from = now_ns();
	atomic_store_explicit(words[time_first], values[time_first], memory_order_release);
	if (channel_config.tear_ns && !random_below(TEAR_SHARE))
		for (uint64_t end = now_ns() + channel_config.tear_ns; now_ns() < end;)
			;
	atomic_store_explicit(words[!time_first], values[!time_first], memory_order_release);
	/* A reader can delay the second store, and see the first one meanwhile. */
	atomic_thread_fence(memory_order_seq_cst);
	return now_ns() - from;
}
