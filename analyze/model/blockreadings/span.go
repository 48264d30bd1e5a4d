package blockreadings

import (
	"math"

	"github.com/gpurec/gpurec/format"
)

// Span is the time of an allocator's readings in a window.
type Span struct {
	FirstNs  int64 // time of the first reading that may be usable, Unix ns
	LastNs   int64 // time of the last reading before the teardown of the process, Unix ns
	Readings int   // number of readings from FirstNs to LastNs
}

// teardownNs is the longest teardown of a process before its end, as in timeline.IsInTeardown. Blocks only go then: the
// interpreter frees them, not the program.
const teardownNs = int64(10e9)

// readSpans returns the spans of the selected allocators. It returns errors of reading the recording.
func readSpans(t Recording, selected *Selection) (map[Key]*spanFinder, error) {
	spans := make(map[Key]*spanFinder) // nil value: not selected
	var start []int64
	var pid, device []int32
	var value []float64
	var name, message format.Strings
	for _, g := range t.BlockGroups() {
		start, pid, device = g.Int64("start_ns", start), g.Int32("pid", pid), g.Int32("device", device)
		value, name, message = g.Float64("value", value), g.StringsInto("name", name), g.StringsInto("message", message)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
		for i, at := range start {
			if at > selected.ToNs {
				continue
			}
			if name.At(i) == format.BlockTotals {
				continue
			}
			key := Key{pid[i], device[i]}
			f, isKnown := spans[key]
			if !isKnown && len(spans) < maxAllocators {
				f = newSpanFinder(t, key, selected)
				spans[key] = f
			}
			if f == nil {
				continue
			}
			switch name.At(i) {
			case format.BlocksRead:
				f.begin(at, value[i], message.At(i) == format.BlocksComplete, at >= selected.FromNs)
			case format.BlockAllocated, format.BlockAwaitsStream:
				f.hasNew = f.hasNew || !f.isComplete
			case format.BlockGone:
				f.hasGone = true
			}
		}
	}
	for _, f := range spans {
		if f != nil {
			f.end()
		}
	}
	return spans, nil
}

// spanFinder finds the span of one allocator.
type spanFinder struct {
	Span
	exitNs  int64 // end of the process, Unix ns; math.MaxInt64 if it is not in the recording
	isKnown bool  // a reading has listed all blocks
	// held is the number of the last readings that are in the teardown, unless one with new blocks follows.
	held int

	// The present reading. A complete one lists old blocks, too, so its number of blocks says whether some are new.
	isOpen, isComplete, isInWindow, hasNew, hasGone bool
	atNs                                            int64   // Unix ns
	blocks                                          float64 // number of blocks
}

// newSpanFinder returns the finder of an allocator, or nil if it is not selected.
func newSpanFinder(t Recording, key Key, selected *Selection) *spanFinder {
	if !selected.Passes(key) {
		return nil
	}
	f := &spanFinder{exitNs: math.MaxInt64}
	if exitNs := t.ProcessExitNs(key.Pid); exitNs > 0 {
		f.exitNs = exitNs
	}
	return f
}

// begin starts a reading.
func (f *spanFinder) begin(atNs int64, blocks float64, isComplete, isInWindow bool) {
	f.end()
	f.isOpen, f.isComplete, f.isInWindow, f.atNs = true, isComplete, isInWindow, atNs
	f.isKnown = f.isKnown || isComplete
	f.hasNew, f.hasGone = isComplete && blocks > f.blocks, isComplete && blocks < f.blocks
	f.blocks = blocks
}

// end ends the present reading.
func (f *spanFinder) end() {
	if !f.isOpen {
		return
	}
	f.isOpen = false
	isTeardown := f.atNs > f.exitNs-teardownNs && !f.hasNew && (f.hasGone || f.held > 0)
	switch {
	case isTeardown && f.Readings > 0:
		f.held++
		return
	case f.isKnown && f.isInWindow:
		if f.Readings == 0 {
			f.FirstNs = f.atNs
		}
		f.Readings += f.held + 1
	}
	f.LastNs, f.held = f.atNs, 0
}
