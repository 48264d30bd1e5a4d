// Package torchallocator reads the blocks of PyTorch's CUDA caching allocator from the memory of a running
// process. It stops nothing and writes nothing: it accepts a reading only if the allocator changed nothing
// meanwhile, and if the blocks add up to the allocator's own statistics to the byte.
package torchallocator
