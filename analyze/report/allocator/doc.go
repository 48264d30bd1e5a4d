// Package allocator reports the totals of caching allocators, such as PyTorch's, over the time of
// the recording.
package allocator
