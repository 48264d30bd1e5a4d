//go:build linux

package torchallocator

import "encoding/binary"

// This file has the memory layout of the classes in PyTorch's c10/cuda/CUDACachingAllocator.cpp, with libstdc++ and
// 64-bit pointers. The offsets are those of PyTorch's wheels of version 2.11. What differs between versions is
// searched: the search and the layouts of blocks cover what the sources of 2.4 to 2.11 declare.

// Offsets in DeviceCachingAllocator. A mutex of libstdc++ is a pthread_mutex_t: the lock and, at 8, its owner.
const (
	lockOffset  = 0
	ownerOffset = 8
	statsOffset = 40
)

// DeviceStats begins with arrays of statistics. Each has a Stat for all pools, the small ones and the large ones. A
// Stat has 4 words: the current value, the peak, and the sums of increases and of decreases.
const (
	statBytes  = 4 * 8
	arrayBytes = 3 * statBytes
)

// Arrays of DeviceStats in their order.
const (
	allocationStat = iota // blocks that the program uses
	segmentStat           // segments, without expandable ones
	activeStat            // blocks that the program or a stream uses
	inactiveSplitStat
	allocatedBytesStat
	reservedBytesStat
	activeBytesStat
	inactiveSplitBytesStat
	requestedBytesStat
	numStats
)

// A BlockPool has two std::set of blocks, and says which blocks it is for. std::set has a comparison function, the
// head of a red-black tree, and the number of nodes.
const (
	setBytes        = 48
	setHeadOffset   = 8
	setRootOffset   = 16
	setFirstOffset  = 24
	setLastOffset   = 32
	setCountOffset  = 40
	poolSmallOffset = 2 * setBytes
	poolOwnerOffset = 2*setBytes + 8
	poolBytes       = 2*setBytes + 24
)

// A node of std::set: color, parent, left, right, value.
const (
	nodeLeftOffset  = 16
	nodeRightOffset = 24
	nodeValueOffset = 32
	nodeBytes       = 40
)

// ska::flat_hash_map and ska::flat_hash_set: entries, number of slots - 1, log2 of something, the largest distance of
// an entry from its slot, the maximum load, number of entries. An entry has its distance, negative if it is empty, and
// its value.
const (
	tableMaskOffset  = 8
	tableReachOffset = 17
	tableLoadOffset  = 20
	tableCountOffset = 24
	tableBytes       = 32
	tableLoad        = 0x3f000000 // 0.5

	blockEntryBytes = 16 // a pointer to a block
	poolEntryBytes  = 32 // the two words of a pool's ID, and a pointer to the pool
)

// Bounds of what is searched, in bytes.
const (
	nativeBytes         = 32 << 10 // of NativeCachingAllocator, with the vector of its device allocators
	objectBytes         = 6 << 10  // of DeviceCachingAllocator, with its table of private pools
	poolsSearchFrom     = statsOffset + numStats*arrayBytes
	poolsSearchTo       = poolsSearchFrom + 512
	privatePoolBytes    = 512
	maxDevices          = 64
	maxBlocks           = 1 << 20
	maxPrivatePoolSlots = 1 << 14
)

// blockLayout has the offsets of Block. The byte after allocated says whether the block is mapped. The stream is at 8.
type blockLayout struct {
	version                               string // the newest with this layout
	size, requested, pool, ptr, allocated int
	prev, next, expandable, bytes         int
}

const (
	blockDeviceOffset = 0
	blockStreamOffset = 8
)

// blockLayouts are the known layouts, the newest first.
var blockLayouts = [...]blockLayout{
	{"2.11", 56, 64, 72, 80, 88, 96, 104, 160, 168}, // with a counter of registrations before size
	{"2.9", 48, 56, 64, 72, 80, 88, 96, 152, 160},
}

// table is the head of a ska hash table.
type table struct{ entries, slots, reach, count uint64 }

// readTable reads the head of a table. ok is false if it is none.
func readTable(data []byte, maxSlots uint64) (t table, ok bool) {
	t = table{
		word(data, 0),
		word(data, tableMaskOffset) + 1,
		uint64(data[tableReachOffset]),
		word(data, tableCountOffset),
	}
	ok = binary.LittleEndian.Uint32(data[tableLoadOffset:]) == tableLoad && t.slots != 0 && t.slots&(t.slots-1) == 0 &&
		t.slots <= maxSlots && t.count <= t.slots && t.reach < 64 && t.entries != 0
	return t, ok
}

// bytes returns the size of the table's entries. The last one only marks the end, and is not in it.
func (t table) bytes(entryBytes uint64) uint64 { return (t.slots + t.reach - 1) * entryBytes }

// isSet reports whether data at the address at is a std::set of blocks.
func isSet(data []byte, at uint64) bool {
	compare, root := word(data, 0), word(data, setRootOffset)
	first, last, count := word(data, setFirstOffset), word(data, setLastOffset), word(data, setCountOffset)
	if root == 0 {
		return compare != 0 && count == 0 && first == at+setHeadOffset && last == at+setHeadOffset
	}
	return compare != 0 && count != 0 && first != 0 && last != 0
}

// isPool reports whether data at the address at is a BlockPool of an owner: a private pool, or 0.
func isPool(data []byte, at uint64, isSmall bool, owner uint64) bool {
	small := byte(0)
	if isSmall {
		small = 1
	}
	return isSet(data, at) && isSet(data[setBytes:], at+setBytes) && data[poolSmallOffset] == small &&
		word(data, poolOwnerOffset) == owner
}

// findPools returns the offset of two adjacent BlockPools of an owner in data at the address at: the one for large
// blocks, then the one for small ones. It searches the offsets from from to to.
func findPools(data []byte, at uint64, from, to int, owner uint64) (offset int, ok bool) {
	for o := from; o <= min(to, len(data)-2*poolBytes); o += 8 {
		if isPool(data[o:], at+uint64(o), false, owner) &&
			isPool(data[o+poolBytes:], at+uint64(o)+poolBytes, true, owner) {
			return o, true
		}
	}
	return 0, false
}
