/* Segments: memory from the driver and its return. Segments have a fixed size or are expandable,
 * with pages mapped on demand. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

FRAME bool DeviceCachingAllocator::alloc_block(AllocParams &p, bool is_retry)
{
	if (is_retry)
		stats.num_alloc_retries++;
	if (memory.allowed_memory_maximum && memory.total_allocated_memory + p.alloc_size > *memory.allowed_memory_maximum)
		return false; /* over the limit: do not call the driver */
	if (expandable_segments()) {
		p.block = try_allocate_expandable_block(p.stream, p.pool, p.size);
		return p.block;
	}
	CUdeviceptr ptr;
	CUresult result = cuMemAlloc_v2(&ptr, p.alloc_size);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return false;
	driver_check(result, "cuMemAlloc_v2");
	if (p.pool->owner())
		p.pool->owner()->segments++;
	p.block = new Block(device_id, p.stream, p.alloc_size, p.pool, reinterpret_cast<char *>(ptr));
	increase(stats.segment, *p.pool, 1);
	increase(stats.reserved_bytes, *p.pool, p.alloc_size);
	memory.total_allocated_memory += p.alloc_size;
	stats.num_device_alloc++;
	trace(TraceEntry::SEGMENT_ALLOC, p.block, p.block->size());
	return true;
}

/* Returns all whole free segments to the driver, after waiting for streams that still use
 * blocks. With a pool id, only segments of that private pool, if it is unused. Otherwise
 * segments of all unused private pools and, if no capture is active, of the default pool. */
FRAME bool DeviceCachingAllocator::release_cached_blocks(MempoolId_t id)
{
	bool everything = id == MempoolId_t{0, 0};
	if (everything && captures_underway.empty()) {
		synchronize_and_free_events();
		release_blocks(large_blocks);
		release_blocks(small_blocks);
	}
	for (auto it = graph_pools_freeable.begin(); it != graph_pools_freeable.end();) {
		auto current = it++;
		PrivatePool *pool = current->second;
		if (!everything && pool->id != id)
			continue;
		if (!everything && captures_underway.empty())
			synchronize_and_free_events(pool);
		release_blocks(pool->small_blocks());
		release_blocks(pool->large_blocks());
		if (pool->segments == 0) {
			graph_pools_freeable.erase(current);
			graph_pools.erase(pool->id);
		}
	}
	return true;
}

FRAME void DeviceCachingAllocator::release_blocks(BlockPool &pool)
{
	std::vector<Block *> to_unmap; /* a copy, because unmap_block changes the set */
	for (auto it = pool.blocks().begin(); it != pool.blocks().end();) {
		Block *block = *it++;
		if (block->expandable())
			to_unmap.push_back(block);
		else if (!block->is_split())
			release_block(block);
	}
	for (Block *block : to_unmap) {
		unmap_block(block);
		if (!block->is_split() && !block->mapped())
			release_expandable_segment(block);
	}
}

FRAME void DeviceCachingAllocator::release_block(Block *block)
{
	BlockPool &pool = *block->pool();
	stats.num_device_free++;
	trace(TraceEntry::SEGMENT_FREE, block, block->size());

	CU(cuMemFree_v2, (CUdeviceptr)block->ptr());
	if (pool.owner())
		pool.owner()->segments--;
	decrease(stats.segment, pool, 1);
	decrease(stats.reserved_bytes, pool, block->size());
	memory.total_allocated_memory -= block->size();
	pool.blocks().erase(block);
	delete block;
}

Block *DeviceCachingAllocator::try_allocate_expandable_block(CUstream stream, BlockPool *pool, size_t size)
{
	/* The block and the blocks after it have room for the size. They may be free or
	 * unmapped. */
	Block *candidate = find_expandable_block(stream, pool, size);
	if (!candidate->mapped() && !map_block(candidate, std::min(candidate->size(), size)))
		return nullptr;
	while (candidate->size() < size) {
		Block *next = candidate->next();
		if (!map_block(next, std::min(size - candidate->size(), next->size())))
			return nullptr;
		candidate = next; /* `next` now contains the candidate */
	}
	pool->blocks().erase(candidate);
	return candidate;
}

/* Returns the lowest block of the stream's expandable segments that starts enough free or
 * unmapped space for the size. */
