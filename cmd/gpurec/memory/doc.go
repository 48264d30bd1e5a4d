// Package memory prints the memory of PyTorch's caching allocator in a running process: totals, pools, sizes of blocks,
// and segments that few bytes keep, as text or JSON. Lines of a watched process show what changed since the line before.
package memory
