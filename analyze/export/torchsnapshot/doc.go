// Package torchsnapshot writes PyTorch's memory as a snapshot for pytorch.org/memory_viz.
package torchsnapshot
