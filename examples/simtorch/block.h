/* Blocks, the pools that hold free blocks, and expandable segments. */
#ifndef SIMTORCH_BLOCK_H
#define SIMTORCH_BLOCK_H

#include "c10.h"
#include "driver.h"
#include "flathash.h"
#include "layout.h"

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace c10::cuda::CUDACachingAllocator::Native {

class BlockPool;
class ExpandableSegment;

/* A part of a segment. The blocks of a segment form a list ordered by address. Two free
 * neighbours are always merged. The members are at the places of the layout, so an object on the
 * heap has layout.block.bytes. */
class Block {
	DeviceIndex device_;
	CUstream stream_;
	std::byte others[BLOCK_BYTES - 16];

public:
	Block(DeviceIndex device, CUstream stream, size_t size, BlockPool *pool, char *ptr);
	~Block() { std::destroy_at(&stream_uses()); }
	static void *operator new(size_t) { return ::operator new(layout.block.bytes); }
	static void operator delete(void *block) { ::operator delete(block); }

	CUstream stream() const { return stream_; } /* of the allocation */
	FlatHash<CUstream> &stream_uses() const { return member<FlatHash<CUstream>>(this, layout.block.stream_uses); }
	size_t size() const { return member<size_t>(this, layout.block.size); }
	size_t &requested_size() const { return member<size_t>(this, layout.block.requested_size); }
	BlockPool *pool() const { return member<BlockPool *>(this, layout.block.pool); }
	char *&ptr() const { return member<char *>(this, layout.block.ptr); }
	bool &allocated() const { return member<bool>(this, layout.block.allocated); }
	/* False: address space of an expandable segment without memory. */
	bool &mapped() const { return member<bool>(this, layout.block.allocated + 1); }
	Block *&prev() const { return member<Block *>(this, layout.block.prev); }
	Block *&next() const { return member<Block *>(this, layout.block.next); }
	/* Events to wait for before the block is free. */
	int &event_count() const { return member<int>(this, layout.block.event_count); }
	ExpandableSegment *&expandable() const { return member<ExpandableSegment *>(this, layout.block.expandable); }

	bool is_split() const { return prev() || next(); }
	bool in_use() const { return allocated() || event_count() > 0 || !stream_uses().empty(); }
	void insert_between(Block *before, Block *after);
	void set_size(size_t size);
};

using Comparison = bool (*)(const Block *, const Block *);
bool by_size(const Block *a, const Block *b);
bool by_address(const Block *a, const Block *b);

class PrivatePool;

/* Free blocks for requests of up to 1 MiB (small pool) or above (large pool). An object is at a
 * place with layout.pool.bytes. */
class BlockPool {
public:
	using Set = std::set<Block *, Comparison>;

	BlockPool(bool is_small, PrivatePool *owner);
	~BlockPool();

	Set &blocks() const { return member<Set>(this, layout.pool.blocks); }
	Set &unmapped() const { return member<Set>(this, layout.pool.unmapped); }
	bool is_small() const { return member<bool>(this, layout.pool.is_small); }
	PrivatePool *owner() const { return member<PrivatePool *>(this, layout.pool.owner); }
	MempoolId_t id() const;
};

/* An object has layout.private_pool.bytes. */
class PrivatePool {
public:
	const MempoolId_t id;
	int use_count = 1;             /* graphs and users; at 0 its memory may be released */
	int segments = 0;
	std::shared_ptr<void> allocator;        /* not used */

	explicit PrivatePool(MempoolId_t id);
	~PrivatePool();
	static void *operator new(size_t) { return ::operator new(layout.private_pool.bytes); }
	static void operator delete(void *pool) { ::operator delete(pool); }

	BlockPool &large_blocks() const { return member<BlockPool>(this, layout.private_pool.large_blocks); }
	BlockPool &small_blocks() const { return member<BlockPool>(this, layout.private_pool.small_blocks); }
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
