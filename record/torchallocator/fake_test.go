//go:build linux

package torchallocator

import (
	"encoding/binary"
	"maps"
	"slices"
)

// fakeMemory is the memory of a process in a test.
type fakeMemory struct {
	pages map[uint64]*Page
	// onRead, if not nil, is called before each read with its number.
	onRead func(n int)
	reads  int
	err    error
}

func (m *fakeMemory) ReadPages(addresses []uint64, pages []*Page) error {
	m.reads++
	if m.onRead != nil {
		m.onRead(m.reads)
	}
	for i, at := range addresses {
		if page := m.pages[at]; page != nil {
			*pages[i] = *page
		} else {
			pages[i] = nil
		}
	}
	return m.err
}

func (m *fakeMemory) set(at uint64, data ...byte) {
	for i, b := range data {
		page := (at + uint64(i)) &^ (pageBytes - 1)
		if m.pages[page] == nil {
			m.pages[page] = new(Page)
		}
		m.pages[page][at+uint64(i)-page] = b
	}
}

func (m *fakeMemory) setWord(at, value uint64) {
	m.set(at, binary.LittleEndian.AppendUint64(nil, value)...)
}

func (m *fakeMemory) word(at uint64) uint64 {
	return word(m.pages[at&^(pageBytes-1)][:], int(at&(pageBytes-1)))
}

func (m *fakeMemory) clone() *fakeMemory {
	c := &fakeMemory{pages: make(map[uint64]*Page)}
	for at, page := range m.pages {
		c.pages[at] = new(*page)
	}
	return c
}

// fakeAllocator builds the allocator of a process in fakeMemory.
type fakeAllocator struct {
	*fakeMemory
	layout   *blockLayout
	next     uint64 // address of the next object on the heap
	variable uint64
	objects  []uint64
}

const (
	fakeVariable   = 0x10000
	fakeNative     = 0x20000
	fakePoolsAt    = 1024 // offset of large_blocks in 2.11
	fakeTableAt    = 2736 // offset of graph_pools in 2.11
	fakeObjectSize = 2904
	fakeVectorAt   = 0x5838
)

// newFakeAllocator returns an allocator with empty devices.
func newFakeAllocator(layout *blockLayout, devices int) *fakeAllocator {
	a := &fakeAllocator{fakeMemory: &fakeMemory{pages: make(map[uint64]*Page)}, layout: layout, next: 0x7f0000000010}
	a.variable = fakeVariable
	a.setWord(fakeVariable, fakeNative)
	a.set(fakeNative, make([]byte, nativeBytes)...)
	list := a.alloc(uint64(8 * devices))
	a.setWord(fakeNative+fakeVectorAt, list)
	a.setWord(fakeNative+fakeVectorAt+8, list+uint64(8*devices))
	a.setWord(fakeNative+fakeVectorAt+16, list+uint64(8*devices))
	for i := range devices {
		at := a.alloc(fakeObjectSize)
		a.objects = append(a.objects, at)
		a.setWord(list+uint64(8*i), at)
		a.setPools(at+fakePoolsAt, 0, [2][]uint64{})
		a.setTable(at+fakePoolsAt+2*poolBytes, blockEntryBytes, nil)
		a.setTable(at+fakeTableAt, poolEntryBytes, nil)
	}
	return a
}

// alloc returns zeroed memory on the heap.
func (a *fakeAllocator) alloc(bytes uint64) uint64 {
	at := a.next
	a.next += (bytes + 31) / 16 * 16
	a.set(at, make([]byte, bytes)...)
	return at
}

// setPools writes two BlockPools, with the cached blocks of the large and of the small one.
func (a *fakeAllocator) setPools(at, owner uint64, cached [2][]uint64) {
	for k := range uint64(2) {
		pool := at + k*poolBytes
		a.setSet(pool, cached[k])
		a.setSet(pool+setBytes, nil)
		a.set(pool+poolSmallOffset, byte(k))
		a.setWord(pool+poolOwnerOffset, owner)
	}
}

