package analyzetest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// AllocatorWindows says which allocator events CutIntoWindows keeps, as record --max-overhead does it.
type AllocatorWindows struct {
	Seed     uint64
	WindowNs int64   // length of a window
	Share    float64 // part of the time in windows
	// Refused is the part of the readings that the recorder refuses.
	Refused float64
	// Events is the number of allocator events after which a window ends before WindowNs, as a window does that has cost
	// its share of the limit; 0: none.
	Events int
}

const (
	// totalsEveryNs and readingEveryNs are the times between two rows of totals, and between two readings.
	totalsEveryNs  = 100 * Ms
	readingEveryNs = Second
	// completeReadings is the number of readings from one that lists all blocks to the next one.
	completeReadings = 64
)

// allocatorWindow is a time in which allocator events are recorded, Unix ns.
type allocatorWindow struct{ fromNs, toNs int64 }

// CutIntoWindows removes the allocator events outside of windows. It adds what the recorder adds then: notes, readings of
// blocks and totals. One window begins at a random time in each period. The events before the first one are in a window,
// too. The recording must have all events of its allocators. It returns the length of all windows together.
func (recording *TestRecording) CutIntoWindows(c AllocatorWindows) (recordedNs int64) {
	r := rand.New(rand.NewPCG(c.Seed, 49))
	cut := &windowCut{
		AllocatorWindows: c, recording: recording, r: r, windows: recording.drawWindows(r, &c),
		allocators: make(map[caching.AllocatorKey]*readAllocator),
	}
	cut.drawTimes()
	cut.addReadings()
	kept := recording.Rows[:0:0]
	for _, row := range recording.Rows {
		if row.Kind != format.KindAllocator || cut.isRecorded(row.StartNs) {
			kept = append(kept, row)
		}
	}
	recording.Rows = append(kept, cut.rows...)
	for i, w := range cut.windows {
		if i > 0 {
			recording.addAllocatorSwitch(w.fromNs, true)
		}
		recording.addAllocatorSwitch(w.toNs, false)
		recordedNs += w.toNs - w.fromNs
	}
	return recordedNs
}

// drawWindows returns a window at a random time of each period, and one at the start of the recording.
func (recording *TestRecording) drawWindows(r *rand.Rand, c *AllocatorWindows) []allocatorWindow {
	fromNs := recording.Meta.StartNs + c.WindowNs
	list := []allocatorWindow{{recording.Meta.StartNs, fromNs}}
	period := int64(float64(c.WindowNs) / c.Share)
	for ; fromNs+period <= recording.Meta.EndNs; fromNs += period {
		at := fromNs + 1 + r.Int64N(max(1, period-c.WindowNs-1))
		list = append(list, allocatorWindow{at, at + c.WindowNs})
	}
	if c.Events > 0 {
		recording.endWindowsAfter(list, c.Events)
	}
	return list
}

// endWindowsAfter ends windows after a number of allocator events.
func (recording *TestRecording) endWindowsAfter(list []allocatorWindow, events int) {
	var times []int64
	for _, row := range recording.Rows {
		if row.Kind == format.KindAllocator {
			times = append(times, row.StartNs)
		}
	}
	slices.Sort(times)
	for i := range list {
		first, _ := slices.BinarySearch(times, list[i].fromNs)
		if last := first + events; last < len(times) {
			list[i].toNs = max(list[i].fromNs+Ms, min(list[i].toNs, times[last]))
		}
	}
}

// addAllocatorSwitch adds the note that the recording of allocator events was switched on or off, at Unix ns.
func (recording *TestRecording) addAllocatorSwitch(atNs int64, recorded bool) {
	text, err := json.Marshal(format.Sampling{
		Class: format.SampledAllocator, What: format.SampledCalls, Recorded: recorded, OverheadPct: 12.5,
		MaxOverheadPct: 5,
	})
	if err != nil {
		recording.t.Fatal(err)
	}
	recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteSampling, StartNs: atNs, Device: -1, Message: string(text),
	})
}

