//go:build linux

package torchallocator

import "slices"

// This file has the shapes that do not differ between builds of PyTorch: the structures of libstdc++ and of
// ska::flat_hash_map with 64-bit pointers, and the statistics of c10/core/CachingDeviceAllocator.h. The places of
// members in the classes of c10/cuda/CUDACachingAllocator.cpp are in layout. They are searched.

// layout has the places of members, in bytes.
type layout struct {
	deviceLayout
	blockLayout
}

// deviceLayout has the places of members of DeviceCachingAllocator and BlockPool.
type deviceLayout struct {
	lock   int    // a recursive mutex
	stats  int    // DeviceStats
	pools  [2]int // the two BlockPools
	small  int    // in a BlockPool: whether it is for small blocks
	active int    // the table of active blocks
}

// blockLayout has the places of members of Block. The byte behind allocated says whether the block is mapped.
type blockLayout struct {
	version                               string // the newest known version of PyTorch with this layout, or empty
	size, requested, pool, ptr, allocated int
	prev, next                            int
	expandable                            int // a pointer; 0: unknown
}

// The device and the stream are the first members of Block in all versions.
const (
	blockDeviceOffset = 0
	blockStreamOffset = 8
)

// blockLayouts are the layouts that the sources of PyTorch 2.4 to 2.11 declare, the newest first.
var blockLayouts = [...]blockLayout{
	{"2.11", 56, 64, 72, 80, 88, 96, 104, 160}, // with a counter of registrations before size
	{"2.9", 48, 56, 64, 72, 80, 88, 96, 152},
}

// bytes returns the size of the part of a Block that has all members.
func (l *blockLayout) bytes() uint64 {
	return uint64(max(l.size, l.requested, l.pool, l.ptr, (l.allocated+1)&^7, l.prev, l.next, l.expandable) + 8)
}

// poolBytes returns the size of the part of a BlockPool that has its sets and the byte small.
func (l *deviceLayout) poolBytes() int { return l.small + 1 }

