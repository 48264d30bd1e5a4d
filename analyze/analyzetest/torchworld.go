package analyzetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
)

// TorchAllocator simulates PyTorch's caching allocator for one process and device. It uses simple
// lists and is independent of package caching. It adds its events as a recorder sees them, and
// takes a sample of its totals after each operation.
type TorchAllocator struct {
	recording   *TestRecording
	R           *rand.Rand
	Pid, Device int32
	Now         int64 // current time, ns from the start of the recording
	Conf        TorchConf
	Capacity    int64 // bytes that the driver can provide
	Driver      bool  // the recording has its driver calls
	Silent      bool  // its events do not have its totals
	// Patient programs do not free a block directly after its allocation. If they do, the recording
	// shows the block's size only through the allocator's rules.
	Patient bool

	Segments []*TorchSegment
	Held     []*TorchBlock // blocks in use by the program
	nextVA   int64
	Samples  []TorchAllocatorSample
	Last     *format.Row // row of the latest allocator event
	Peak     int64       // maximum of the requested bytes, if the test updates it
	// The allocator's own totals.
	allocated, requested, active, allocations, reserved, cudaMallocs int64
}

// TorchConf is the configuration of a TorchAllocator.
type TorchConf struct {
	Expandable bool
	maxSplit   int64
	Divisions  int64
	Reports    bool // the recorder knows the allocator only from its reported statistics
}

// EventSource returns the part of the allocator's note that names the source of its events.
func (c TorchConf) EventSource() string {
	if !c.Reports {
		return ""
	}
	return `,"source":"` + format.SourceReports + `","limits":"PyTorch's allocations are recorded without bytes asked for"`
}

// String returns the configuration as PYTORCH_CUDA_ALLOC_CONF.
func (c TorchConf) String() string {
	text := fmt.Sprintf(
		"garbage_collection_threshold:0.8,expandable_segments:%s",
		map[bool]string{true: "True", false: "False"}[c.Expandable],
	)
	if c.maxSplit > 0 {
		text += fmt.Sprintf(",max_split_size_mb:%d", c.maxSplit>>20)
	}
	if c.Divisions > 0 {
		text += fmt.Sprintf(", roundup_power2_divisions:%d", c.Divisions)
	}
	return text
}

// TorchSegment is memory of cudaMalloc, or the address range of an expandable segment.
type TorchSegment struct {
	Ptr        int64
	Stream     int64
	Pool       int64
	Small      bool
	Expandable bool
	Blocks     []*TorchBlock // blocks and free ranges in order of address; they cover the segment
}

// TorchBlock is a block or a free range of a segment.
type TorchBlock struct {
	segment         *TorchSegment
	Ptr, Size       int64
	requested       int64
	InUse, Awaiting bool
	Unmapped        bool
	streams         bool // the program used the block on another stream too
	Row             *format.Row
}

// IsFree reports whether the range can be allocated.
func (b *TorchBlock) IsFree() bool { return !b.InUse && !b.Awaiting && !b.Unmapped }

// TorchAllocatorSample is the state of the allocator after an operation.
type TorchAllocatorSample struct {
	AtNs   int64
	Totals caching.AllocatorTotals
	Blocks map[int64]state.AllocatorBlock // live blocks by address; nil in most samples
	After  string                         // name of the latest allocator event before the sample
}

// NewTorchAllocator returns an allocator without memory. Its driver has 400 MiB.
func NewTorchAllocator(recording *TestRecording, r *rand.Rand, pid, device int32, conf TorchConf) *TorchAllocator {
	return &TorchAllocator{
		recording: recording,
		R:         r,
		Pid:       pid,
		Device:    device,
		Conf:      conf,
		Capacity:  400 * Mib,
		nextVA:    int64(0x7f0000000000) + int64(device)<<40,
		Now:       1000 + r.Int64N(100),
	}
}

// AddEvent adds an event with the current totals.
func (a *TorchAllocator) AddEvent(name string, ptr, bytes int64, s *TorchSegment) *format.Row {
	a.Now += 1 + a.R.Int64N(40)
	if a.Conf.Reports {
		return a.addReportedEvent(name, ptr)
	}
	r := a.recording.AddRow(format.Row{
		Kind:           format.KindAllocator,
		Name:           name,
		StartNs:        Epoch + a.Now,
		Pid:            a.Pid,
		Tid:            a.Pid + a.R.Int32N(3),
		Device:         a.Device,
		MemoryKind:     format.MemoryTorch,
		Ptr:            ptr,
		Bytes:          bytes,
		StackStatus:    format.StackNone,
		AllocatedBytes: a.allocated,
		ReservedBytes:  a.reserved,
	})
	if s != nil {
		r.Stream, r.SrcPtr = s.Stream, s.Pool
	}
	if a.Silent {
		r.AllocatedBytes, r.ReservedBytes = -1, -1
	}
	a.Last = r
	return r
}