// windowCut adds readings to a recording.
type windowCut struct {
	AllocatorWindows
	recording  *TestRecording
	r          *rand.Rand
	windows    []allocatorWindow
	moments    []readingMoment // in order of time
	allocators map[caching.AllocatorKey]*readAllocator
	rows       []*format.Row
}

// readingMoment is the time of a reading, or of a row of totals.
type readingMoment struct {
	atNs      int64 // Unix ns
	isReading bool
	isRefused bool
}

// isRecorded reports whether a window has a time, Unix ns.
func (c *windowCut) isRecorded(atNs int64) bool {
	i, ok := slices.BinarySearchFunc(c.windows, atNs, func(w allocatorWindow, ns int64) int { return int(w.toNs - ns) })
	return !ok && i < len(c.windows) && c.windows[i].fromNs <= atNs
}

// drawTimes sets the times of readings and totals: a reading in each window and at least one a second, and totals every
// 100 ms.
func (c *windowCut) drawTimes() {
	add := func(atNs int64) {
		c.moments = append(c.moments, readingMoment{atNs, true, c.r.Float64() < c.Refused})
	}
	for _, w := range c.windows {
		add(w.fromNs + 1 + c.r.Int64N(w.toNs-w.fromNs-1))
	}
	meta := &c.recording.Meta
	for at := meta.StartNs + 1 + c.r.Int64N(readingEveryNs); at < meta.EndNs; at += readingEveryNs {
		if !c.isRecorded(at) {
			add(at + c.r.Int64N(10*Ms))
		}
	}
	for at := meta.StartNs + totalsEveryNs; at < meta.EndNs; at += totalsEveryNs {
		c.moments = append(c.moments, readingMoment{atNs: at})
	}
	slices.SortFunc(c.moments, func(a, b readingMoment) int { return int(a.atNs - b.atNs) })
}

// readAllocator is an allocator whose blocks are read.
type readAllocator struct {
	model           *caching.Allocator
	passed          int // moments that were passed
	peak            int64
	allocs, frees   int64
	readings        int
	listed          map[blockEntryKey]format.Row // blocks and segments of the last reading
	resetPeakBefore bool
}

// blockEntryKey identifies a block or a segment.
type blockEntryKey struct {
	ptr       int64
	isSegment bool
}

// addReadings replays the complete recording, and adds the rows of all moments.
func (c *windowCut) addReadings() {
	t := c.recording.Timeline()
	_, err := t.ReplayProgram(func(*timeline.ProgramMemory, *livemem.Change) {}, nil, c.onChange)
	if err != nil {
		c.recording.t.Fatal(err)
	}
	for _, key := range t.Allocators.Keys {
		if a := c.allocators[key]; a != nil {
			c.passUntil(a, c.recording.Meta.EndNs)
		}
	}
}

// onChange adds the readings before a change.
func (c *windowCut) onChange(model *caching.Allocator, change *caching.AllocatorChange) {
	key := caching.AllocatorKey{Pid: model.Pid, Device: model.Device}
	a := c.allocators[key]
	if a == nil {
		a = &readAllocator{model: model}
		a.passed, _ = slices.BinarySearchFunc(c.moments, change.AtNs,
			func(m readingMoment, ns int64) int { return int(m.atNs - ns) })
		c.allocators[key] = a
	}
	c.passUntil(a, change.AtNs)
	switch change.Op {
	case caching.OpBlockAllocated:
		a.allocs++
	case caching.OpBlockFreeRequested:
		a.frees++
	case caching.OpAllocatorEnd:
		a.passed = len(c.moments)
	}
	a.peak = max(a.peak, model.Totals().Allocated)
}