// setSet writes a std::set.
func (a *fakeAllocator) setSet(at uint64, values []uint64) {
	head := at + setHeadOffset
	a.setWord(at, 0x401000) // the comparison function
	a.setWord(at+setRootOffset, 0)
	a.setWord(at+setFirstOffset, head)
	a.setWord(at+setLastOffset, head)
	a.setWord(at+setCountOffset, uint64(len(values)))
	if len(values) > 0 {
		root := a.tree(values)
		a.setWord(at+setRootOffset, root)
		a.setWord(at+setFirstOffset, root)
		a.setWord(at+setLastOffset, root)
	}
}

// tree writes the nodes of a balanced tree, and returns its root.
func (a *fakeAllocator) tree(values []uint64) uint64 {
	if len(values) == 0 {
		return 0
	}
	middle := len(values) / 2
	at := a.alloc(nodeBytes)
	a.setWord(at+nodeLeftOffset, a.tree(values[:middle]))
	a.setWord(at+nodeRightOffset, a.tree(values[middle+1:]))
	a.setWord(at+nodeValueOffset, values[middle])
	return at
}

// setTable writes a ska hash table with entries: their bytes behind the distance.
func (a *fakeAllocator) setTable(at, entryBytes uint64, entries [][]uint64) {
	slots, reach := uint64(4), uint64(4)
	for slots < 2*uint64(len(entries)) {
		slots *= 2
	}
	list := a.alloc((slots + reach) * entryBytes)
	for i := range slots + reach {
		a.set(list+i*entryBytes, 0xff) // empty
	}
	for i, entry := range entries {
		place := list + uint64(2*i)*entryBytes // leaves empty entries between
		if len(entries) == int(slots) {
			place = list + uint64(i)*entryBytes
		}
		a.set(place, 1)
		for k, value := range entry {
			a.setWord(place+8+uint64(8*k), value)
		}
	}
	a.set(list+(slots+reach-1)*entryBytes, 0) // the end
	a.setWord(at, list)
	a.setWord(at+tableMaskOffset, slots-1)
	a.setWord(at+16, 62|reach<<8|tableLoad<<32)
	a.setWord(at+tableCountOffset, uint64(len(entries)))
}

// fill writes segments into a device's allocator, with the statistics that they have.
func (a *fakeAllocator) fill(device int, segments []Segment) {
	object := a.objects[device]
	pools := map[PoolID]uint64{{}: object + fakePoolsAt}
	owners := map[PoolID]uint64{}
	for _, s := range segments {
		if _, ok := pools[s.Pool]; !ok {
			owners[s.Pool] = a.alloc(280)
			a.setWord(owners[s.Pool], s.Pool[0])
			a.setWord(owners[s.Pool]+8, s.Pool[1])
			pools[s.Pool] = owners[s.Pool] + 40
		}
	}
	cached := make(map[PoolID]*[2][]uint64)
	var active [][]uint64
	var sums totals
	for i := range segments {
		s := &segments[i]
		kind := 0
		if s.IsSmall {
			kind = 1
		}
		if cached[s.Pool] == nil {
			cached[s.Pool] = new([2][]uint64)
		}
		blocks := slices.Clone(s.Blocks)
		if s.IsExpandable { // address space without memory behind it
			blocks = append(blocks, Block{Address: s.Address + s.Bytes, Bytes: 1 << 30})
		}
		before := uint64(0)
		for k, b := range blocks {
			at := a.alloc(uint64(a.layout.bytes))
			isMapped := !s.IsExpandable || k < len(blocks)-1
			a.setBlock(at, device, s, b, pools[s.Pool]+uint64(kind)*poolBytes, isMapped)
			a.setWord(at+uint64(a.layout.prev), before)
			if before != 0 {
				a.setWord(before+uint64(a.layout.next), at)
			}
			d := block{
				Block:        b,
				isActive:     b.Use != Cached,
				isMapped:     isMapped,
				isExpandable: s.IsExpandable,
				prev:         before,
			}
			if k < len(blocks)-1 {
				d.next = 1
			}
			sums.addBlock(&d, s.IsSmall)
			before = at
			switch {
			case b.Use != Cached:
				active = append(active, []uint64{at})
			case isMapped:
				cached[s.Pool][kind] = append(cached[s.Pool][kind], at)
			}
		}
	}
	for id, at := range pools {
		if cached[id] != nil {
			a.setPools(at, owners[id], *cached[id])
		}
	}
	a.setTable(object+fakePoolsAt+2*poolBytes, blockEntryBytes, active)
	var table [][]uint64
	for _, id := range slices.SortedFunc(maps.Keys(owners), func(a, b PoolID) int { return slices.Compare(a[:], b[:]) }) {
		table = append(table, []uint64{id[0], id[1], owners[id]})
	}
	a.setTable(object+fakeTableAt, poolEntryBytes, table)
	for s := range sums {
		for k := range sums[s] {
			a.setWord(object+statAddress(s, k), sums[s][k])
		}
	}
}

