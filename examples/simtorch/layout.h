/* The places of the members that recorders read in the memory of the process. They are those of
 * PyTorch 2.11. SIMTORCH_LAYOUT=SEED draws others at random, as other versions might have them.
 * SIMTORCH_BROKEN=NAME breaks a rule that holds in every version: recorders must refuse it. */
#ifndef SIMTORCH_LAYOUT_H
#define SIMTORCH_LAYOUT_H

#include <cstddef>
#include <cstdint>
#include <vector>

/* The broken rules. README.md explains them. */
enum class Broken { NOTHING, TOTALS, KINDS, LOAD, SETS, HASH, STALE, CHAIN, CLASS, ASYNC, PLUGGABLE };

/* The content of a word that recorders do not know: the same in all objects, or drawn for each. */
enum class Content : uint8_t { ZERO, COUNTER, POINTER, SIZE, ANY };

struct UnknownWord {
	uint16_t offset;
	Content content;
};

enum : uint16_t {
	AREA_BYTES = (5 << 10) - 8,    /* of a device allocator, for pools and tables */
	NATIVE_BYTES = 32 << 10,       /* of the allocator, with the vector of device allocators */
	PRIVATE_POOL_HEAD = 40,        /* id and counters */
	PRIVATE_POOL_BYTES = 400,      /* at most */
	/* A place in a block that no recorder reads: no version has such large blocks. */
	HIDDEN = 1024,
	BLOCK_BYTES = HIDDEN + 8,      /* at most */
};

struct ObjectLayout {
	/* Never destroyed: programs allocate until the end of the process. */
	std::vector<UnknownWord> &unknown = *new std::vector<UnknownWord>;
};

/* The members have their offsets in bytes, and the size of the object. */
struct BlockLayout : ObjectLayout {
	uint16_t stream_uses = 16, registration_counter = 48, size = 56, requested_size = 64, pool = 72, ptr = 80, allocated = 88;
	uint16_t prev = 96, next = 104, event_count = 112, gc_count_base = 120, context_when_allocated = 128;
	uint16_t context_when_segment_allocated = 144, expandable = 160, bytes = 168;
	uint16_t stale_size = 0;       /* a copy of the size that is not always updated; 0: none */
};

struct BlockPoolLayout : ObjectLayout {
	uint16_t blocks, unmapped, is_small, owner, get_free_blocks_call_count, bytes;
};

struct PrivatePoolLayout : ObjectLayout {
	uint16_t large_blocks, small_blocks, bytes;
};

/* Offsets in the area of a DeviceCachingAllocator. */
struct DeviceLayout : ObjectLayout {
	uint16_t large_blocks, small_blocks, active_blocks, memory, graph_pools = 0x6b0;
};

struct NativeLayout : ObjectLayout {
	uint16_t device_allocator = 0x5838;
};

struct Layout {
	BlockLayout block;
	BlockPoolLayout pool;
	PrivatePoolLayout private_pool;
	DeviceLayout device;
	NativeLayout native;

	uint64_t seed = 0;             /* of a random layout */
	Broken broken = Broken::NOTHING;
	unsigned extra_active_bytes = 0; /* that the statistics count for each active block */
	float max_load = 0.5f;         /* most entries for each slot of a hash table */
	uint64_t hash_factor = 11400714819323198485ull; /* 2^64 divided by the golden ratio: Fibonacci hashing */

	Layout();                      /* reads the environment */
};

extern const Layout layout;

/* Returns the member of an object at an offset. */
template <typename T> T &member(const void *object, size_t offset)
{
	return *reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(object) + offset);
}

/* Writes unknown words of a new object. */
void write_unknown_words(const void *object, const std::vector<UnknownWord> &words);

#endif
