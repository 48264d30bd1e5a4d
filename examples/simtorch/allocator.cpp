/* Allocation and free: best fit among the free blocks of the stream, splitting and merging. The
 * order of record_trace calls and statistics updates is exactly that of PyTorch's source. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static size_t round_size(size_t size)
{
	return size < kMinBlockSize ? kMinBlockSize : round_up(size, kMinBlockSize);
}

static size_t get_allocation_size(size_t size)
{
	if (size <= kSmallSize)
		return kSmallBuffer;
	return size < kMinLargeAlloc ? kLargeBuffer : round_up(size, kRoundLarge);
}

bool expandable_segments()
{
	static const bool on = [] {
		const char *conf = getenv("PYTORCH_CUDA_ALLOC_CONF");
		return conf && std::string(conf).find("expandable_segments:True") != std::string::npos;
	}();
	return on;
}

/* Returns true if the rest of the block becomes a free block of its own. A small rest of a large
 * block stays with the block: it wastes less than it would fragment. */
static bool should_split(const Block *block, size_t size)
{
	size_t remaining = block->size() - size;
	if (block->pool()->is_small() || expandable_segments())
		return remaining >= kMinBlockSize;
	return remaining > kSmallSize;
}

DeviceCachingAllocator::DeviceCachingAllocator(DeviceIndex device)
	: device_id(device), wide_head(layout.broken == Broken::KINDS ? new WideHead : nullptr), area(wide_head ? wide_head->area : own_area)
{
	new (&large_blocks) BlockPool(false, nullptr);
	new (&small_blocks) BlockPool(true, nullptr);
	new (&active_blocks) FlatHash<Block *>;
	new (&memory) MemoryLimit;
	new (&graph_pools) GraphPools;
	write_unknown_words(area, layout.device.unknown);
}

const void *DeviceCachingAllocator::head() const
{
	return wide_head ? static_cast<const void *>(wide_head.get()) : this;
}

FRAME Block *DeviceCachingAllocator::malloc(size_t orig_size, CUstream stream)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	driver_use(device_id);
	/* Events must not be queried during a capture. */
	if (captures_underway.empty())
		process_events();
	size_t size = round_size(orig_size);
	AllocParams p = {size, stream, &get_pool(size, stream), get_allocation_size(size)};
	bool found = get_free_block(p) || alloc_block(p, false) ||
		     (captures_underway.empty() && release_cached_blocks({0, 0}) && alloc_block(p, true));
	if (!found)
		out_of_memory(p);
	return alloc_found_block(p, orig_size, should_split(p.block, size));
}

void DeviceCachingAllocator::setMemoryFraction(double fraction)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	memory.allowed_memory_maximum = (size_t)(fraction * (double)driver_memory(device_id));
}

[[gnu::always_inline]] inline void DeviceCachingAllocator::out_of_memory(const AllocParams &p)
{
	size_t device_free, device_total;
	CU(cuMemGetInfo_v2, &device_free, &device_total);
	trace(TraceEntry::OOM, device_free, p.size, p.stream, device_id, p.pool->id(), 0);
	stats.num_ooms++;
	throw OutOfMemoryError("CUDA out of memory. Tried to allocate " + std::to_string(p.alloc_size) + " bytes");
}

BlockPool &DeviceCachingAllocator::get_pool(size_t size, CUstream stream)
{
	bool small = size <= kSmallSize;
	for (auto it = captures_underway.rbegin(); it != captures_underway.rend(); ++it) {
		if (it->second(stream)) {
			PrivatePool &pool = private_pool(it->first);
			return small ? pool.small_blocks() : pool.large_blocks();
		}
	}
	return small ? small_blocks : large_blocks;
}

bool DeviceCachingAllocator::get_free_block(AllocParams &p)
{
	auto &blocks = p.pool->blocks();
	Block key(device_id, p.stream, p.size, nullptr, nullptr);
	auto it = blocks.lower_bound(&key);
	if (it == blocks.end() || (*it)->stream() != p.stream)
		return false;
	/* A free block followed by unmapped pages counts with those pages, so best fit takes it
	 * last. */
	auto can_become = [](const Block *b) { return b->size() + (b->next() && !b->next()->mapped() ? b->next()->size() : 0); };
	if (expandable_segments()) {
		for (auto next = std::next(it); next != blocks.end() && (*next)->stream() == p.stream &&
						can_become(*next) < can_become(*it); ++next)
			it = next;
	}
	p.block = *it;
	blocks.erase(it);
	return true;
}

