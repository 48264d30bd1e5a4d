//go:build linux

package torchallocator

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// modelAllocator is an allocator that works in fake memory. It changes as little memory as PyTorch's: objects stay at
// their places, and the memory of a deleted object is that of the next new one.
type modelAllocator struct {
	*fakeAllocator
	random *rand.Rand
	pools  [2]modelPool // large, small
	blocks map[uint64]*modelBlock
	active []*modelBlock // allocated or awaiting
	stats  totals
	shift  byte
	// freed has the places of deleted blocks and nodes. The last one is used first.
	freedBlocks, freedNodes []uint64
	freedSegments           []uint64
	nextSegment             uint64
	history                 []modelMoment
	clock                   int64
}

// modelMoment has the segments since a time.
type modelMoment struct {
	ns       int64
	segments []Segment
}

type modelPool struct {
	at      uint64
	isSmall bool
	free    []*modelBlock // in the order of the set
	nodes   map[*modelBlock]uint64
}

// modelBlock is a block. In the memory, it is at the address at.
type modelBlock struct {
	Block
	at         uint64
	pool       *modelPool
	prev, next *modelBlock
	isOld      bool // the program seldom frees it
}

// modelSlots is the number of slots of the table of active blocks.
const modelSlots = 1 << 10

// newModelAllocator returns an allocator without blocks.
func newModelAllocator(seed uint64) *modelAllocator {
	m := &modelAllocator{
		fakeAllocator: newFakeAllocator(newFakeLayout(blockLayouts[0]), 1), random: rand.New(rand.NewPCG(seed, 11)),
		blocks: make(map[uint64]*modelBlock), shift: 54, nextSegment: 0x7f1000000000,
	}
	pools := m.objects[0] + uint64(m.layout.pools[0])
	for k := range m.pools {
		m.pools[k] = modelPool{at: m.pool(pools, k == 1), isSmall: k == 1, nodes: make(map[*modelBlock]uint64)}
	}
	const reach = 32
	entries := m.alloc((modelSlots + reach) * blockEntryBytes)
	for i := range uint64(modelSlots + reach) {
		m.set(entries+i*blockEntryBytes, 0xff)
	}
	table := m.objects[0] + uint64(m.layout.active)
	m.setWord(table, entries)
	m.setWord(table+tableMaskOffset, modelSlots-1)
	m.setWord(table+tableShiftOffset, uint64(m.shift)|reach<<8|tableLoad<<32)
	return m
}

// take returns the memory of a deleted object, or new memory. Its content is that of the object.
func (m *modelAllocator) take(freed *[]uint64, bytes uint64) (at uint64) {
	if n := len(*freed); n > 0 {
		at, *freed = (*freed)[n-1], (*freed)[:n-1]
		return at
	}
	return m.alloc(bytes)
}

// write writes a block into the memory.
func (m *modelAllocator) write(b *modelBlock) {
	l, isAllocated := &m.layout.blockLayout, byte(0)
	if b.Use == Allocated {
		isAllocated = 1
	}
	m.set(b.at+blockDeviceOffset, 0)
	m.setWord(b.at+blockStreamOffset, 0)
	m.setWord(b.at+uint64(l.size), b.Bytes)
	m.setWord(b.at+uint64(l.pool), b.pool.at)
	m.setWord(b.at+uint64(l.ptr), b.Address)
	m.set(b.at+uint64(l.allocated), isAllocated, 1)
	if b.Use == Allocated { // a free block keeps its last request
		m.setWord(b.at+uint64(l.requested), b.Requested)
	}
	for offset, neighbor := range map[int]*modelBlock{l.prev: b.prev, l.next: b.next} {
		at := uint64(0)
		if neighbor != nil {
			at = neighbor.at
		}
		m.setWord(b.at+uint64(offset), at)
	}
}

