/* Alone in its file, so that no optimisation between caller and callee changes what is in which register. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

/* PyTorch keeps an entry with the stack if its history is on. Only the question whether it is, and whom else to tell, is left. */
FRAME void DeviceCachingAllocator::record_trace(TraceEntry::Action action, TRACE_ADDRESS addr, size_t size, CUstream stream,
						DeviceIndex device, TRACE_POOL(MempoolId_t) std::shared_ptr<GatheredContext>)
{
	if (!record_history && trace_trackers_.empty())
		return;
	for (auto &tracker : trace_trackers_)
		tracker(action, (uint64_t)addr, size, stream, device);
}

} // namespace c10::cuda::CUDACachingAllocator::Native