// statAddress returns the offset of the current value of a statistic.
func statAddress(stat, kind int) uint64 {
	return uint64(statsOffset + stat*arrayBytes + kind*statBytes)
}

func (a *fakeAllocator) setBlock(at uint64, device int, s *Segment, b Block, pool uint64, isMapped bool) {
	l := a.layout
	a.set(at+blockDeviceOffset, byte(device), 0x55, 0x55) // padding has any value
	a.setWord(at+blockStreamOffset, s.Stream)
	a.setWord(at+uint64(l.size), b.Bytes)
	a.setWord(at+uint64(l.requested), b.Requested)
	a.setWord(at+uint64(l.pool), pool)
	a.setWord(at+uint64(l.ptr), b.Address)
	if b.Use == Allocated {
		a.set(at+uint64(l.allocated), 1)
	}
	if isMapped {
		a.set(at+uint64(l.allocated)+1, 1)
	}
	if s.IsExpandable {
		a.setWord(at+uint64(l.expandable), 0x7f1234567890)
	}
}

// fakeSegments returns segments of all kinds.
func fakeSegments() []Segment {
	return []Segment{
		newSegment(0x7f1000000000, Segment{IsSmall: true}, 512, 1, 1024, 3, 2<<20-1536, 0),
		newSegment(0x7f1000200000, Segment{Stream: 0x5000}, 20<<20, 0),
		newSegment(0x7f2000000000, Segment{Pool: PoolID{0, 3}}, 5<<20, 1, 15<<20, 0),
		newSegment(0x7f2100000000, Segment{Pool: PoolID{7, 0}, IsSmall: true}, 2<<20, 0),
		newSegment(0x7f3000000000, Segment{IsExpandable: true}, 3<<20, 1, 1<<20, 0, 16<<20, 1),
		newSegment(0x7f4000000000, Segment{}, 4<<20, 1, 7<<20, 2, 9<<20, 0),
	}
}

// newSegment returns s with blocks: sizes, and 0 for cached, 1 for allocated, 2 for awaiting, or 3 for a block with a
// smaller request.
func newSegment(at uint64, s Segment, blocks ...uint64) Segment {
	s.Address = at
	for i := 0; i < len(blocks); i += 2 {
		b := Block{Address: at + s.Bytes, Bytes: blocks[i]}
		switch blocks[i+1] {
		case 1:
			b.Use, b.Requested = Allocated, b.Bytes
		case 2:
			b.Use, b.Requested = AwaitsStream, b.Bytes-100
		case 3:
			b.Use, b.Requested = Allocated, b.Bytes-511
		}
		s.Blocks = append(s.Blocks, b)
		s.Bytes += b.Bytes
	}
	return s
}
