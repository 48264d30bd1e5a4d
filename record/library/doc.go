// Package library finds the libraries of a process that are probed, the driver's and those of
// PyTorch's caching allocator, and chooses the instructions to probe in them. It reads files that a
// hostile process may have made, and bounds what it reads.
package library
