/*
 * The part of PyTorch's C++ interface that a recorder of allocator events meets. Names, argument types and layouts are those of
 * PyTorch 2.11, so that a probe finds the same mangled symbols and every argument and statistic where PyTorch has it.
 */
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

/* Two bytes: passed by value, the type is in the lowest byte of a register and the index above it. */
struct Device {
	DeviceType type;
	DeviceIndex index;
};

/* What PyTorch keeps of the stack when its history is on. Here it never is. */
struct GatheredContext {
	virtual ~GatheredContext() = default;
};

/* {0, 0} is the default pool; {n, 0} was made by a graph's capture, {0, n} by the user. */
using CaptureId_t = unsigned long long;
using MempoolId_t = std::pair<CaptureId_t, CaptureId_t>;

/* Tells an attached profiler of every tensor: bytes are those of its block, negative when it is freed. */
EXPORT void reportMemoryUsageToProfiler(void *ptr, int64_t bytes, size_t total_allocated, size_t total_reserved, Device device);

namespace CachingDeviceAllocator {

struct Stat {
	int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

enum StatType { AGGREGATE, SMALL_POOL, LARGE_POOL, STAT_TYPES };
using StatArray = std::array<Stat, STAT_TYPES>;

struct DeviceStats {
	StatArray allocation;           /* tensors */
	StatArray segment;              /* of cudaMalloc; expandable ones are not counted */
	StatArray active;               /* blocks that are allocated or still in use by a stream */
	StatArray inactive_split;       /* free blocks that are not a whole segment */
	StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
	StatArray requested_bytes;      /* as asked for, of active blocks */
	int64_t num_alloc_retries = 0, num_ooms = 0;
	Stat oversize_allocations, oversize_segments;
	int64_t num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0, max_split_size = -1;
};

} // namespace CachingDeviceAllocator
} // namespace c10

/* SIMTORCH_OTHER: the parameters of record_trace are those of PyTorch 2.3: another TraceEntry, a signed address, no pool. */
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
