/* Blocks used by a second stream. After a free, an event is recorded in each such stream. The
 * block is free when all its events have completed. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

void DeviceCachingAllocator::recordStream(Block *block, CUstream stream)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	if (stream == block->stream())
		return;
	block->stream_uses().insert(stream);
	if (!captures_underway.empty())
		block_to_cudagraph_stream_uses[block].insert(stream);
}

/* Reuse events: creating one costs more than an allocation. */
CUevent DeviceCachingAllocator::create_event_internal()
{
	CUevent event;
	if (idle_events.empty()) {
		CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	} else {
		event = idle_events.back();
		idle_events.pop_back();
	}
	return event;
}

FRAME void DeviceCachingAllocator::insert_events(Block *block)
{
	FlatHash<CUstream> streams = std::move(block->stream_uses());
	block_to_cudagraph_stream_uses.erase(block);
	for (CUstream stream : streams) {
		CUevent event = create_event_internal();
		CU(cuEventRecord, event, stream);
		block->event_count()++;
		cuda_events[stream].emplace_back(event, block);
	}
}

void DeviceCachingAllocator::insert_events_deferred_until_no_capture()
{
	for (Block *block : deferred_blocks) {
		/* The graph orders work recorded during the capture, so those uses need no
		 * events. */
		auto uses = block_to_cudagraph_stream_uses.find(block);
		if (uses != block_to_cudagraph_stream_uses.end())
			for (CUstream stream : uses->second)
				block->stream_uses().erase(stream);
		insert_events(block);
		if (block->event_count() == 0)
			free_block(block);
	}
	deferred_blocks.clear();
}

FRAME void DeviceCachingAllocator::process_events()
{
	insert_events_deferred_until_no_capture();
	for (auto it = cuda_events.begin(); it != cuda_events.end();) {
		auto &queue = it->second;
		while (!queue.empty()) {
			auto [event, block] = queue.front();
			CUresult result = cuEventQuery(event);
			if (result == CUDA_ERROR_NOT_READY)
				break;
			driver_check(result, "cuEventQuery");
			idle_events.push_back(event);
			if (--block->event_count() == 0)
				free_block(block);
			queue.pop_front();
		}
		it = queue.empty() ? cuda_events.erase(it) : std::next(it);
	}
}

/* Waits for all events, or only for events of the given private pool. */
FRAME void DeviceCachingAllocator::synchronize_and_free_events(PrivatePool *pool)
{
	stats.num_sync_all_streams++;
	insert_events_deferred_until_no_capture();
	for (auto it = cuda_events.begin(); it != cuda_events.end();) {
		auto &queue = it->second;
		for (auto e = queue.begin(); e != queue.end();) {
			auto [event, block] = *e;
			if (pool && block->pool()->owner() != pool) {
				++e;
				continue;
			}
			CU(cuEventSynchronize, event);
			idle_events.push_back(event);
			if (--block->event_count() == 0)
				free_block(block);
			e = queue.erase(e);
		}
		it = queue.empty() ? cuda_events.erase(it) : std::next(it);
	}
}

} // namespace c10::cuda::CUDACachingAllocator::Native
