/* The part of PyTorch's C++ interface that recorders of allocator events use. Names, argument
 * types and layouts are those of PyTorch 2.11. So probes find the same mangled symbols, and
 * arguments and statistics at the same places. */
#ifndef SIMTORCH_C10_H
#define SIMTORCH_C10_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#define EXPORT __attribute__((visibility("default")))

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;

/* Two bytes: passed by value, the type is in the lowest byte of a register and the index above. */
struct Device {
	DeviceType type;
	DeviceIndex index;
};

/* A stack of PyTorch's memory history. Always NULL in simtorch, where the history is off. */
struct GatheredContext {
	virtual ~GatheredContext() = default;
};

/* Pool id: {0, 0} is the default pool, {n, 0} belongs to a graph capture, {0, n} to the user. */
using CaptureId_t = unsigned long long;
using MempoolId_t = std::pair<CaptureId_t, CaptureId_t>;

/* Reports an allocation or free to an active profiler. bytes is the block size, negative for a
 * free. */
EXPORT void reportMemoryUsageToProfiler(void *ptr, int64_t bytes, size_t total_allocated, size_t total_reserved, Device device);

namespace CachingDeviceAllocator {

struct Stat {
	int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

enum StatType { AGGREGATE, SMALL_POOL, LARGE_POOL, STAT_TYPES };
using StatArray = std::array<Stat, STAT_TYPES>;

struct DeviceStats {
	StatArray allocation;           /* number of allocated tensors */
	StatArray segment;              /* segments from cudaMalloc, expandable ones excluded */
	StatArray active;               /* blocks allocated or still in use by a stream */
	StatArray inactive_split;       /* free blocks that are part of a segment */
	StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
	StatArray requested_bytes;      /* requested size of active blocks */
	int64_t num_alloc_retries = 0, num_ooms = 0;
	Stat oversize_allocations, oversize_segments;
	int64_t num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0, max_split_size = -1;
};

} // namespace CachingDeviceAllocator
} // namespace c10

/* With SIMTORCH_OTHER, record_trace has the parameters of PyTorch 2.3: another TraceEntry, a
 * signed address and no pool. */
#ifdef SIMTORCH_OTHER
#define TRACE_NAMESPACE c10::cuda::CUDACachingAllocator
#define TRACE_ADDRESS int64_t
#define TRACE_POOL(pool)
#else
#define TRACE_NAMESPACE c10::CachingDeviceAllocator
#define TRACE_ADDRESS size_t
#define TRACE_POOL(pool) pool,
#endif

namespace TRACE_NAMESPACE {

struct TraceEntry {
	enum Action { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM };
};

} // namespace TRACE_NAMESPACE

#endif
