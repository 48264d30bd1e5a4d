//go:build linux

package torchallocator

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
)

// fakeMemory is the memory of a process in a test.
type fakeMemory struct {
	pages map[uint64]*[pageBytes]byte
	// onRead, if not nil, is called before each call with its number.
	onRead func(n int)
	reads  int
	err    error
}

func (m *fakeMemory) ReadParts(parts []Part) (calls int, err error) {
	m.reads++
	if m.onRead != nil {
		m.onRead(m.reads)
	}
	for i := range parts {
		p := &parts[i]
		for n := 0; n < len(p.Data) && !p.IsMissing; {
			at := p.Address + uint64(n)
			page := m.pages[at&^(pageBytes-1)]
			if p.IsMissing = page == nil; !p.IsMissing {
				n += copy(p.Data[n:], page[at&(pageBytes-1):])
			}
		}
	}
	return 1, m.err
}

func (m *fakeMemory) set(at uint64, data ...byte) {
	for i, b := range data {
		page := (at + uint64(i)) &^ (pageBytes - 1)
		if m.pages[page] == nil {
			m.pages[page] = new([pageBytes]byte)
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
	c := &fakeMemory{pages: make(map[uint64]*[pageBytes]byte)}
	for at, page := range m.pages {
		c.pages[at] = new(*page)
	}
	return c
}

// fakeLayout has the places of members, and of what the reader searches each time.
type fakeLayout struct {
	layout
	vector       int // in the native allocator
	private      int // the table of private pools in the object of a device
	privatePools int // the BlockPools in a private pool
	distance     int // from the first BlockPool to the second
	smallFirst   bool
	blockBytes   int
	decoys       []int // places of unknown words in blocks
}

// newFakeLayout returns the layout of PyTorch 2.11 with a layout of blocks.
func newFakeLayout(l blockLayout) *fakeLayout {
	return &fakeLayout{
		layout: layout{
			deviceLayout{lock: 0, stats: mutexBytes, pools: [2]int{1024, 1144}, small: 96, active: 1264}, l,
		},
		vector: 0x5838, private: 2736, privatePools: 40, distance: 120, blockBytes: int(l.bytes()) + 8,
	}
}

// places hands out places in an object, in random order.
type places struct {
	random *rand.Rand
	free   []int // of units
}

func newPlaces(random *rand.Rand, from, to, unit int) *places {
	p := &places{random: random}
	for o := from; o+unit <= to; o += unit {
		p.free = append(p.free, o)
	}
	random.Shuffle(len(p.free), func(i, k int) { p.free[i], p.free[k] = p.free[k], p.free[i] })
	return p
}

func (p *places) take() int {
	o := p.free[0]
	p.free = p.free[1:]
	return o
}

// newRandomLayout returns a layout with random places.
func newRandomLayout(random *rand.Rand) *fakeLayout {
	l := &fakeLayout{distance: 8 * (14 + random.IntN(6)), smallFirst: random.IntN(2) == 0}
	l.small = 2*setBytes + random.IntN(l.distance-2*setBytes)
	l.vector = 8 * (1 + random.IntN(4000))
	l.privatePools = 8 * (2 + random.IntN(10))
	device := newPlaces(random, 0, 5120, 1024)
	l.stats = device.take() + 8*random.IntN(10) + mutexBytes
	l.lock = l.stats - mutexBytes
	l.pools[0] = device.take() + 8*random.IntN(10)
	l.pools[1] = l.pools[0] + l.distance
	l.active = device.take() + 8*random.IntN(100)
	l.private = device.take() + 8*random.IntN(100)
	l.blockBytes = 8 * (12 + random.IntN(18))
	block := newPlaces(random, firstMember, l.blockBytes, 8)
	for _, member := range []*int{&l.size, &l.requested, &l.pool, &l.ptr, &l.allocated, &l.next, &l.prev} {
		*member = block.take()
	}
	l.allocated += random.IntN(6)
	l.decoys = block.free
	return l
}

// fakeAllocator builds the allocator of a process in fakeMemory.
type fakeAllocator struct {
	*fakeMemory
	layout   *fakeLayout
	random   *rand.Rand
	next     uint64 // address of the next object on the heap
	variable uint64
	objects  []uint64
}

const (
	fakeVariable   = 0x10000
	fakeNative     = 0x20000
	fakeVTable     = 0x18000
	fakeObjectSize = objectBytes
)

// newFakeAllocator returns an allocator with empty devices.
func newFakeAllocator(l *fakeLayout, devices int) *fakeAllocator {
	a := &fakeAllocator{
		fakeMemory: &fakeMemory{pages: make(map[uint64]*[pageBytes]byte)}, layout: l, next: 0x7f0000000010,
		random: rand.New(rand.NewPCG(1, 2)),
	}
	a.variable = fakeVariable
	a.setWord(fakeVariable, fakeNative)
	a.set(fakeNative, make([]byte, nativeBytes)...)
	a.setClass("N3c104cuda20CUDACachingAllocator" + nativeClass)
	list := a.alloc(uint64(8 * devices))
	vector := fakeNative + uint64(l.vector)
	a.setWord(vector, list)
	a.setWord(vector+8, list+uint64(8*devices))
	a.setWord(vector+16, list+uint64(8*devices))
	for i := range devices {
		at := a.alloc(fakeObjectSize)
		a.objects = append(a.objects, at)
		a.setWord(list+uint64(8*i), at)
		a.set(at+uint64(l.lock)+kindOffset, recursiveMutex)
		a.setPools(at+uint64(l.pools[0]), [2][]uint64{})
		a.setTable(at+uint64(l.active), blockEntryBytes, nil)
		a.setTable(at+uint64(l.private), poolEntryBytes, nil)
	}
	return a
}

// setClass gives the native allocator a class.
func (a *fakeAllocator) setClass(mangled string) {
	a.setWord(fakeNative, fakeVTable+8)
	a.setWord(fakeVTable, fakeVTable+0x100)       // type information
	a.setWord(fakeVTable+0x108, fakeVTable+0x200) // its name
	a.set(fakeVTable+0x200, append([]byte(mangled), 0)...)
}

// alloc returns zeroed memory on the heap.
func (a *fakeAllocator) alloc(bytes uint64) uint64 {
	at := a.next
	a.next += (bytes + 31) / 16 * 16
	a.set(at, make([]byte, bytes)...)
	return at
}

// setPools writes two BlockPools, with the cached blocks of the large and of the small one.
func (a *fakeAllocator) setPools(at uint64, cached [2][]uint64) {
	for k := range uint64(2) {
		pool := a.pool(at, k == 1)
		a.setSet(pool, 0x401000, cached[k])
		a.setSet(pool+setBytes, 0x402000, nil)
		a.set(pool+uint64(a.layout.small), byte(k))
	}
}

// pool returns the address of one of two BlockPools.
func (a *fakeAllocator) pool(at uint64, isSmall bool) uint64 {
	if isSmall != a.layout.smallFirst {
		at += uint64(a.layout.distance)
	}
	return at
}

// setSet writes a std::set.
func (a *fakeAllocator) setSet(at, compare uint64, values []uint64) {
	head := at + setHeadOffset
	a.setWord(at, compare)
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

// setTable writes a ska hash table with entries: their bytes behind the distance. The first word is hashed.
func (a *fakeAllocator) setTable(at, entryBytes uint64, entries [][]uint64) {
	t := table{slots: 1, reach: 4, shift: 63}
	if len(entries) > 0 {
		for t.slots, t.shift = 4, 62; t.slots < 2*uint64(len(entries)); t.slots *= 2 {
			t.shift--
		}
	}
	var taken map[uint64][]uint64 // by place
	for {
		if taken = a.place(t, entries); taken != nil {
			break
		}
		t.reach++
	}
	list := a.alloc((t.slots + t.reach) * entryBytes)
	for i := range t.slots + t.reach {
		a.set(list+i*entryBytes, 0xff) // empty
	}
	for i, entry := range taken {
		slot := entry[0] * fibonacci >> t.shift
		a.set(list+i*entryBytes, byte(i-slot))
		for k, value := range entry {
			a.setWord(list+i*entryBytes+8+uint64(8*k), value)
		}
	}
	a.set(list+(t.slots+t.reach-1)*entryBytes, 0) // the end
	a.setWord(at, list)
	a.setWord(at+tableMaskOffset, t.slots-1)
	a.setWord(at+tableShiftOffset, uint64(t.shift)|t.reach<<8|tableLoad<<32)
	a.setWord(at+tableCountOffset, uint64(len(entries)))
}

// place finds places for entries of a table, or returns nil if one is too far from its slot.
func (a *fakeAllocator) place(t table, entries [][]uint64) map[uint64][]uint64 {
	taken := make(map[uint64][]uint64)
	for _, entry := range entries {
		slot := entry[0] * fibonacci >> t.shift
		i := slot
		for taken[i] != nil {
			i++
		}
		if i-slot >= t.reach {
			return nil
		}
		taken[i] = entry
	}
	return taken
}

// fill writes segments into a device's allocator, with the statistics that they have.
func (a *fakeAllocator) fill(device int, segments []Segment) {
	l := a.layout
	object := a.objects[device]
	pools := map[PoolID]uint64{{}: object + uint64(l.pools[0])}
	owners := map[PoolID]uint64{}
	for _, s := range segments {
		if _, ok := pools[s.Pool]; !ok {
			owners[s.Pool] = a.alloc(privatePoolBytes)
			a.setWord(owners[s.Pool], s.Pool[0])
			a.setWord(owners[s.Pool]+8, s.Pool[1])
			pools[s.Pool] = owners[s.Pool] + uint64(l.privatePools)
		}
	}
	cached := make(map[PoolID]*[2][]uint64)
	var active [][]uint64
	var sums totals
	for i := range segments {
		s := &segments[i]
		if cached[s.Pool] == nil {
			cached[s.Pool] = new([2][]uint64)
		}
		for _, b := range a.addSegment(device, s, a.pool(pools[s.Pool], s.IsSmall)) {
			sums.addBlock(&b, s.IsSmall)
			switch {
			case b.isActive:
				active = append(active, []uint64{b.at})
			case b.isMapped:
				list := &cached[s.Pool][0]
				if s.IsSmall {
					list = &cached[s.Pool][1]
				}
				*list = append(*list, b.at)
			}
		}
	}
	for id, at := range pools {
		if cached[id] != nil {
			a.setPools(at, *cached[id])
		}
	}
	a.setTable(object+uint64(l.active), blockEntryBytes, active)
	var table [][]uint64
	for _, id := range slices.SortedFunc(maps.Keys(owners), func(a, b PoolID) int { return slices.Compare(a[:], b[:]) }) {
		table = append(table, []uint64{id[0], id[1], owners[id]})
	}
	a.setTable(object+uint64(l.private), poolEntryBytes, table)
	for s := range sums {
		for k := range sums[s] {
			a.setWord(object+a.statAddress(s, k), sums[s][k])
		}
	}
}

// addSegment writes the blocks of a segment.
func (a *fakeAllocator) addSegment(device int, s *Segment, pool uint64) (list []block) {
	l := a.layout
	blocks := slices.Clone(s.Blocks)
	if s.IsExpandable { // address space without memory behind it
		blocks = append(blocks, Block{Address: s.Address + s.Bytes, Bytes: 1 << 30})
	}
	before := uint64(0)
	for k, b := range blocks {
		at := a.alloc(uint64(l.blockBytes))
		isMapped := !s.IsExpandable || k < len(blocks)-1
		a.setBlock(at, device, s, b, pool, isMapped)
		a.setWord(at+uint64(l.prev), before)
		if before != 0 {
			a.setWord(before+uint64(l.next), at)
		}
		d := block{
			Block: b, at: at, isActive: b.Use != Cached, isMapped: isMapped, isExpandable: s.IsExpandable, prev: before,
		}
		if k < len(blocks)-1 {
			d.next = 1
		}
		list = append(list, d)
		before = at
	}
	return list
}

// statAddress returns the offset of the current value of a statistic.
func (a *fakeAllocator) statAddress(stat, kind int) uint64 {
	return uint64(a.layout.stats + stat*arrayBytes + kind*statBytes)
}

func (a *fakeAllocator) setBlock(at uint64, device int, s *Segment, b Block, pool uint64, isMapped bool) {
	l := a.layout
	for i, o := range l.decoys {
		a.setWord(at+uint64(o), a.decoy(i, b))
	}
	a.set(at+blockDeviceOffset, byte(device), 0x55, 0x55) // padding has any value
	a.setWord(at+blockStreamOffset, s.Stream)
	a.setWord(at+uint64(l.size), b.Bytes)
	a.setWord(at+uint64(l.requested), b.Requested)
	a.setWord(at+uint64(l.pool), pool)
	a.setWord(at+uint64(l.ptr), b.Address)
	a.set(at+uint64(l.allocated), 0, 0)
	if b.Use == Allocated {
		a.set(at+uint64(l.allocated), 1)
	}
	if isMapped {
		a.set(at+uint64(l.allocated)+1, 1)
	}
	if s.IsExpandable && l.expandable != 0 {
		a.setWord(at+uint64(l.expandable), 0x7f1234567890)
	}
}

// decoy returns a word of a member that the reader does not know.
func (a *fakeAllocator) decoy(kind int, b Block) uint64 {
	switch kind % 5 {
	case 0:
		return uint64(a.random.IntN(3))
	case 1:
		return a.next &^ 0xfff // a pointer to the heap
	case 2:
		return b.Bytes + uint64(a.random.IntN(3))*blockUnit
	case 3:
		return b.Address + 8
	}
	return 0
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
