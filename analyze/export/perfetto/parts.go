package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// beginNextPart ends the current part of the trace at ns (Unix ns) and begins the next one. The
// next part repeats the calls that have not ended yet, and the last value of each counter.
func (p *traceBuilder) beginNextPart(ns int64) error {
	carried := slices.Clone(p.ends)
	slices.SortFunc(carried, func(a, b openSlice) int {
		return cmp.Or(cmp.Compare(a.startNs, b.startNs), cmp.Compare(b.atNs, a.atNs))
	})
	if err := p.closePart(ns); err != nil {
		return err
	}
	out, err := p.next()
	if err != nil {
		return err
	}
	p.stats.Parts++
	p.w = newTraceWriter(out, &p.t.Stacks, p.t.Rec.Meta.ClockOffsetNs)
	p.partTracks, p.ends, p.slices = newPartTracks(), p.ends[:0], 0
	clear(p.launches)
	begin := ns
	for i := range carried {
		begin = min(begin, carried[i].startNs)
	}
	p.w.beginSequence(begin)
	for i := range carried {
		p.repeatSlice(&carried[i])
	}
	keys := make([]trackKey, 0, len(p.levels))
	for key := range p.levels {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b trackKey) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.kind, b.kind), cmp.Compare(a.pid, b.pid))
	})
	for _, key := range keys {
		p.writeCounterValue(ns, key, p.levels[key].unit, p.levels[key].value)
	}
	p.startInstant(
		p.findGpurecTrack(),
		fmt.Sprintf("part %d begins here; calls marked continued began before", p.stats.Parts),
	)
	p.w.finishEvent(ns)
	return p.w.err
}

// closePart ends the current part. Slices that are open at ns are written up to their own ends.
func (p *traceBuilder) closePart(ns int64) error {
	p.startInstant(
		p.findGpurecTrack(),
		fmt.Sprintf("part %d ends here; calls that reach beyond are whole in it and in the next", p.stats.Parts),
	)
	p.w.finishEvent(ns)
	last := ns
	for len(p.ends) > 0 {
		p.ends[0].waits = false // the next part updates the counter of waiting threads
		last = max(last, p.ends[0].atNs)
		p.endFirstSlice()
	}
	p.w.endSequence(last)
	return p.w.err
}

// repeatSlice writes a slice of the previous part again, because it reaches into this part.
func (p *traceBuilder) repeatSlice(e *openSlice) {
	again := *e
	switch {
	case e.thread == nil:
		p.ends = stats.HeapPush(p.ends, again, openSlice.endsBefore)
		return
	case e.lane != nil:
		again.thread = p.findGPULane(*e.lane)
	case e.hostKind != "":
		again.thread = p.findHostLane(hostLane{e.caller, e.hostKind})
	case e.ownTrack:
		again.thread = p.newOpenCallTrack(e.caller, e.name)
	default:
		again.thread = p.findThreadTrack(e.caller)
	}
	p.beginSlice(again)
	p.w.setEventName(e.name)
	p.w.addEventCategory(e.category)
	p.w.setEventStack(e.stack)
	p.w.addAnnotation("continued", fieldAnnotationBool, 1)
	p.w.finishEvent(e.startNs)
	p.slices++
}