// DeviceStats begins with arrays of statistics. Each has a Stat for all pools, the small ones and the large ones. A
// Stat has 4 words: the current value, the peak, and the sums of increases and of decreases.
const (
	statBytes  = 4 * 8
	arrayBytes = 3 * statBytes
	statsBytes = numStats * arrayBytes
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

// A std::recursive_mutex is a pthread_mutex_t of glibc: the lock, the depth, the thread id of the owner, the number of
// users, the kind, two counters of spins, and two pointers that are null.
const (
	ownerOffset    = 8
	kindOffset     = 16
	listOffset     = 24
	mutexBytes     = 40
	recursiveMutex = 1
)

// isMutex reports whether data is a recursive mutex.
func isMutex(data []byte) bool {
	return half(data, 0) <= 2 && half(data, kindOffset) == recursiveMutex && word(data, listOffset) == 0 &&
		word(data, listOffset+8) == 0
}

// A BlockPool begins with two std::set of blocks: those in memory, and those without. std::set has a comparison
// function, the head of a red-black tree, and the number of nodes.
const (
	setBytes       = 48
	setHeadOffset  = 8
	setRootOffset  = 16
	setFirstOffset = 24
	setLastOffset  = 32
	setCountOffset = 40
)

// A node of std::set: color, parent, left, right, value.
const (
	nodeLeftOffset  = 16
	nodeRightOffset = 24
	nodeValueOffset = 32
	nodeBytes       = 40
)

// isSet reports whether data at the address at is a std::set of blocks.
func isSet(data []byte, at uint64) bool {
	compare, root := word(data, 0), word(data, setRootOffset)
	first, last, count := word(data, setFirstOffset), word(data, setLastOffset), word(data, setCountOffset)
	switch {
	case compare == 0 || half(data, setHeadOffset) > 1: // the head's color is red or black
		return false
	case root == 0:
		return count == 0 && first == at+setHeadOffset && last == at+setHeadOffset
	}
	return count != 0 && count <= maxBlocks && first != 0 && last != 0
}

// areSets reports whether data at the address at begins with the two sets of a BlockPool.
func areSets(data []byte, at uint64) bool {
	return len(data) >= 2*setBytes && isSet(data, at) && isSet(data[setBytes:], at+setBytes) &&
		word(data, 0) != word(data, setBytes)
}

// haveSameOrder reports whether two BlockPools compare blocks with the same functions.
func haveSameOrder(a, b []byte) bool {
	return word(a, 0) == word(b, 0) && word(a, setBytes) == word(b, setBytes)
}

// A ska hash table has its entries, the number of slots - 1, 64 - log2 of the number of slots, the largest distance of
// an entry from its slot, the maximum load, and the number of entries. An entry has its distance, negative if it is
// empty, and its value.
const (
	tableMaskOffset  = 8
	tableShiftOffset = 16
	tableReachOffset = 17
	tableLoadOffset  = 20
	tableCountOffset = 24
	tableBytes       = 32
	tableLoad        = 0x3f000000 // 0.5

	blockEntryBytes = 16 // a pointer to a block
	poolEntryBytes  = 32 // the two words of a pool's id, and a pointer to the pool
)

// Bounds of what is searched and read.
const (
	nativeBytes         = 32 << 10 // of NativeCachingAllocator, with the vector of its device allocators
	objectBytes         = 6 << 10  // of DeviceCachingAllocator, with its table of private pools
	maxPoolBytes        = 256
	privatePoolBytes    = 512
	searchedBlockBytes  = 256
	maxDevices          = 64
	maxBlocks           = 1 << 20
	maxPrivatePoolSlots = 1 << 14
)

// table is the head of a ska hash table.
type table struct {
	entries, slots, reach, count uint64
	shift                        byte
}

// readTable reads the head of a table. ok is false if it is none.
func readTable(data []byte, maxSlots uint64) (t table, ok bool) {
	t = table{
		entries: word(data, 0), slots: word(data, tableMaskOffset) + 1, reach: uint64(data[tableReachOffset]),
		count: word(data, tableCountOffset), shift: data[tableShiftOffset],
	}
	isPower := t.slots != 0 && t.slots&(t.slots-1) == 0
	ok = half(data, tableLoadOffset) == tableLoad && isPower && t.slots <= maxSlots && t.count <= t.slots &&
		t.reach > 0 && t.reach < 64 && t.entries != 0 && t.entries%8 == 0 &&
		(t.slots == 1 || t.slots == 1<<(64-uint64(t.shift&63)))
	return t, ok
}

// bytes returns the size of the table's entries. The last one only marks the end, and is not in it.
func (t table) bytes(entryBytes uint64) uint64 { return (t.slots + t.reach - 1) * entryBytes }

// fibonacci is the factor of Fibonacci hashing: 2^64 divided by the golden ratio.
const fibonacci = 11400714819323198485

// hasPlace reports whether a pointer that is entry i of a table lies at the distance from its slot that the entry has.
func (t table) hasPlace(i int, distance int8, pointer uint64) bool {
	slot := uint64(0)
	if t.slots > 1 {
		slot = pointer * fibonacci >> t.shift
	}
	return uint64(i) == slot+uint64(distance)
}

// findPools returns the offsets of two BlockPools in data at the address at, from the offset from on. like, if not nil,
// is a BlockPool with the same order of blocks.
func findPools(data []byte, at uint64, from int, like []byte) (pools [2]int, ok bool) {
	var found []int
	for o := from; o+2*setBytes <= len(data); o += 8 {
		if !areSets(data[o:], at+uint64(o)) || like != nil && !haveSameOrder(data[o:], like) {
			continue
		}
		isSecond := func(first int) bool { return o-first <= maxPoolBytes && haveSameOrder(data[first:], data[o:]) }
		if i := slices.IndexFunc(found, isSecond); i >= 0 {
			return [2]int{found[i], o}, true
		}
		found = append(found, o) // words before a pool can look like a set
	}
	return pools, false
}
