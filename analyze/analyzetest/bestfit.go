package analyzetest

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/format"
)

// BestFitProgram is a program on PyTorch's caching allocator. A test plans its allocations and frees in any order, and
// Run executes them in order of time. The allocator has expandable segments: it gives a request the smallest free range
// that is large enough, so addresses are given out again as in PyTorch.
type BestFitProgram struct {
	recording *TestRecording
	plan      []plannedCall
	blocks    []plannedBlock
	arenas    map[arenaKey]*bestFitArena
	totals    map[int32]*arenaTotals // by pid
	nextArena int64
}

// plannedCall is the allocation or the free of a block at a time, ns from the start of the recording.
type plannedCall struct {
	at     int64
	block  int32
	isFree bool
}

// plannedBlock is a block of the plan.
type plannedBlock struct {
	pid        int32
	bytes, ptr int64
	stack      int32
	site       string
	stream     int64
}

// arenaKey identifies the memory in which a request is placed.
type arenaKey struct {
	pid     int32
	stream  int64
	isSmall bool
}

type arenaTotals struct{ allocated, reserved int64 }

// bestFitArena is a mapped range of an expandable segment.
type bestFitArena struct {
	free   []freeRange // by size, then address
	starts map[int64]int64
	ends   map[int64]int64
}

type freeRange struct{ bytes, ptr int64 }

const arenaBytes = int64(32) << 30

// NewBestFitProgram returns a program without allocations.
func NewBestFitProgram(recording *TestRecording) *BestFitProgram {
	return &BestFitProgram{
		recording: recording, arenas: make(map[arenaKey]*bestFitArena), totals: make(map[int32]*arenaTotals),
		nextArena: 0x1000_0000_0000,
	}
}

// AddProcess adds a process with its allocator.
func (p *BestFitProgram) AddProcess(pid int32) {
	p.recording.AddRow(format.Row{
		Kind:    format.KindProcess,
		Name:    "python3",
		Pid:     pid,
		StartNs: Epoch,
		Device:  -1,
		Message: `{"exe":"/usr/bin/python3"}`,
	})
	p.recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteAllocator, Pid: pid, StartNs: Epoch,
		Message: `{"allocator":"torch","conf":"` + TorchConf{Expandable: true}.String() + `"}`,
	})
}

// Alloc plans the allocation of a block at a time, ns from the start of the recording. It returns the number of the
// block.
func (p *BestFitProgram) Alloc(at, bytes int64, stack int32, site string) int32 {
	return p.AllocIn(42, 0, at, bytes, stack, site)
}

// AllocIn is Alloc of a process and a stream.
func (p *BestFitProgram) AllocIn(pid int32, stream, at, bytes int64, stack int32, site string) int32 {
	n := int32(len(p.blocks))
	p.blocks = append(p.blocks, plannedBlock{pid: pid, bytes: bytes, stack: stack, site: site, stream: stream})
	p.plan = append(p.plan, plannedCall{at, n, false})
	return n
}

// Free plans the free of a block. A time after the end of the recording has no effect.
func (p *BestFitProgram) Free(at int64, block int32) {
	p.plan = append(p.plan, plannedCall{at, block, true})
}

// CountPlanned returns the number of planned calls.
func (p *BestFitProgram) CountPlanned() int { return len(p.plan) }

// Run executes the plan.
func (p *BestFitProgram) Run() {
	slices.SortStableFunc(p.plan, func(a, b plannedCall) int { return cmp.Compare(a.at, b.at) })
	last := int64(0)
	for _, c := range p.plan {
		if c.at = max(c.at, last+1); Epoch+c.at >= p.recording.Meta.EndNs {
			break
		}
		b := &p.blocks[c.block]
		size := max(512, (b.bytes+511)/512*512)
		arena, t := p.arenaOf(b, c.at)
		last = c.at + 2
		if !c.isFree {
			b.ptr = arena.take(size)
			SetStackAndSite(p.addEvent(format.AllocatorAlloc, last, b, t), b.stack, b.site)
			t.allocated += size
			continue
		}
		t.allocated -= size
		p.addEvent(format.AllocatorFreeRequested, last, b, t)
		last++
		p.addEvent(format.AllocatorFreeCompleted, last, b, t)
		arena.give(freeRange{size, b.ptr})
	}
}

// arenaOf returns the memory for a block, and the totals of its process.
func (p *BestFitProgram) arenaOf(b *plannedBlock, at int64) (*bestFitArena, *arenaTotals) {
	t := p.totals[b.pid]
	if t == nil {
		t = new(arenaTotals)
		p.totals[b.pid] = t
	}
	key := arenaKey{b.pid, b.stream, b.bytes <= Mib}
	arena := p.arenas[key]
	if arena == nil {
		arena = &bestFitArena{starts: make(map[int64]int64), ends: make(map[int64]int64)}
		p.arenas[key] = arena
		t.reserved += arenaBytes
		p.addEvent(format.AllocatorSegmentMap, at, &plannedBlock{
			pid: b.pid, bytes: arenaBytes, ptr: p.nextArena, stream: b.stream,
		}, t)
		arena.insert(freeRange{arenaBytes, p.nextArena})
		p.nextArena += 2 * arenaBytes
	}
	return arena, t
}

func (p *BestFitProgram) addEvent(name string, at int64, b *plannedBlock, t *arenaTotals) *format.Row {
	return p.recording.AddRow(format.Row{
		Kind:           format.KindAllocator,
		Name:           name,
		StartNs:        Epoch + at,
		Pid:            b.pid,
		Tid:            b.pid,
		MemoryKind:     format.MemoryTorch,
		Ptr:            b.ptr,
		Bytes:          b.bytes,
		Stream:         b.stream,
		StackStatus:    format.StackNone,
		AllocatedBytes: t.allocated,
		ReservedBytes:  t.reserved,
	})
}

// take removes size bytes from the smallest free range that has as many.
func (a *bestFitArena) take(size int64) (ptr int64) {
	i := a.find(freeRange{size, math.MinInt64})
	f := a.free[i]
	a.remove(f)
	if f.bytes > size {
		a.insert(freeRange{f.bytes - size, f.ptr + size})
	}
	return f.ptr
}

// give adds a free range, and joins it with its neighbors.
func (a *bestFitArena) give(f freeRange) {
	if bytes, ok := a.starts[f.ptr+f.bytes]; ok {
		a.remove(freeRange{bytes, f.ptr + f.bytes})
		f.bytes += bytes
	}
	if bytes, ok := a.ends[f.ptr]; ok {
		before := freeRange{bytes, f.ptr - bytes}
		a.remove(before)
		f = freeRange{f.bytes + bytes, before.ptr}
	}
	a.insert(f)
}

func (a *bestFitArena) find(f freeRange) int {
	return sort.Search(len(a.free), func(i int) bool {
		return cmp.Or(cmp.Compare(a.free[i].bytes, f.bytes), cmp.Compare(a.free[i].ptr, f.ptr)) >= 0
	})
}

func (a *bestFitArena) insert(f freeRange) {
	a.free = slices.Insert(a.free, a.find(f), f)
	a.starts[f.ptr], a.ends[f.ptr+f.bytes] = f.bytes, f.bytes
}

func (a *bestFitArena) remove(f freeRange) {
	i := a.find(f)
	a.free = slices.Delete(a.free, i, i+1)
	delete(a.starts, f.ptr)
	delete(a.ends, f.ptr+f.bytes)
}