// count adds a block to the statistics, or subtracts it.
func (m *modelAllocator) count(b *modelBlock, sign uint64) {
	var sums totals
	d := block{Block: b.Block, isActive: b.Use != Cached, isMapped: true}
	if b.prev != nil {
		d.prev = 1
	}
	if b.next != nil {
		d.next = 1
	}
	sums.addBlock(&d, b.pool.isSmall)
	for s := range sums {
		for k := range sums[s] {
			m.stats[s][k] += sign * sums[s][k]
		}
	}
}

// writeStats writes the statistics, and how many changes there were.
func (m *modelAllocator) writeStats() {
	for s := range m.stats {
		for k := range m.stats[s] {
			at := m.objects[0] + m.statAddress(s, k)
			if m.word(at) != m.stats[s][k] {
				m.setWord(at, m.stats[s][k])
			}
		}
	}
	for k := range 2 { // the sums of increases
		changes := m.objects[0] + m.statAddress(allocationStat, k) + 16
		m.setWord(changes, m.word(changes)+1)
	}
}

// list adds a block to the table of active blocks.
func (m *modelAllocator) list(b *modelBlock) {
	table := m.objects[0] + uint64(m.layout.active)
	entry := m.word(table) + b.at*fibonacci>>m.shift*blockEntryBytes
	for distance := byte(0); ; distance++ {
		if int8(m.word(entry)) < 0 {
			m.set(entry, distance)
			m.setWord(entry+8, b.at)
			break
		}
		entry += blockEntryBytes
	}
	m.setWord(table+tableCountOffset, m.word(table+tableCountOffset)+1)
	m.active = append(m.active, b)
}

// unlist deletes a block from the table of active blocks.
func (m *modelAllocator) unlist(b *modelBlock) {
	table := m.objects[0] + uint64(m.layout.active)
	entry := m.word(table) + b.at*fibonacci>>m.shift*blockEntryBytes
	for int8(m.word(entry)) < 0 || m.word(entry+8) != b.at {
		entry += blockEntryBytes
	}
	m.set(entry, 0xff)
	m.setWord(table+tableCountOffset, m.word(table+tableCountOffset)-1)
	m.active = slices.DeleteFunc(m.active, func(a *modelBlock) bool { return a == b })
}

// insert adds a block to the set of its pool, and erase deletes it.
func (m *modelAllocator) insert(b *modelBlock) {
	p := b.pool
	i, _ := slices.BinarySearchFunc(p.free, b, compareModelBlocks)
	p.free = slices.Insert(p.free, i, b)
	p.nodes[b] = m.take(&m.freedNodes, nodeBytes)
	m.writeSet(p)
}

func (m *modelAllocator) erase(b *modelBlock) {
	p := b.pool
	p.free = slices.DeleteFunc(p.free, func(f *modelBlock) bool { return f == b })
	m.freedNodes = append(m.freedNodes, p.nodes[b])
	delete(p.nodes, b)
	m.writeSet(p)
}

func compareModelBlocks(a, b *modelBlock) int {
	return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Address, b.Address))
}

// writeSet writes a set as a balanced tree.
func (m *modelAllocator) writeSet(p *modelPool) {
	head := p.at + setHeadOffset
	root, first, last := uint64(0), head, head
	if n := len(p.free); n > 0 {
		root, first, last = m.writeTree(p, p.free), p.nodes[p.free[0]], p.nodes[p.free[n-1]]
	}
	for offset, value := range map[uint64]uint64{
		setRootOffset: root, setFirstOffset: first, setLastOffset: last, setCountOffset: uint64(len(p.free)),
	} {
		m.setWord(p.at+offset, value)
	}
}

func (m *modelAllocator) writeTree(p *modelPool, list []*modelBlock) (root uint64) {
	if len(list) == 0 {
		return 0
	}
	middle := len(list) / 2
	at := p.nodes[list[middle]]
	m.setWord(at+nodeLeftOffset, m.writeTree(p, list[:middle]))
	m.setWord(at+nodeRightOffset, m.writeTree(p, list[middle+1:]))
	m.setWord(at+nodeValueOffset, list[middle].at)
	return at
}