// passUntil adds the rows of the moments before a time, Unix ns.
func (c *windowCut) passUntil(a *readAllocator, atNs int64) {
	for a.passed < len(c.moments) && c.moments[a.passed].atNs < atNs {
		m := c.moments[a.passed]
		a.passed++
		total := a.model.Totals()
		row := format.Row{
			Kind: format.KindBlock, StartNs: m.atNs, Pid: a.model.Pid, Device: a.model.Device,
			MemoryKind: format.MemoryTorch, AllocatedBytes: total.Allocated, ReservedBytes: total.Reserved,
		}
		switch {
		case !m.isReading:
			row.Name, row.Bytes, row.Value, row.Counter = format.BlockTotals, a.peak, float64(a.allocs), a.frees
			c.rows = append(c.rows, &row)
		case m.isRefused:
			row.Name, row.Message = format.BlocksRefused, "the allocator did not pause"
			row.AllocatedBytes, row.ReservedBytes = 0, 0
			c.rows = append(c.rows, &row)
		default:
			row.DurNs = 100 * Us
			c.addReading(a, &row)
		}
	}
}

// addReading adds the rows of a reading: all blocks and segments, or the changes since the reading before.
func (c *windowCut) addReading(a *readAllocator, base *format.Row) {
	now, order := make(map[blockEntryKey]format.Row), []blockEntryKey(nil)
	blocks := 0
	add := func(key blockEntryKey, row format.Row) {
		now[key] = row
		order = append(order, key)
	}
	for s := range a.model.SegmentsInOrder() {
		row := *base
		row.Name, row.Message, row.Ptr, row.SrcPtr = format.BlockSegment, format.BlocksLarge, s.Ptr, s.Pool
		if s.Size == caching.SmallSegmentBytes {
			row.Message = format.BlocksSmall
		}
		if s.IsMappedRange() {
			row.Name = format.BlockMappedRange
		}
		at := len(order)
		order = append(order, blockEntryKey{s.Ptr, true})
		for _, p := range a.model.PiecesWithin(s) {
			row.Bytes += p.Size
			row.Stream = p.Stream
			if p.State != caching.PieceHole {
				blocks++
				add(blockEntryKey{p.Ptr, false}, blockRow(base, p))
			}
		}
		now[order[at]] = row
	}
	first := *base
	first.Name, first.Value, first.Bytes = format.BlocksRead, float64(blocks), 8<<10
	if a.readings%completeReadings == 0 {
		first.Message, a.listed = format.BlocksComplete, nil
	}
	a.readings++
	c.rows = append(c.rows, &first)
	c.addGone(a, now, base)
	for _, key := range order {
		row := now[key]
		if old, isKnown := a.listed[key]; !isKnown || !isSameEntry(&old, &row) {
			c.rows = append(c.rows, &row)
		}
	}
	a.listed = now
}

// addGone adds the rows of blocks and segments that are gone since the reading before.
func (c *windowCut) addGone(a *readAllocator, now map[blockEntryKey]format.Row, base *format.Row) {
	var gone []*format.Row
	for key := range a.listed {
		if _, isThere := now[key]; isThere {
			continue
		}
		row := *base
		row.Name, row.Ptr = format.BlockGone, key.ptr
		if key.isSegment {
			row.Name = format.BlockSegmentGone
		}
		gone = append(gone, &row)
	}
	slices.SortFunc(gone, func(a, b *format.Row) int { return int(a.Ptr - b.Ptr) })
	c.rows = append(c.rows, gone...)
}

// blockRow returns the row of a block in a reading.
func blockRow(base *format.Row, p *caching.SegmentPiece) format.Row {
	row := *base
	row.Name, row.Ptr, row.Bytes, row.Value = format.BlockAllocated, p.Ptr, p.Size, float64(p.Requested)
	row.SrcPtr, row.Stream = p.Pool, p.Stream
	if p.State == caching.PieceAwaitsStream {
		row.Name = format.BlockAwaitsStream
	}
	return row
}

// isSameEntry reports whether two rows say the same of a block or a segment.
func isSameEntry(a, b *format.Row) bool {
	return a.Name == b.Name && a.Bytes == b.Bytes && a.Value == b.Value && a.Stream == b.Stream &&
		a.SrcPtr == b.SrcPtr && a.Message == b.Message
}
