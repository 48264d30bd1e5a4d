/* record_trace has its own source file, so that the compiler cannot optimise its calling
 * convention. All arguments are in the registers of the C++ ABI. */
#include "allocator.h"

namespace c10::cuda::CUDACachingAllocator::Native {

/* PyTorch appends an entry with the stack if its memory history is on. simtorch keeps only the
 * check of the history and the calls of trace trackers. */
FRAME void DeviceCachingAllocator::record_trace(TraceEntry::Action action, TRACE_ADDRESS addr, size_t size, CUstream stream,
						DeviceIndex device, TRACE_POOL(MempoolId_t) std::shared_ptr<GatheredContext>)
{
	if (!record_history && trace_trackers_.empty())
		return;
	for (auto &tracker : trace_trackers_)
		tracker(action, (uint64_t)addr, size, stream, device);
}

} // namespace c10::cuda::CUDACachingAllocator::Native
