/* The caching allocator of one device. Its functions have PyTorch's names, because stacks show
 * them. */
#ifndef SIMTORCH_ALLOCATOR_H
#define SIMTORCH_ALLOCATOR_H

#include "block.h"
#include "ledger.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

/* Marks a function that must appear as a stack frame, as in PyTorch's library. */
#define FRAME __attribute__((noinline))

namespace c10::cuda::CUDACachingAllocator::Native {

using CachingDeviceAllocator::DeviceStats;
using CachingDeviceAllocator::StatArray;
using TRACE_NAMESPACE::TraceEntry;

/* Returns true for PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. */
bool expandable_segments();

struct OutOfMemoryError : std::runtime_error {
	using runtime_error::runtime_error;
};

enum : size_t {
	kMinBlockSize = 512,          /* granularity of block sizes, bytes */
	kSmallSize = 1 << 20,         /* largest request of the small pool, bytes */
	kSmallBuffer = 2 << 20,       /* segment size of the small pool, bytes */
	kLargeBuffer = 20 << 20,      /* segment shared by requests of the large pool, bytes */
	kMinLargeAlloc = 10 << 20,    /* smallest request with a segment of its own, bytes */
	kRoundLarge = 2 << 20,
};

/* An allocation request and the block found for it. */
struct AllocParams {
	size_t size;
	CUstream stream;
	BlockPool *pool;
	size_t alloc_size;
	Block *block = nullptr;
};

/* The limit of reserved bytes. */
struct MemoryLimit {
	size_t total_allocated_memory = 0;             /* reserved bytes */
	std::optional<size_t> allowed_memory_maximum;
};

/* What recorders see of an allocator with SIMTORCH_BROKEN=kinds: a copy of the statistics, with a
 * fourth kind of pools that is not used. The area has the pools and tables themselves. */
struct WideHead {
	std::recursive_mutex mutex;                    /* always free */
	std::array<std::array<CachingDeviceAllocator::Stat, CachingDeviceAllocator::STAT_TYPES + 1>, 9> stats;
	alignas(8) std::byte area[AREA_BYTES] = {};
};

class DeviceCachingAllocator {
	/* As in PyTorch: recorders and probes read them. */
	mutable std::recursive_mutex mutex;
	DeviceStats stats;
	DeviceIndex device_id;
	/* Has the members that recorders read, at the places of the layout. */
	alignas(8) std::byte own_area[AREA_BYTES] = {};

	std::unique_ptr<WideHead> wide_head;           /* NULL, except for SIMTORCH_BROKEN=kinds */
	std::byte *area = own_area;
	BlockPool &large_blocks = member<BlockPool>(area, layout.device.large_blocks);
	BlockPool &small_blocks = member<BlockPool>(area, layout.device.small_blocks);
	/* allocated, or still in use by a stream */
	FlatHash<Block *> &active_blocks = member<FlatHash<Block *>>(area, layout.device.active_blocks);
	MemoryLimit &memory = member<MemoryLimit>(area, layout.device.memory);
	using GraphPools = FlatHash<std::pair<MempoolId_t, std::unique_ptr<PrivatePool>>>;
	GraphPools &graph_pools = member<GraphPools>(area, layout.device.graph_pools);

	std::map<CUstream, std::deque<std::pair<CUevent, Block *>>> cuda_events;
	std::vector<CUevent> idle_events;
	std::vector<std::unique_ptr<ExpandableSegment>> segments_;

	/* Active redirections to private pools: the filter selects streams. The last match wins. */
	using Filter = std::function<bool(CUstream)>;
	std::vector<std::pair<MempoolId_t, Filter>> captures_underway;
	std::map<MempoolId_t, PrivatePool *> graph_pools_freeable;
	/* Freed during a capture, when events cannot be used. */
	std::vector<Block *> deferred_blocks;
	std::map<Block *, std::set<CUstream>> block_to_cudagraph_stream_uses;

	/* PyTorch's memory history, always off in simtorch. */
	bool record_history = false;
	std::vector<std::function<void(TraceEntry::Action, uint64_t, size_t, CUstream, DeviceIndex)>> trace_trackers_;

public:
	explicit DeviceCachingAllocator(DeviceIndex device);
	const void *head() const;      /* the object that recorders see */

	Block *malloc(size_t orig_size, CUstream stream);
	void free(Block *block);
	void recordStream(Block *block, CUstream stream);
	void emptyCache(MempoolId_t pool);
	void snapshot();
	void setMemoryFraction(double fraction);
	DeviceIndex device() const { return device_id; }

