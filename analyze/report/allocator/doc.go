// Package allocator reports the totals of caching allocators, such as PyTorch's, at moments of the
// recording.
package allocator
