package analyze

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
)

// torchWorld is a caching allocator of one process and device that works as PyTorch's
// does, written with nothing but lists, and writes down its events as a recorder sees
// them. Every operation is followed by a sample of its books.
type torchWorld struct {
	tp          *tape
	r           *rand.Rand
	pid, device int32
	now         int64 // from the beginning of the recording
	conf        torchConf
	capacity    int64
	driver      bool // its calls of the driver are recorded
	silent      bool // its own totals are not known to the recorder
	// patient programs do not free a block right after its allocation, in which case
	// nothing but the rules tells its size.
	patient bool

	segments []*torchSegment
	held     []*torchBlock // that the program has
	nextVA   int64
	samples  []torchSample
	last     *format.Row
	peak     int64 // most bytes requested, where a test keeps that up
	// As the allocator counts them itself.
	allocated, requested, active, allocations, reserved, cudaMallocs int64
}

type torchConf struct {
	expandable bool
	maxSplit   int64
	divisions  int64
	reports    bool // the allocator is known by its reports
}

// source is what a note about the allocator says of that.
func (c torchConf) source() string {
	if !c.reports {
		return ""
	}
	return `,"source":"` + format.SourceReports + `","limits":"PyTorch's allocations are recorded without bytes asked for"`
}

func (c torchConf) String() string {
	text := fmt.Sprintf("garbage_collection_threshold:0.8,expandable_segments:%s", map[bool]string{true: "True", false: "False"}[c.expandable])
	if c.maxSplit > 0 {
		text += fmt.Sprintf(",max_split_size_mb:%d", c.maxSplit>>20)
	}
	if c.divisions > 0 {
		text += fmt.Sprintf(", roundup_power2_divisions:%d", c.divisions)
	}
	return text
}

// torchSegment is memory of cudaMalloc, or the addresses of an expandable segment.
type torchSegment struct {
	ptr        int64
	stream     int64
	pool       int64
	small      bool
	expandable bool
	blocks     []*torchBlock // by address, no holes
}

type torchBlock struct {
	segment         *torchSegment
	ptr, size       int64
	requested       int64
	inUse, awaiting bool
	unmapped        bool
	streams         bool // used on another stream
	row             *format.Row
}

func (b *torchBlock) free() bool { return !b.inUse && !b.awaiting && !b.unmapped }

// torchSample is the truth after an operation.
type torchSample struct {
	atNs   int64
	totals caching.Totals
	blocks map[int64]state.Block
	after  string // the newest event
}

func newTorchWorld(tp *tape, r *rand.Rand, pid, device int32, conf torchConf) *torchWorld {
	return &torchWorld{tp: tp, r: r, pid: pid, device: device, conf: conf, capacity: 400 * mib, nextVA: int64(0x7f0000000000) + int64(device)<<40, now: 1000 + r.Int64N(100)}
}

// row writes an event with the books as they are now.
func (w *torchWorld) row(name string, ptr, bytes int64, s *torchSegment) *format.Row {
	w.now += 1 + w.r.Int64N(40)
	if w.conf.reports {
		return w.report(name, ptr)
	}
	r := w.tp.add(format.Row{Kind: format.KindAllocator, Name: name, StartNs: epoch + w.now, Pid: w.pid, Tid: w.pid + w.r.Int32N(3), Device: w.device,
		MemoryKind: format.MemoryTorch, Ptr: ptr, Bytes: bytes, StackStatus: format.StackNone, AllocatedBytes: w.allocated, ReservedBytes: w.reserved})
	if s != nil {
		r.Stream, r.SrcPtr = s.stream, s.pool
	}
	if w.silent {
		r.AllocatedBytes, r.ReservedBytes = -1, -1
	}
	w.last = r
	return r
}

func (w *torchWorld) round(size int64) int64 {
	if d := w.conf.divisions; d > 1 && size > 512*d {
		power := int64(1)
		for power*2 <= size {
			power *= 2
		}
		return (size + power/d - 1) / (power / d) * (power / d)
	}
	return max(512, (size+511)/512*512)
}