FRAME Block *DeviceCachingAllocator::alloc_found_block(const AllocParams &p, size_t orig_size, bool split)
{
	Block *block = p.block;
	BlockPool &pool = *p.pool;
	bool already_split = block->is_split(), counted = !block->expandable();
	if (split) {
		Block *remaining = block;
		block = new Block(device_id, p.stream, p.size, &pool, remaining->ptr());
		block->expandable() = remaining->expandable();
		block->insert_between(remaining->prev(), remaining);
		remaining->ptr() += p.size;
		remaining->set_size(remaining->size() - p.size);
		pool.blocks().insert(remaining);
		if (already_split && counted) {
			decrease(stats.inactive_split_bytes, pool, block->size());
		} else if (counted) {
			increase(stats.inactive_split_bytes, pool, remaining->size());
			increase(stats.inactive_split, pool, 1);
		}
	} else if (already_split && counted) {
		decrease(stats.inactive_split_bytes, pool, block->size());
		decrease(stats.inactive_split, pool, 1);
	}
	block->allocated() = true;
	block->requested_size() = orig_size;
	trace(TraceEntry::ALLOC, block, orig_size);

	active_blocks.insert(block);
	increase(stats.allocation, pool, 1);
	increase(stats.allocated_bytes, pool, block->size());
	increase(stats.active, pool, 1);
	increase(stats.active_bytes, pool, block->size() + layout.extra_active_bytes);
	increase(stats.requested_bytes, pool, block->requested_size());
	report(block->ptr(), (int64_t)block->size());
	return block;
}

FRAME void DeviceCachingAllocator::free(Block *block)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	driver_use(device_id);
	block->allocated() = false;
	/* Save address and size: free_block may merge the block with the block below. */
	char *ptr = block->ptr();
	size_t size = block->size();
	decrease(stats.allocation, *block->pool(), 1);
	decrease(stats.allocated_bytes, *block->pool(), size);
	trace(TraceEntry::FREE_REQUESTED, block, block->requested_size());

	if (block->stream_uses().empty())
		free_block(block);
	else if (!captures_underway.empty())
		deferred_blocks.push_back(block);
	else
		insert_events(block);
	report(ptr, -(int64_t)size);
}

FRAME void DeviceCachingAllocator::free_block(Block *block)
{
	trace(TraceEntry::FREE_COMPLETED, block, block->requested_size());
	BlockPool &pool = *block->pool();
	size_t original_size = block->size(), requested_size = block->requested_size();
	size_t merged_blocks = 0, merged_bytes = 0;
	for (Block *neighbour : {block->prev(), block->next()}) {
		size_t bytes = try_merge_blocks(block, neighbour, pool);
		merged_blocks += bytes > 0;
		merged_bytes += bytes;
	}
	active_blocks.erase(block);
	pool.blocks().insert(block);
	if (!block->expandable()) {
		if (block->is_split()) {
			increase(stats.inactive_split, pool, 1);
			increase(stats.inactive_split_bytes, pool, block->size());
		}
		decrease(stats.inactive_split, pool, merged_blocks);
		decrease(stats.inactive_split_bytes, pool, merged_bytes);
	}
	decrease(stats.active, pool, 1);
	decrease(stats.active_bytes, pool, original_size + layout.extra_active_bytes);
	decrease(stats.requested_bytes, pool, requested_size);
}

/* Merges src into dst if possible. Returns the bytes that dst gained. */
size_t DeviceCachingAllocator::try_merge_blocks(Block *dst, Block *src, BlockPool &pool)
{
	if (!src || src->in_use() || dst->mapped() != src->mapped())
		return 0;
	size_t size = src->size();
	if (src->mapped())
		pool.blocks().erase(src);
	else
		pool.unmapped().erase(src);
	if (dst->prev() == src) {
		dst->ptr() = src->ptr();
		dst->insert_between(src->prev(), dst->next());
	} else {
		dst->insert_between(dst->prev(), src->next());
	}
	dst->set_size(dst->size() + size);
	delete src;
	return size;
}

void DeviceCachingAllocator::emptyCache(MempoolId_t pool)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	driver_use(device_id);
	release_cached_blocks(pool);
}

/* Reports a snapshot. PyTorch passes device 0 and stream 0 for every device, so simtorch does
 * too. */
FRAME void DeviceCachingAllocator::snapshot()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	size_t active = 0;
	for (const Block *block : active_blocks)
		active += block->size();
	trace(TraceEntry::SNAPSHOT, 0, active, nullptr, 0, {0, 0}, 0);
}

} // namespace c10::cuda::CUDACachingAllocator::Native
