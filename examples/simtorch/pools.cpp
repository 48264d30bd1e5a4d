/* Private pools: memory reserved for one graph or one part of a program. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

void DeviceCachingAllocator::createOrIncrefPool(MempoolId_t id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	if (graph_pools.find(id))
		private_pool(id).use_count++;
	else
		graph_pools.insert({id, std::make_unique<PrivatePool>(id)});
}

PrivatePool &DeviceCachingAllocator::private_pool(MempoolId_t id)
{
	auto found = graph_pools.find(id);
	if (!found)
		throw std::out_of_range("no such private pool");
	return *found->second;
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
	PrivatePool *pool = &private_pool(id);
	if (--pool->use_count == 0)
		graph_pools_freeable[id] = pool;
}

} // namespace c10::cuda::CUDACachingAllocator::Native
