// Package livemem replays memory calls of the CUDA driver and tracks the live memory: allocations,
// virtual memory, borrowed memory, contexts and graphs. It reads Calls and emits Changes, and does
// no I/O. A Set is not safe for concurrent use.
package livemem
