package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// beginNextPart ends the current part of the trace at ns (Unix ns) and begins the next one. The
// next part repeats the calls that have not ended yet, and the last value of each counter.
func (t *traceBuilder) beginNextPart(ns int64) error {
	carried := slices.Clone(t.ends)
	slices.SortFunc(carried, func(a, b openSlice) int {
		return cmp.Or(cmp.Compare(a.startNs, b.startNs), cmp.Compare(b.atNs, a.atNs))
	})
	if err := t.closePart(ns); err != nil {
		return err
	}
	out, err := t.next()
	if err != nil {
		return err
	}
	t.stats.Parts++
	t.w = newTraceWriter(out, &t.t.Stacks, t.t.Rec.Meta.ClockOffsetNs)
	t.partTracks, t.ends, t.slices = newPartTracks(), t.ends[:0], 0
	clear(t.launches)
	begin := ns
	for i := range carried {
		begin = min(begin, carried[i].startNs)
	}
	t.w.beginSequence(begin)
	for i := range carried {
		t.repeatSlice(&carried[i])
	}
	keys := make([]trackKey, 0, len(t.levels))
	for key := range t.levels {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b trackKey) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.kind, b.kind), cmp.Compare(a.pid, b.pid))
	})
	for _, key := range keys {
		t.writeCounterValue(ns, key, t.levels[key].unit, t.levels[key].value)
	}
	t.startInstant(
		t.findGpurecTrack(),
		fmt.Sprintf("part %d begins here; calls marked continued began before", t.stats.Parts),
	)
	t.w.finishEvent(ns)
	return t.w.err
}

// closePart ends the current part. Slices that are open at ns are written up to their own ends.
func (t *traceBuilder) closePart(ns int64) error {
	t.startInstant(
		t.findGpurecTrack(),
		fmt.Sprintf("part %d ends here; calls that reach beyond are whole in it and in the next", t.stats.Parts),
	)
	t.w.finishEvent(ns)
	last := ns
	for len(t.ends) > 0 {
		t.ends[0].waits = false // the next part updates the counter of waiting threads
		last = max(last, t.ends[0].atNs)
		t.endFirstSlice()
	}
	t.w.endSequence(last)
	return t.w.err
}

// repeatSlice writes a slice of the previous part again, because it reaches into this part.
func (t *traceBuilder) repeatSlice(e *openSlice) {
	again := *e
	switch {
	case e.thread == nil:
		t.ends = stats.HeapPush(t.ends, again, openSlice.endsBefore)
		return
	case e.lane != nil:
		again.thread = t.findGPULane(*e.lane)
	case e.hostKind != "":
		again.thread = t.findHostLane(hostLane{e.caller, e.hostKind})
	case e.operations != nil:
		again.thread = t.findCollectiveLane(*e.operations)
	case e.ownTrack:
		again.thread = t.newOpenCallTrack(e.caller, e.name)
	default:
		again.thread = t.findThreadTrack(e.caller)
	}
	t.beginSlice(again)
	if e.operations != nil {
		t.w.setOwnEventName(e.name)
	} else {
		t.w.setEventName(e.name)
	}
	t.w.addEventCategory(e.category)
	t.w.setEventStack(e.stack)
	t.w.addAnnotation("continued", fieldAnnotationBool, 1)
	t.w.finishEvent(e.startNs)
	t.slices++
}