// step makes one operation.
func (w *torchWorld) step() {
	switch n := w.r.IntN(100); {
	case n < 48 || w.last == nil || len(w.held) == 0:
		w.malloc()
	case n < 90:
		if b := w.held[w.r.IntN(len(w.held))]; !w.patient || b.row != w.last {
			w.free(b)
		}
	case n < 95:
		w.held[w.r.IntN(len(w.held))].streams = true
	case n < 97:
		w.complete(func(*torchBlock) bool { return w.r.IntN(2) == 0 })
	case n < 98:
		w.emptyCache()
	case n < 99:
		last := w.last
		r := w.row(format.AllocatorSnapshot, 0, 7, nil)
		w.last = last
		r.Device = 0
		if w.device != 0 {
			r.AllocatedBytes, r.ReservedBytes = 1, 2 // of another device, for all that a reader knows
		}
	default: // keep it from growing for ever
		for len(w.held) > 20 {
			w.free(w.held[0]) // not the newest one
		}
	}
	sample := torchSample{atNs: w.now, totals: w.totals(), after: w.last.Name}
	if w.r.IntN(100) == 0 {
		sample.blocks = w.blocks()
	}
	w.samples = append(w.samples, sample)
}

// report writes what an allocator known by its reports tells, if it does; bytes, and the books
// after an alloc, are set by the caller.
func (w *torchWorld) report(name string, ptr int64) *format.Row {
	name, ok := map[string]string{format.AllocatorAlloc: format.AllocatorReportedAlloc, format.AllocatorFreeRequested: format.AllocatorReportedFree}[name]
	if !ok {
		return new(format.Row)
	}
	return w.tp.add(format.Row{Kind: format.KindAllocator, Name: name, StartNs: epoch + w.now, Pid: w.pid, Tid: w.pid, Device: w.device,
		MemoryKind: format.MemoryTorch, Ptr: ptr, StackStatus: format.StackNone, AllocatedBytes: w.allocated, ReservedBytes: w.reserved})
}

func (w *torchWorld) malloc() {
	sizes := []int64{1 + w.r.Int64N(2000), 1 + w.r.Int64N(mib), mib + w.r.Int64N(9*mib), 1 + w.r.Int64N(60*mib)}
	want := sizes[w.r.IntN(len(sizes))]
	if len(w.held) > 300 {
		want = 1 + w.r.Int64N(300)
	}
	pools := []int64{0, 0, 0, 0, 1, -2}
	w.complete(func(*torchBlock) bool { return w.r.IntN(6) == 0 })
	if b := w.alloc(want, torchSegment{stream: 0x100 * w.r.Int64N(3), pool: pools[w.r.IntN(len(pools))]}); b != nil {
		at(b.row, 1+w.r.Int32N(3), fmt.Sprintf("site %d", w.r.IntN(5)))
	}
}

// alloc hands out a block on the stream and of the pool of a key, or nothing.
func (w *torchWorld) alloc(want int64, key torchSegment) *torchBlock {
	size := w.round(want)
	key.small = size <= mib
	b := w.bestFit(&key, size)
	if b == nil {
		if b = w.grow(&key, size); b == nil {
			w.emptyCache()
			b = w.grow(&key, size)
		}
	}
	if b == nil {
		w.row(format.AllocatorOOM, 0, size, &key).Value = float64(w.capacity - w.reserved)
		return nil
	}
	remaining := b.size - size
	split := remaining > mib && (w.conf.maxSplit == 0 || size < w.conf.maxSplit)
	if key.small || w.conf.expandable {
		split = remaining >= 512
	}
	if remaining > 0 && !w.conf.expandable && w.r.IntN(20) == 0 && w.patient && !w.silent {
		split = true // as when a graph's pool is brought back to an earlier state
	}
	if split {
		w.insert(b, &torchBlock{segment: b.segment, ptr: b.ptr + size, size: remaining})
		b.size = size
	}
	b.inUse, b.requested = true, want
	b.row = w.row(format.AllocatorAlloc, b.ptr, want, b.segment)
	w.allocated += b.size
	w.active += b.size
	w.requested += want
	w.allocations++
	if w.conf.reports {
		b.row.Bytes, b.row.AllocatedBytes = b.size, w.allocated
	}
	w.held = append(w.held, b)
	return b
}

// bestFit returns the smallest free block that is large enough.
func (w *torchWorld) bestFit(key *torchSegment, size int64) (best *torchBlock) {
	for _, s := range w.segments {
		if s.stream != key.stream || s.pool != key.pool || s.small != key.small || s.expandable != w.conf.expandable {
			continue
		}
		for _, b := range s.blocks {
			if b.free() && b.size >= size && (best == nil || b.size < best.size || b.size == best.size && b.ptr < best.ptr) {
				best = b
			}
		}
	}
	if m := w.conf.maxSplit; best != nil && m > 0 && (size < m && best.size >= m || size >= m && best.size >= size+20*mib) {
		return nil
	}
	return best
}

