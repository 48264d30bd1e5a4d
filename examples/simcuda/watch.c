#include "watch.h"

#include "state.h"

#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* State files, one per user who ran CUDA. Like the real NVML, the library sees the processes of
 * all users. */
enum { FILES_MAX = 16, WINDOW = 15 /* buckets: 150 ms */ };

static struct watched {
	dev_t dev;
	ino_t ino;
	const struct state *state;
} files[FILES_MAX];
static int files_len;
static struct config config;

static void watch_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0)
		return;
	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct state) || files_len == FILES_MAX)
		goto out;
	for (int i = 0; i < files_len; i++)
		if (files[i].dev == st.st_dev && files[i].ino == st.st_ino)
			goto out;
	const struct state *s = mmap(NULL, sizeof(*s), PROT_READ, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		goto out;
	if (atomic_load(&s->magic) == STATE_MAGIC)
		files[files_len++] = (struct watched){st.st_dev, st.st_ino, s};
	else
		munmap((void *)(uintptr_t)s, sizeof(*s));
out:
	close(fd);
}

void watch_open(void)
{
	if (config.devices == 0)
		config_read(&config);
	if (config.state) {
		watch_file(config.state);
		return;
	}
	glob_t found;
	if (!glob(STATE_DEFAULT_PATH "*", 0, NULL, &found))
		for (size_t i = 0; i < found.gl_pathc; i++)
			watch_file(found.gl_pathv[i]);
	globfree(&found);
}

void watch_close(void)
{
	for (int i = 0; i < files_len; i++)
		munmap((void *)(uintptr_t)files[i].state, sizeof(struct state));
	files_len = 0;
	config = (struct config){0}; /* the next nvmlInit may read a different environment */
}

int watch_devices(void)
{
	int n = 0;
	for (int i = 0; i < files_len; i++) {
		int here = (int)atomic_load(&files[i].state->devices);
		n = here > n && here <= MAX_DEVICES ? here : n;
	}
	return config.devices_given || n == 0 ? config.devices : n;
}

static uint64_t memory(void)
{
	uint64_t bytes = 0;
	for (int i = 0; i < files_len; i++) {
		uint64_t here = atomic_load(&files[i].state->memory);
		bytes = here > bytes ? here : bytes;
	}
	return config.memory_given || bytes == 0 ? config.memory : bytes;
}

/* Returns the busy time of one process in the last complete buckets, ns. Excludes the current
 * bucket. */
static uint64_t busy_lately(const struct state_device *d, uint64_t now)
{
	uint64_t sum = 0, current = now / BUCKET_NS;
	for (uint64_t epoch = current - WINDOW; epoch < current; epoch++) {
		uint64_t bucket = atomic_load(&d->buckets[epoch % BUCKETS]);
		uint64_t of = bucket >> BUCKET_BUSY_BITS;
		if (of == epoch)
			sum += bucket & ((1u << BUCKET_BUSY_BITS) - 1);
		else if (of > epoch)
			/* Work queued seconds ahead has overwritten the bucket, so the device
			 * was busy throughout. */
			sum += BUCKET_NS;
	}
	return sum;
}

static void add_slot(const struct state_slot *slot, int device, uint64_t now, struct device_use *use, struct process_use *list,
		     int max)
{
	const struct state_device *d = &slot->devices[device];
	int32_t pid = atomic_load(&slot->pid);
	if (pid == SLOT_FREE || pid == SLOT_CHANGING)
		return;
	use->busy_ns += state_busy_done(d, now);
	if (!state_slot_alive(slot))
		return;
	uint64_t used = atomic_load(&d->used);
	use->used += used;
	double busy = (double)busy_lately(d, now) / ((double)WINDOW * BUCKET_NS);
	use->busy += busy;
	if (atomic_load(&d->contexts) == 0)
		return;
	if (use->processes < max)
		list[use->processes] = (struct process_use){(uint32_t)pid, used, busy < 1 ? busy : 1};
	use->processes++;
}

void watch_device(int device, struct device_use *use, struct process_use *list, int max)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
	memset(use, 0, sizeof(*use));
	use->memory = memory();
	for (int i = 0; i < files_len; i++) {
		const struct state *s = files[i].state;
		uint32_t n = atomic_load(&s->slots_used);
		use->busy_ns += atomic_load(&s->retired_busy_ns[device]);
		for (uint32_t slot = 0; slot < n && slot < STATE_SLOTS; slot++)
			add_slot(&s->slots[slot], device, now, use, list, max);
	}
	if (use->busy > 1)
		use->busy = 1;
}
