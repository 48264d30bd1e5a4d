/* The ledger: one line per allocator event, the ground truth for comparing recordings. */
#ifndef SIMTORCH_LEDGER_H
#define SIMTORCH_LEDGER_H

#include "c10.h"

#include <cstdint>

namespace ledger {

using c10::CachingDeviceAllocator::DeviceStats;
using TRACE_NAMESPACE::TraceEntry;

/* A call of record_trace. allocated_bytes and reserved_bytes are the statistics at the time of
 * the call. */
struct Event {
	uint64_t start_ns, end_ns;
	TraceEntry::Action action;
	uint64_t ptr, bytes, stream;
	int device;
	c10::MempoolId_t pool;
	int64_t allocated_bytes, reserved_bytes;
	uint64_t block_bytes;
};

/* A call of reportMemoryUsageToProfiler. */
struct Usage {
	uint64_t start_ns, end_ns;
	uint64_t ptr;
	int64_t bytes;
	uint64_t allocated_bytes, reserved_bytes;
	int device;
};

uint64_t now(); /* CLOCK_MONOTONIC in ns; 0 without a ledger */
void write_event(const Event &event);
void write_usage(const Usage &usage);
void write_checkpoint(int device, const DeviceStats &stats);
void flush();

extern thread_local uint64_t events; /* events of this thread, counted also without a ledger */

} // namespace ledger

#endif