func (w *torchWorld) grow(key *torchSegment, size int64) *torchBlock {
	if w.conf.expandable {
		return w.expand(key, size)
	}
	bytes := (size + 2*mib - 1) / (2 * mib) * (2 * mib)
	if key.small {
		bytes = 2 * mib
	} else if size < 10*mib {
		bytes = 20 * mib
	}
	if w.reserved+bytes > w.capacity {
		return nil
	}
	s := *key
	s.ptr = w.nextVA
	w.nextVA += bytes + w.r.Int64N(2)*2*mib // next to each other, or not
	s.blocks = []*torchBlock{{segment: &s, ptr: s.ptr, size: bytes}}
	w.segments = append(w.segments, &s)
	w.reserved += bytes
	w.cudaMallocs++
	w.calls(func(ns int64) { w.call(w.tp.alloc(ns, 5, s.ptr, bytes)) })
	at(w.row(format.AllocatorSegmentAlloc, s.ptr, bytes, &s), 4, "segment")
	return s.blocks[0]
}

// expand maps memory at the lowest address where there is room.
func (w *torchWorld) expand(key *torchSegment, size int64) *torchBlock {
	var s *torchSegment
	for _, o := range w.segments {
		if o.expandable && o.stream == key.stream && o.pool == key.pool && o.small == key.small {
			s = o
		}
	}
	if s == nil {
		c := *key
		s = &c
		s.ptr, s.expandable = w.nextVA, true
		s.blocks = []*torchBlock{{segment: s, ptr: s.ptr, size: w.capacity + 200*mib, unmapped: true}}
		w.nextVA += w.capacity + 200*mib
		w.segments = append(w.segments, s)
	}
	granule := 20 * mib
	if s.small {
		granule = 2 * mib
	}
	for i := 0; i < len(s.blocks); i++ {
		var room int64
		for k := i; k < len(s.blocks) && (s.blocks[k].free() || s.blocks[k].unmapped); k++ {
			room += s.blocks[k].size
		}
		if room < size || room == s.blocks[i].size && s.blocks[i].free() {
			continue
		}
		first := s.blocks[i]
		for have := int64(0); have < size; {
			b := s.blocks[i]
			if !b.unmapped {
				have += b.size
				i++
				continue
			}
			bytes := min(b.size, (size-have+granule-1)/granule*granule)
			if w.reserved+bytes > w.capacity {
				return nil
			}
			if bytes < b.size {
				w.insert(b, &torchBlock{segment: s, ptr: b.ptr + bytes, size: b.size - bytes, unmapped: true})
				b.size = bytes
			}
			b.unmapped = false
			w.reserved += bytes
			w.mapPages(b.ptr, bytes, granule)
			at(w.row(format.AllocatorSegmentMap, b.ptr, bytes, s), 4, "segment")
			have += bytes
			i++
			if b != first {
				first.size += b.size
				s.blocks = slices.DeleteFunc(s.blocks, func(o *torchBlock) bool { return o == b })
				i--
			}
			if i < len(s.blocks) && s.blocks[i].free() {
				have += s.blocks[i].size
				first.size += s.blocks[i].size
				s.blocks = slices.Delete(s.blocks, i, i+1)
			}
		}
		return first
	}
	return nil
}

// mapPages makes memory appear, page by page.
func (w *torchWorld) mapPages(from, bytes, page int64) {
	for va := from; va < from+bytes; va += page {
		w.calls(func(ns int64) { w.call(w.tp.create(ns, va>>20, page)) })
	}
	for va := from; va < from+bytes; va += page {
		w.calls(func(ns int64) { w.call(w.tp.mapAt(ns, va, page, va>>20)) })
	}
}

// calls makes a call of the driver, if those are recorded.
func (w *torchWorld) calls(make func(ns int64)) {
	if w.driver {
		w.now += 10
		make(w.now - 8)
	}
}

// call says who makes a call.
func (w *torchWorld) call(r *format.Row) {
	at(r, 4, "segment")
	r.Pid, r.Tid, r.Device = w.pid, w.pid, w.device
}

func (w *torchWorld) insert(after, b *torchBlock) {
	s := after.segment
	s.blocks = slices.Insert(s.blocks, slices.Index(s.blocks, after)+1, b)
}

func (w *torchWorld) free(b *torchBlock) {
	w.held = slices.DeleteFunc(w.held, func(o *torchBlock) bool { return o == b })
	b.inUse = false
	w.allocated -= b.size
	w.allocations--
	if r := w.row(format.AllocatorFreeRequested, b.ptr, b.requested, b.segment); w.conf.reports {
		r.Bytes = b.size
	}
	if b.streams {
		b.awaiting, b.streams = true, false
		return
	}
	w.recycle(b)
}

