// Package library finds the libraries of a process to probe: the driver library and PyTorch's
// caching allocator. It chooses the instructions to probe. The process may be hostile, so reads of
// its files are bounded.
package library
