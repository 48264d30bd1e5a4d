// Package blocks reports which sizes of PyTorch's blocks are live and grow, from readings of the memory of processes at
// regular times. The readings need no probes, and have no stacks.
package blocks
