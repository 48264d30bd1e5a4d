// Package caching replays the events of caching allocators such as PyTorch's. It models blocks,
// segments and their holes, and checks the result against the totals that the allocator reports. It
// reads Events and emits Changes, and does no I/O. A Set is not safe for concurrent use.
package caching
