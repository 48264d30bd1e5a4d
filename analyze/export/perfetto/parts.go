package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// nextPart ends the trace that is being written and goes on in another: with the calls that reach
// into it, whole, and with the counters where they stand.
func (p *trace) nextPart(ns int64) error {
	carried := slices.Clone(p.ends)
	slices.SortFunc(carried, func(a, b sliceEnd) int {
		return cmp.Or(cmp.Compare(a.startNs, b.startNs), cmp.Compare(b.atNs, a.atNs))
	})
	if err := p.closePart(ns); err != nil {
		return err
	}
	out, err := p.more()
	if err != nil {
		return err
	}
	p.stats.Parts++
	p.w = newTraceWriter(out, &p.t.Stacks, p.t.Rec.Meta.ClockOffsetNs)
	p.traceTracks, p.ends, p.slices = newTraceTracks(), p.ends[:0], 0
	clear(p.launches)
	begin := ns
	for i := range carried {
		begin = min(begin, carried[i].startNs)
	}
	p.w.begin(begin)
	for i := range carried {
		p.carry(&carried[i])
	}
	keys := make([]trackKey, 0, len(p.levels))
	for key := range p.levels {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b trackKey) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.what, b.what), cmp.Compare(a.pid, b.pid))
	})
	for _, key := range keys {
		p.level(ns, key, p.levels[key].unit, p.levels[key].value)
	}
	p.instant(p.ownTrack(), fmt.Sprintf("part %d begins here; calls marked continued began before", p.stats.Parts))
	p.w.finish(ns)
	return p.w.err
}

// closePart ends the slices that are open where they end, and the trace.
func (p *trace) closePart(ns int64) error {
	p.instant(
		p.ownTrack(),
		fmt.Sprintf("part %d ends here; calls that reach beyond are whole in it and in the next", p.stats.Parts),
	)
	p.w.finish(ns)
	last := ns
	for len(p.ends) > 0 {
		p.ends[0].waits = false // counters go on in the next part
		last = max(last, p.ends[0].atNs)
		p.endSlice()
	}
	p.w.end(last)
	return p.w.err
}

// carry begins a slice again that reaches into a part.
func (p *trace) carry(e *sliceEnd) {
	again := *e
	switch {
	case e.thread == nil:
		p.ends = stats.HeapPush(p.ends, again, sliceEnd.before)
		return
	case e.opens:
		again.thread = p.openTrack(e.who, e.name)
	default:
		again.thread = p.threadTrack(e.who)
	}
	p.beginSlice(again)
	p.w.name(e.name)
	p.w.category(e.category)
	p.w.callstack(e.stack)
	p.w.note("continued", annotationBool, 1)
	p.w.finish(e.startNs)
	p.slices++
}