Block *DeviceCachingAllocator::find_expandable_block(CUstream stream, BlockPool *pool, size_t size)
{
	auto has_room = [size](Block *b) {
		size_t bytes = 0;
		for (; bytes < size && b && !b->in_use(); b = b->next())
			bytes += b->size();
		return bytes >= size;
	};
	Block key(device_id, stream, 0, nullptr, nullptr);
	for (auto it = pool->unmapped().lower_bound(&key); it != pool->unmapped().end() && (*it)->stream() == stream; ++it) {
		Block *start = *it;
		if (start->prev() && !start->prev()->in_use())
			start = start->prev();
		if (has_room(start))
			return start;
	}
	size_t page = pool->is_small() ? kSmallBuffer : kLargeBuffer;
	segments_.push_back(std::make_unique<ExpandableSegment>(device_id, stream, page, size));
	ExpandableSegment *segment = segments_.back().get();
	Block *all = new Block(device_id, stream, segment->size(), pool, segment->ptr());
	all->mapped() = false;
	all->expandable() = segment;
	pool->unmapped().insert(all);
	if (pool->owner())
		pool->owner()->segments++;
	return all;
}

FRAME bool DeviceCachingAllocator::map_block(Block *block, size_t size)
{
	ExpandableSegment::Range mapped = block->expandable()->map({block->ptr(), size});
	if (mapped.size == 0)
		return false;
	BlockPool &pool = *block->pool();
	pool.unmapped().erase(block);
	block->mapped() = true;
	if (mapped.size < block->size()) {
		Block *remaining = new Block(device_id, block->stream(), block->size() - mapped.size, &pool, block->ptr() + mapped.size);
		remaining->mapped() = false;
		remaining->expandable() = block->expandable();
		remaining->insert_between(block, block->next());
		pool.unmapped().insert(remaining);
		block->set_size(mapped.size);
	}
	try_merge_blocks(block, block->prev(), pool);
	try_merge_blocks(block, block->next(), pool);
	pool.blocks().insert(block);

	increase(stats.reserved_bytes, pool, mapped.size);
	memory.total_allocated_memory += mapped.size;
	stats.num_device_alloc++;
	trace(TraceEntry::SEGMENT_MAP, (uint64_t)mapped.ptr, mapped.size, block->stream(), device_id, pool.id(), mapped.size);
	return true;
}

FRAME void DeviceCachingAllocator::unmap_block(Block *block)
{
	ExpandableSegment::Range unmapped = block->expandable()->unmap({block->ptr(), block->size()});
	if (unmapped.size == 0)
		return;
	BlockPool &pool = *block->pool();
	pool.blocks().erase(block);
	/* The parts of the block outside of whole pages remain mapped. */
	size_t before = unmapped.ptr - block->ptr(), after = block->size() - before - unmapped.size;
	auto keep = [&](char *ptr, size_t size, Block *prev, Block *next) {
		Block *rest = new Block(device_id, block->stream(), size, &pool, ptr);
		rest->expandable() = block->expandable();
		rest->insert_between(prev, next);
		pool.blocks().insert(rest);
	};
	if (before > 0)
		keep(block->ptr(), before, block->prev(), block);
	if (after > 0)
		keep(unmapped.ptr + unmapped.size, after, block, block->next());
	block->ptr() = unmapped.ptr;
	block->set_size(unmapped.size);
	block->mapped() = false;
	try_merge_blocks(block, block->prev(), pool);
	try_merge_blocks(block, block->next(), pool);
	pool.unmapped().insert(block);

	decrease(stats.reserved_bytes, pool, unmapped.size);
	memory.total_allocated_memory -= unmapped.size;
	stats.num_device_free++;
	trace(TraceEntry::SEGMENT_UNMAP, (uint64_t)unmapped.ptr, unmapped.size, block->stream(), device_id, pool.id(), unmapped.size);
}

void DeviceCachingAllocator::release_expandable_segment(Block *block)
{
	ExpandableSegment *segment = block->expandable();
	BlockPool &pool = *block->pool();
	pool.unmapped().erase(block);
	if (pool.owner())
		pool.owner()->segments--;
	delete block;
	std::erase_if(segments_, [&](auto &s) { return s.get() == segment; });
}

} // namespace c10::cuda::CUDACachingAllocator::Native
