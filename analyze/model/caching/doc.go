// Package caching replays the events of caching allocators, such as PyTorch's: blocks, segments and
// their holes, and a check against the totals that the allocator reports. Events go in, changes come
// out; it reads no recording and does no I/O. A Set is not safe for concurrent use.
package caching