func (a *TorchAllocator) roundSize(size int64) int64 {
	if d := a.Conf.Divisions; d > 1 && size > 512*d {
		power := int64(1)
		for power*2 <= size {
			power *= 2
		}
		return (size + power/d - 1) / (power / d) * (power / d)
	}
	return max(512, (size+511)/512*512)
}

// RunRandomOperation makes one random operation.
func (a *TorchAllocator) RunRandomOperation() {
	switch n := a.R.IntN(100); {
	case n < 48 || a.Last == nil || len(a.Held) == 0:
		a.allocRandomBlock()
	case n < 90:
		if b := a.Held[a.R.IntN(len(a.Held))]; !a.Patient || b.Row != a.Last {
			a.FreeBlock(b)
		}
	case n < 95:
		a.Held[a.R.IntN(len(a.Held))].streams = true
	case n < 97:
		a.completeFrees(func(*TorchBlock) bool { return a.R.IntN(2) == 0 })
	case n < 98:
		a.emptyCache()
	case n < 99:
		last := a.Last
		r := a.AddEvent(format.AllocatorSnapshot, 0, 7, nil)
		a.Last = last
		r.Device = 0
		if a.Device != 0 {
			r.AllocatedBytes, r.ReservedBytes = 1, 2 // the snapshot may be of another device
		}
	default: // free blocks, to bound the number of live blocks
		for len(a.Held) > 20 {
			a.FreeBlock(a.Held[0]) // frees the oldest block, never the newest
		}
	}
	sample := TorchAllocatorSample{AtNs: a.Now, Totals: a.CheckedTotals(), After: a.Last.Name}
	if a.R.IntN(100) == 0 {
		sample.Blocks = a.LiveBlocks()
	}
	a.Samples = append(a.Samples, sample)
}

// addReportedEvent adds a row of an allocator that is known only from its reported statistics. It
// returns an unused row for events that are not reported. The caller sets the bytes, and the totals
// after an alloc.
func (a *TorchAllocator) addReportedEvent(name string, ptr int64) *format.Row {
	name, ok := map[string]string{format.AllocatorAlloc: format.AllocatorReportedAlloc, format.AllocatorFreeRequested: format.AllocatorReportedFree}[name]
	if !ok {
		return new(format.Row)
	}
	return a.recording.AddRow(format.Row{
		Kind:           format.KindAllocator,
		Name:           name,
		StartNs:        Epoch + a.Now,
		Pid:            a.Pid,
		Tid:            a.Pid,
		Device:         a.Device,
		MemoryKind:     format.MemoryTorch,
		Ptr:            ptr,
		StackStatus:    format.StackNone,
		AllocatedBytes: a.allocated,
		ReservedBytes:  a.reserved,
	})
}

func (a *TorchAllocator) allocRandomBlock() {
	sizes := []int64{1 + a.R.Int64N(2000), 1 + a.R.Int64N(Mib), Mib + a.R.Int64N(9*Mib), 1 + a.R.Int64N(60*Mib)}
	want := sizes[a.R.IntN(len(sizes))]
	if len(a.Held) > 300 {
		want = 1 + a.R.Int64N(300)
	}
	pools := []int64{0, 0, 0, 0, 1, -2}
	a.completeFrees(func(*TorchBlock) bool { return a.R.IntN(6) == 0 })
	if b := a.AllocBlock(
		want,
		TorchSegment{Stream: 0x100 * a.R.Int64N(3), Pool: pools[a.R.IntN(len(pools))]},
	); b != nil {
		SetStackAndSite(b.Row, 1+a.R.Int32N(3), fmt.Sprintf("site %d", a.R.IntN(5)))
	}
}

// AllocBlock allocates a block on the stream and in the pool of key. It returns nil if there is no
// memory.
func (a *TorchAllocator) AllocBlock(want int64, key TorchSegment) *TorchBlock {
	size := a.roundSize(want)
	key.Small = size <= Mib
	b := a.findBestFit(&key, size)
	if b == nil {
		if b = a.allocSegment(&key, size); b == nil {
			a.emptyCache()
			b = a.allocSegment(&key, size)
		}
	}
	if b == nil {
		a.AddEvent(format.AllocatorOOM, 0, size, &key).Value = float64(a.Capacity - a.reserved)
		return nil
	}
	remaining := b.Size - size
	split := remaining > Mib && (a.Conf.maxSplit == 0 || size < a.Conf.maxSplit)
	if key.Small || a.Conf.Expandable {
		split = remaining >= 512
	}
	if remaining > 0 && !a.Conf.Expandable && a.R.IntN(20) == 0 && a.Patient && !a.Silent {
		split = true // as after restoring a graph's pool to a checkpoint
	}
	if split {
		a.insertAfter(b, &TorchBlock{segment: b.segment, Ptr: b.Ptr + size, Size: remaining})
		b.Size = size
	}
	b.InUse, b.requested = true, want
	b.Row = a.AddEvent(format.AllocatorAlloc, b.Ptr, want, b.segment)
	a.allocated += b.Size
	a.active += b.Size
	a.requested += want
	a.allocations++
	if a.Conf.Reports {
		b.Row.Bytes, b.Row.AllocatedBytes = b.Size, a.allocated
	}
	a.Held = append(a.Held, b)
	return b
}