// recycle makes a free block of one that nobody uses.
func (w *torchWorld) recycle(b *torchBlock) {
	w.row(format.AllocatorFreeCompleted, b.ptr, b.requested, b.segment)
	b.awaiting = false
	w.active -= b.size
	w.requested -= b.requested
	s := b.segment
	for i := len(s.blocks) - 1; i > 0; i-- {
		if s.blocks[i].free() && s.blocks[i-1].free() {
			s.blocks[i-1].size += s.blocks[i].size
			s.blocks = slices.Delete(s.blocks, i, i+1)
		}
	}
}

// complete ends the waiting of blocks whose streams are done.
func (w *torchWorld) complete(done func(*torchBlock) bool) {
	for _, s := range w.segments {
		for _, b := range slices.Clone(s.blocks) {
			if b.awaiting && done(b) {
				w.recycle(b)
			}
		}
	}
}

func (w *torchWorld) emptyCache() {
	w.complete(func(*torchBlock) bool { return true })
	for _, s := range slices.Clone(w.segments) {
		switch {
		case s.expandable:
			w.unmap(s)
		case len(s.blocks) == 1 && s.blocks[0].free():
			w.row(format.AllocatorSegmentFree, s.ptr, s.blocks[0].size, s)
			w.calls(func(ns int64) { w.call(w.tp.free(ns, 5, s.ptr)) })
			w.reserved -= s.blocks[0].size
			w.cudaMallocs--
			w.segments = slices.DeleteFunc(w.segments, func(o *torchSegment) bool { return o == s })
		}
	}
}

func (w *torchWorld) unmap(s *torchSegment) {
	granule := 20 * mib
	if s.small {
		granule = 2 * mib
	}
	var blocks []*torchBlock
	add := func(b torchBlock) {
		if n := len(blocks); b.size > 0 && n > 0 && b.unmapped && blocks[n-1].unmapped {
			blocks[n-1].size += b.size
		} else if b.size > 0 {
			blocks = append(blocks, &b)
		}
	}
	for _, b := range s.blocks {
		from, to := (b.ptr-s.ptr+granule-1)/granule*granule+s.ptr, (b.ptr+b.size-s.ptr)/granule*granule+s.ptr
		if !b.free() || from >= to {
			if n := len(blocks); n > 0 && b.unmapped && blocks[n-1].unmapped {
				blocks[n-1].size += b.size
			} else {
				blocks = append(blocks, b)
			}
			continue
		}
		w.reserved -= to - from
		for va := from; va < to; va += granule {
			w.calls(func(ns int64) { w.call(w.tp.unmap(ns, va, granule)) })
			w.calls(func(ns int64) { w.call(w.tp.release(ns, va>>20)) })
		}
		w.row(format.AllocatorSegmentUnmap, from, to-from, s)
		add(torchBlock{segment: s, ptr: b.ptr, size: from - b.ptr})
		add(torchBlock{segment: s, ptr: from, size: to - from, unmapped: true})
		add(torchBlock{segment: s, ptr: to, size: b.ptr + b.size - to})
	}
	s.blocks = blocks
	if len(blocks) == 1 && blocks[0].unmapped && w.r.IntN(2) == 0 {
		w.segments = slices.DeleteFunc(w.segments, func(o *torchSegment) bool { return o == s })
	}
}

// totals are the books, counted anew where that can be done.
func (w *torchWorld) totals() caching.Totals {
	t := caching.Totals{Reserved: w.reserved, Segments: w.cudaMallocs}
	for _, s := range w.segments {
		for _, b := range s.blocks {
			if b.inUse {
				t.Allocated += b.size
				t.Allocations++
			}
			if b.inUse || b.awaiting {
				t.Active += b.size
				t.Requested += b.requested
			}
			if b.free() && len(s.blocks) > 1 && !s.expandable {
				t.InactiveSplit += b.size
			}
		}
	}
	if t.Allocated != w.allocated || t.Active != w.active || t.Requested != w.requested || t.Allocations != w.allocations {
		w.tp.t.Fatalf("the test's allocator is wrong: %+v, counted %d %d %d %d", t, w.allocated, w.active, w.requested, w.allocations)
	}
	return t
}

func (w *torchWorld) blocks() map[int64]state.Block {
	blocks := make(map[int64]state.Block)
	for _, s := range w.segments {
		for _, b := range s.blocks {
			if b.inUse || b.awaiting {
				blocks[b.ptr] = state.Block{Ptr: b.ptr, Bytes: b.size, Requested: b.requested, SinceNs: b.row.StartNs, Awaiting: b.awaiting,
					Stream: s.stream, Pool: s.pool, StackID: b.row.StackID, Site: b.row.Site, Tid: b.row.Tid}
			}
		}
	}
	return blocks
}
