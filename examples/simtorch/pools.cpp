/* Private pools: memory reserved for one graph or one part of a program. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

void DeviceCachingAllocator::createOrIncrefPool(MempoolId_t id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	auto &pool = graph_pools[id];
	if (pool)
		pool->use_count++;
	else
		pool = std::make_unique<PrivatePool>(id);
}

void DeviceCachingAllocator::beginAllocateToPool(MempoolId_t id, Filter filter)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	createOrIncrefPool(id);
	captures_underway.emplace_back(id, std::move(filter));
}

void DeviceCachingAllocator::endAllocateToPool(MempoolId_t id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	std::erase_if(captures_underway, [&](auto &capture) { return capture.first == id; });
}

void DeviceCachingAllocator::releasePool(MempoolId_t id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	PrivatePool *pool = graph_pools.at(id).get();
	if (--pool->use_count == 0)
		graph_pools_freeable[id] = pool;
}

} // namespace c10::cuda::CUDACachingAllocator::Native