// findBestFit returns the smallest free block that is large enough, or nil.
func (a *TorchAllocator) findBestFit(key *TorchSegment, size int64) (best *TorchBlock) {
	for _, s := range a.Segments {
		if s.Stream != key.Stream || s.Pool != key.Pool || s.Small != key.Small || s.Expandable != a.Conf.Expandable {
			continue
		}
		for _, b := range s.Blocks {
			if b.IsFree() && b.Size >= size &&
				(best == nil || b.Size < best.Size || b.Size == best.Size && b.Ptr < best.Ptr) {
				best = b
			}
		}
	}
	if m := a.Conf.maxSplit; best != nil && m > 0 &&
		(size < m && best.Size >= m || size >= m && best.Size >= size+20*Mib) {
		return nil
	}
	return best
}

func (a *TorchAllocator) insertAfter(after, b *TorchBlock) {
	s := after.segment
	s.Blocks = slices.Insert(s.Blocks, slices.Index(s.Blocks, after)+1, b)
}

// FreeBlock frees a block.
func (a *TorchAllocator) FreeBlock(b *TorchBlock) {
	a.Held = slices.DeleteFunc(a.Held, func(o *TorchBlock) bool { return o == b })
	b.InUse = false
	a.allocated -= b.Size
	a.allocations--
	if r := a.AddEvent(format.AllocatorFreeRequested, b.Ptr, b.requested, b.segment); a.Conf.Reports {
		r.Bytes = b.Size
	}
	if b.streams {
		b.Awaiting, b.streams = true, false
		return
	}
	a.recycleBlock(b)
}

// recycleBlock turns an unused block into free memory.
func (a *TorchAllocator) recycleBlock(b *TorchBlock) {
	a.AddEvent(format.AllocatorFreeCompleted, b.Ptr, b.requested, b.segment)
	b.Awaiting = false
	a.active -= b.Size
	a.requested -= b.requested
	s := b.segment
	for i := len(s.Blocks) - 1; i > 0; i-- {
		if s.Blocks[i].IsFree() && s.Blocks[i-1].IsFree() {
			s.Blocks[i-1].Size += s.Blocks[i].Size
			s.Blocks = slices.Delete(s.Blocks, i, i+1)
		}
	}
}

// completeFrees frees the awaiting blocks for which done returns true.
func (a *TorchAllocator) completeFrees(done func(*TorchBlock) bool) {
	for _, s := range a.Segments {
		for _, b := range slices.Clone(s.Blocks) {
			if b.Awaiting && done(b) {
				a.recycleBlock(b)
			}
		}
	}
}

// CheckedTotals returns the totals, computed from the blocks where possible. It checks that they
// equal the running totals.
func (a *TorchAllocator) CheckedTotals() caching.AllocatorTotals {
	t := caching.AllocatorTotals{Reserved: a.reserved, Segments: a.cudaMallocs}
	for _, s := range a.Segments {
		for _, b := range s.Blocks {
			if b.InUse {
				t.Allocated += b.Size
				t.Allocations++
			}
			if b.InUse || b.Awaiting {
				t.Active += b.Size
				t.Requested += b.requested
			}
			if b.IsFree() && len(s.Blocks) > 1 && !s.Expandable {
				t.InactiveSplit += b.Size
			}
		}
	}
	if t.Allocated != a.allocated || t.Active != a.active || t.Requested != a.requested ||
		t.Allocations != a.allocations {
		a.recording.t.Fatalf(
			"the simulated allocator is inconsistent: %+v, running totals %d %d %d %d",
			t,
			a.allocated,
			a.active,
			a.requested,
			a.allocations,
		)
	}
	return t
}

// LiveBlocks returns the live blocks by address.
func (a *TorchAllocator) LiveBlocks() map[int64]state.AllocatorBlock {
	blocks := make(map[int64]state.AllocatorBlock)
	for _, s := range a.Segments {
		for _, b := range s.Blocks {
			if b.InUse || b.Awaiting {
				blocks[b.Ptr] = state.AllocatorBlock{
					Ptr: b.Ptr, Bytes: b.Size, Requested: b.requested, SinceNs: b.Row.StartNs, Awaiting: b.Awaiting,
					Stream: s.Stream, Pool: s.Pool, StackID: b.Row.StackID, Site: b.Row.Site, Tid: b.Row.Tid,
				}
			}
		}
	}
	return blocks
}
