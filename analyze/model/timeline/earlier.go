package timeline

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// This file adds the memory that PyTorch's allocators had before the recording to replays: blocks, and segments as
// driver memory. It was read some milliseconds after the start of the recording. The events between both turn it into
// the memory at the start.

// errAllRead ends the reading of events.
var errAllRead = errors.New("all events are read")

// readEarlierStates sets earlierStates: the states that were read, and before them those at the start of the recording.
func (t *Timeline) readEarlierStates() error {
	t.earlierStates = nil
	startNs, untilNs := t.RecordingWindow().FromNs-1, int64(0)
	if t.Scan.Events+t.Scan.AllocatorEvents > 0 { // some probes record before all of them do
		startNs = min(startNs, t.Scan.firstNs-1)
	}
	rewinds := make(map[caching.AllocatorKey]*caching.Rewind)
	var order []*caching.Rewind
	for _, s := range t.Facts.EarlierStates {
		if s.Refused != "" {
			continue
		}
		t.earlierStates = append(t.earlierStates, s)
		startNs, untilNs = min(startNs, s.AtNs-1), max(untilNs, s.AtNs)
		if key := (caching.AllocatorKey{Pid: s.Pid, Device: s.Device}); rewinds[key] == nil {
			rewinds[key] = caching.NewRewind(s, t.Facts.AllocatorRules[s.Pid])
			order = append(order, rewinds[key])
		}
	}
	if len(rewinds) == 0 {
		return nil
	}
	if err := t.rewindUntil(untilNs, rewinds); err != nil {
		return err
	}
	var atStart []*caching.EarlierState
	for _, w := range order {
		if s := w.StateAt(startNs); s != nil {
			atStart = append(atStart, s)
		}
	}
	t.earlierStates = append(atStart, t.earlierStates...)
	return nil
}

// EarlierStates returns the states of allocators from before the recording, in order of time: those at its start, and
// those that were read.
func (t *Timeline) EarlierStates() []*caching.EarlierState { return t.earlierStates }

// rewindUntil passes the allocator events before untilNs, Unix ns, to the allocators' rewinds.
func (t *Timeline) rewindUntil(untilNs int64, rewinds map[caching.AllocatorKey]*caching.Rewind) error {
	view := *t
	view.Origins, view.Allocators = origin.NewOriginTable(), caching.NewAllocatorNumbers()
	spans := slices.DeleteFunc(slices.Clone(t.Allocations), func(s Span) bool { return s.FirstNs >= untilNs })
	err := EachRowInOrder(spans, view.NewAllocatorStream(false), func(e *caching.AllocatorEvent) error {
		if e.AtNs >= untilNs {
			return errAllRead
		}
		if w := rewinds[view.Allocators.Keys[e.Allocator]]; w != nil {
			w.AddEvent(e)
		}
		return nil
	})
	if errors.Is(err, errAllRead) {
		return nil
	}
	return t.WrapReadError(err)
}

// maxEarlierMappings bounds the mappings of expandable segments from before the recording. 1 TiB has half of it.
const maxEarlierMappings = 1 << 20

// earlierSegmentEvents returns the events that add the segments of earlier states to the driver memory. The segments of
// an allocator that is known only from its reports are added when they were read.
func (t *Timeline) earlierSegmentEvents() (list []livemem.MemoryEvent) {
	var mapped int64
	for _, s := range t.earlierStates {
		if s.IsRewound && s.IsReported {
			continue
		}
		for i := range s.Segments {
			g := &s.Segments[i]
			e := livemem.MemoryEvent{
				AtNs:   s.AtNs,
				Pid:    s.Pid,
				Device: s.Device,
				Kind:   livemem.EventEarlierSegment,
				Ptr:    g.Ptr,
				Bytes:  g.Bytes,
			}
			if g.IsExpandable {
				e.Step = mappingStep(g)
				if mapped += (g.Bytes + e.Step - 1) / e.Step; mapped > maxEarlierMappings {
					e.Step, mapped = g.Bytes, mapped-g.Bytes/e.Step
				}
			}
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b livemem.MemoryEvent) int { return cmp.Compare(a.AtNs, b.AtNs) })
	return list
}

// mappingStep returns the size of the physical allocations that are mapped to a range, bytes.
func mappingStep(g *caching.EarlierSegment) int64 {
	if !g.IsSmall && g.Bytes%caching.LargeSegmentBytes == 0 {
		return caching.LargeSegmentBytes
	}
	return caching.DriverPageBytes
}
