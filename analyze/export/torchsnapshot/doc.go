// Package torchsnapshot writes the state of PyTorch's caching allocators as a memory snapshot, in
// the pickle format of torch.cuda.memory._snapshot() that pytorch.org/memory_viz reads.
package torchsnapshot
