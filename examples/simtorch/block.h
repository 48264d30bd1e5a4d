/* Blocks, the pools that hold free blocks, and expandable segments. */
#ifndef SIMTORCH_BLOCK_H
#define SIMTORCH_BLOCK_H

#include "c10.h"
#include "driver.h"
#include "flathash.h"

#include <optional>
#include <set>
#include <vector>

namespace c10::cuda::CUDACachingAllocator::Native {

struct BlockPool;
class ExpandableSegment;

/* A part of a segment. The blocks of a segment form a list ordered by address. Two free
 * neighbours are always merged. The members have the order of those of PyTorch 2.11. */
struct Block {
	DeviceIndex device;
	CUstream stream;               /* stream of the allocation */
	FlatHash<CUstream> stream_uses;
#ifdef SIMTORCH_SHIFTED
	int64_t unknown[2] = {};       /* an allocator of a version that recorders do not know */
#endif
	int registration_counter = -1; /* not used */
	size_t size, requested_size = 0;
	BlockPool *pool;
	char *ptr;
	bool allocated = false;
	/* False: address space of an expandable segment without memory. */
	bool mapped = true;
	Block *prev = nullptr, *next = nullptr;
	int event_count = 0;           /* events to wait for before the block is free */
	int64_t gc_count_base = 0;     /* not used */
	std::shared_ptr<GatheredContext> context_when_allocated, context_when_segment_allocated;
	ExpandableSegment *expandable = nullptr;

	Block(DeviceIndex device, CUstream stream, size_t size, BlockPool *pool, char *ptr)
		: device(device), stream(stream), size(size), pool(pool), ptr(ptr) {}

	bool is_split() const { return prev || next; }
	bool in_use() const { return allocated || event_count > 0 || !stream_uses.empty(); }
	void insert_between(Block *before, Block *after);
};

using Comparison = bool (*)(const Block *, const Block *);
bool by_size(const Block *a, const Block *b);
bool by_address(const Block *a, const Block *b);

struct PrivatePool;

/* Free blocks for requests of up to 1 MiB (small pool) or above (large pool). */
struct BlockPool {
	std::set<Block *, Comparison> blocks{by_size}, unmapped{by_address};
	bool is_small;
	PrivatePool *owner;
	int64_t get_free_blocks_call_count = 0; /* not used */

	BlockPool(bool is_small, PrivatePool *owner = nullptr) : is_small(is_small), owner(owner) {}
	MempoolId_t id() const;
};

struct PrivatePool {
	MempoolId_t id;
	int use_count = 1;             /* graphs and users; at 0 its memory may be released */
	int segments = 0;
	std::shared_ptr<void> allocator;        /* not used */
	BlockPool large_blocks{false, this}, small_blocks{true, this};

	explicit PrivatePool(MempoolId_t id) : id(id) {}
};

/* Address space whose pages are mapped on demand. A page has memory of its own: 2 MiB in the
 * small pool, 20 MiB in the large pool. */
class ExpandableSegment {
	int device;
	CUstream stream;
	size_t page, pages;
	CUdeviceptr base;
	std::vector<std::optional<CUmemGenericAllocationHandle>> handles;

public:
	struct Range {
		char *ptr;
		size_t size;
	};

	ExpandableSegment(int device, CUstream stream, size_t page, size_t needed);
	~ExpandableSegment();

	char *ptr() const { return reinterpret_cast<char *>(base); }
	size_t size() const { return pages * page; }
	Range map(Range wanted);       /* rounded up to pages; size 0: out of memory */
	Range unmap(Range given);      /* the whole pages inside; size 0: none */

private:
	void release(size_t begin, size_t end);
};

} // namespace c10::cuda::CUDACachingAllocator::Native

#endif