	void createOrIncrefPool(MempoolId_t id);
	void beginAllocateToPool(MempoolId_t id, Filter filter);
	void endAllocateToPool(MempoolId_t id);
	void releasePool(MempoolId_t id);

	void checkpoint();             /* writes a line to the ledger */
	int64_t stat(const char *name);
	void verify();                 /* throws if statistics and blocks disagree */

private:
	void process_events();
	void insert_events(Block *block);
	void insert_events_deferred_until_no_capture();
	void synchronize_and_free_events(PrivatePool *pool = nullptr);
	CUevent create_event_internal();

	BlockPool &get_pool(size_t size, CUstream stream);
	bool get_free_block(AllocParams &p);
	Block *alloc_found_block(const AllocParams &p, size_t orig_size, bool split);
	void free_block(Block *block);
	size_t try_merge_blocks(Block *dst, Block *src, BlockPool &pool);
	PrivatePool &private_pool(MempoolId_t id);
	[[noreturn]] void out_of_memory(const AllocParams &p);

	bool alloc_block(AllocParams &p, bool is_retry);
	Block *try_allocate_expandable_block(CUstream stream, BlockPool *pool, size_t size);
	Block *find_expandable_block(CUstream stream, BlockPool *pool, size_t size);
	bool map_block(Block *block, size_t size);
	void unmap_block(Block *block);
	bool release_cached_blocks(MempoolId_t pool);
	void release_blocks(BlockPool &pool);
	void release_block(Block *block);
	void release_expandable_segment(Block *block);

	void increase(StatArray &stat, const BlockPool &pool, size_t amount);
	void decrease(StatArray &stat, const BlockPool &pool, size_t amount);
	void copy_to_wide_head(const StatArray &stat);

	void record_trace(TraceEntry::Action action, TRACE_ADDRESS addr, size_t size, CUstream stream, DeviceIndex device,
			  TRACE_POOL(MempoolId_t mempool_id) std::shared_ptr<GatheredContext> context);
	void trace(TraceEntry::Action action, uint64_t addr, size_t size, CUstream stream, DeviceIndex device, MempoolId_t pool,
		   size_t block_size);
	void trace(TraceEntry::Action action, const Block *block, size_t size)
	{
		trace(action, (uint64_t)block->ptr(), size, block->stream(), device_id, block->pool()->id(), block->size());
	}
	void report(void *ptr, int64_t bytes);
};

/* Calls record_trace and writes its ledger line. Always inlined, so that it adds no stack frame. */
[[gnu::always_inline]] inline void DeviceCachingAllocator::trace(TraceEntry::Action action, uint64_t addr, size_t size,
								 CUstream stream, DeviceIndex device, MempoolId_t pool,
								 size_t block_size)
{
	ledger::Event event = {.start_ns = ledger::now(), .end_ns = 0, .action = action, .ptr = addr, .bytes = size,
			       .stream = (uint64_t)stream, .device = device, .pool = pool,
			       .allocated_bytes = stats.allocated_bytes[0].current,
			       .reserved_bytes = stats.reserved_bytes[0].current, .block_bytes = block_size};
	record_trace(action, (TRACE_ADDRESS)addr, size, stream, device, TRACE_POOL(pool) nullptr);
	event.end_ns = ledger::now();
	ledger::write_event(event);
}

/* Calls reportMemoryUsageToProfiler and writes its ledger line. The statistics are loaded from
 * the object into the argument registers, as in PyTorch: a recorder can find their offsets
 * there. */
[[gnu::always_inline]] inline void DeviceCachingAllocator::report(void *ptr, int64_t bytes)
{
	uint64_t start_ns = ledger::now();
	reportMemoryUsageToProfiler(ptr, bytes, (size_t)stats.allocated_bytes[0].current, (size_t)stats.reserved_bytes[0].current,
				    {DeviceType::CUDA, device_id});
	ledger::write_usage({.start_ns = start_ns, .end_ns = ledger::now(), .ptr = (uint64_t)ptr, .bytes = bytes,
			     .allocated_bytes = (uint64_t)stats.allocated_bytes[0].current,
			     .reserved_bytes = (uint64_t)stats.reserved_bytes[0].current, .device = device_id});
}

} // namespace c10::cuda::CUDACachingAllocator::Native

#endif