// newBlock returns a block.
func (m *modelAllocator) newBlock(p *modelPool, address, bytes uint64) *modelBlock {
	b := &modelBlock{Block: Block{Address: address, Bytes: bytes}, pool: p}
	b.at = m.take(&m.freedBlocks, uint64(m.layout.blockBytes))
	m.blocks[b.at] = b
	return b
}

func (m *modelAllocator) deleteBlock(b *modelBlock) {
	delete(m.blocks, b.at)
	m.freedBlocks = append(m.freedBlocks, b.at)
}

// modelSegment is the size of a segment.
const modelSegment = 64 << 10

// malloc allocates a block: the smallest free one, whose rest becomes a block of its own.
func (m *modelAllocator) malloc(p *modelPool, request uint64) *modelBlock {
	bytes := (request + blockUnit - 1) / blockUnit * blockUnit
	i := slices.IndexFunc(p.free, func(b *modelBlock) bool { return b.Bytes >= bytes })
	var b *modelBlock
	if i < 0 {
		address := m.nextSegment
		if n := len(m.freedSegments); n > 0 {
			address, m.freedSegments = m.freedSegments[0], m.freedSegments[1:n:n]
		} else {
			m.nextSegment += 2 * modelSegment
		}
		b = m.newBlock(p, address, modelSegment)
	} else {
		b = p.free[i]
		m.erase(b)
		m.count(b, ^uint64(0))
	}
	if rest := b; b.Bytes > bytes {
		b = m.newBlock(p, rest.Address, bytes)
		b.prev, b.next = rest.prev, rest
		if b.prev != nil {
			b.prev.next = b
			m.write(b.prev)
		}
		rest.prev = b
		rest.Address += bytes
		rest.Bytes -= bytes
		m.write(rest)
		m.insert(rest)
		m.count(rest, 1)
	}
	b.Use, b.Requested = Allocated, request
	m.write(b)
	m.list(b)
	m.count(b, 1)
	m.writeStats()
	return b
}

// await makes a stream use a block that the program frees.
func (m *modelAllocator) await(b *modelBlock) {
	m.count(b, ^uint64(0))
	b.Use = AwaitsStream
	m.write(b)
	m.count(b, 1)
	m.writeStats()
}

// free frees a block, and merges it with free neighbors.
func (m *modelAllocator) free(b *modelBlock) {
	m.count(b, ^uint64(0))
	m.unlist(b)
	b.Use, b.Requested, b.isOld = Cached, 0, false
	for _, n := range []*modelBlock{b.prev, b.next} {
		if n == nil || n.Use != Cached {
			continue
		}
		m.count(n, ^uint64(0))
		m.erase(n)
		if b.Bytes += n.Bytes; n == b.prev {
			b.Address, b.prev = n.Address, n.prev
			if b.prev != nil {
				b.prev.next = b
				m.write(b.prev)
			}
		} else if b.next = n.next; b.next != nil {
			b.next.prev = b
			m.write(b.next)
		}
		m.deleteBlock(n)
	}
	m.write(b)
	m.insert(b)
	m.count(b, 1)
	m.writeStats()
}

// release gives all free segments back.
func (m *modelAllocator) release() {
	for k := range m.pools {
		for _, b := range slices.Clone(m.pools[k].free) {
			if b.prev == nil && b.next == nil {
				m.count(b, ^uint64(0))
				m.erase(b)
				m.freedSegments = append(m.freedSegments, b.Address)
				m.deleteBlock(b)
				m.writeStats()
			}
		}
	}
}

// segments returns the segments as they are now.
func (m *modelAllocator) segments() (list []Segment) {
	for _, b := range m.blocks {
		if b.prev != nil {
			continue
		}
		s := Segment{Address: b.Address, IsSmall: b.pool.isSmall}
		for ; b != nil; b = b.next {
			s.Bytes += b.Bytes
			s.Blocks = append(s.Blocks, b.Block)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Segment) int { return cmp.Compare(a.Address, b.Address) })
	return list
}
