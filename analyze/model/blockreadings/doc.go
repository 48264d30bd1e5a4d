// Package blockreadings follows the blocks and segments of PyTorch's caching allocators over the readings of
// gpurec record --blocks-every. It keeps the present blocks only, and checks that each reading equals the allocator's
// own statistics.
package blockreadings
