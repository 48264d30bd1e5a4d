package idle

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// track follows what one device does for one process, in order of time.
type track struct {
	device  *Device
	edges   sweep
	counts  [edgeKinds]int32
	atNs    int64
	segment segment
	// lastStart and lastEnd are the latest operations; lastOf the latest ones of each class.
	lastStart, lastEnd *operation
	lastOf             [classNone]*operation
	// waitNs is when the main stream began to wait while other streams ran kernels; 0: it does not.
	waitNs, otherNs int64
	gaps            *timeline.Pipe[pendingGap] // to run.addGap
}

// segment is a span of time in one state.
type segment struct {
	state                 state
	fromNs                int64
	certainNs, possibleNs int64
	after                 *operation // the operation that ended at fromNs
}

// pendingGap is a gap whose cause is not known yet.
type pendingGap struct {
	Gap
	track *track
	next  *operation // the operation that ended the gap
	host  hostActivity
}

func newTrack(d *Device, gaps *timeline.Pipe[pendingGap]) *track {
	t := &track{device: d, gaps: gaps, atNs: d.Window.FromNs}
	t.segment = segment{state: stateBusy, fromNs: d.Window.FromNs}
	t.edges.visit = t.visit
	return t
}

// addOperation adds the edges of an operation.
func (t *track) addOperation(at *placed) {
	d := t.device
	d.addOperation(at)
	if at.class == classNone {
		return
	}
	d.Operations++
	if at.isEstimated {
		d.EstimatedOperations++
	}
	if at.startNs < t.edges.atNs {
		d.LateOperations++
	}
	if at.class != classCopy {
		lengthNs := float64(at.endNs - at.startNs)
		d.KernelNs += lengthNs
		if at.isLimited {
			d.LimitedNs += lengthNs
		}
	}
	kind, number := edgeKind(at.class), t.edges.operations.add(at.call)
	t.addSpan(edgeProbable+kind, activity.Interval{LoNs: at.startNs, HiNs: at.endNs}, number)
	t.addSpan(edgeCertain+kind, at.certain, number)
	t.addSpan(edgePossible+kind, at.possible, number)
	if at.class == classKernel && at.call.stream == d.MainStream {
		t.addSpan(edgeMain, activity.Interval{LoNs: at.startNs, HiNs: at.endNs}, number)
	}
}

// addSpan adds the edges of an interval of an operation with a number in edgeOperations, or 0.
func (t *track) addSpan(kind edgeKind, i activity.Interval, number uint32) {
	if i.HiNs > i.LoNs && i.HiNs > t.device.Window.FromNs && i.LoNs < t.device.Window.ToNs {
		t.edges.add(edge{i.LoNs, number, kind, 1})
		t.edges.add(edge{i.HiNs, number, kind, -1})
	}
}

// finish ends the track.
func (t *track) finish() {
	t.edges.finish()
	t.advance(t.device.Window.ToNs)
	t.closeSegment()
	t.device.Time = t.device.sum(0, numCells)
}

// visit adds an edge of an operation, or of none, to the state.
func (t *track) visit(e *edge, w *operation) {
	t.advance(e.ns)
	t.counts[e.kind] += int32(e.step)
	switch {
	case e.kind >= edgeProbable && e.kind < edgePossible:
		if e.step < 0 {
			t.lastEnd = w
			return
		}
		t.lastStart, t.lastOf[w.class] = w, w
	case e.kind == edgeMain && e.step > 0:
		t.endWait(w)
	}
}

// sumOf returns the operations of all classes with a certainty.
func (t *track) sumOf(certainty edgeKind) int32 {
	return t.counts[certainty] + t.counts[certainty+1] + t.counts[certainty+2]
}

// state returns the probable state.
func (t *track) state() state {
	const kernels, copies, collectives = edgeProbable, edgeProbable + 1, edgeProbable + 2
	switch {
	case t.counts[edgeUnrecorded] > 0:
		return stateUnrecorded
	case t.counts[kernels] > 0 && t.counts[edgeMain] > 0:
		return stateBusy
	case t.counts[kernels] > 0:
		return stateOther
	case t.counts[collectives] > 0:
		return stateCollectives
	case t.counts[copies] > 0:
		return stateCopies
	}
	return stateIdle
}

// advance adds the time up to ns to the state.
func (t *track) advance(ns int64) {
	if ns <= t.atNs {
		return
	}
	if now := t.state(); now != t.segment.state {
		t.closeSegment()
		t.segment = segment{state: now, fromNs: t.atNs, after: t.lastEnd}
	}
	fromNs, toNs := max(t.atNs, t.device.Window.FromNs), min(ns, t.device.Window.ToNs)
	t.atNs = ns
	if toNs <= fromNs {
		return
	}
	now := t.momentary()
	s := &t.segment
	only := now.only(s.state)
	if only.certain {
		s.certainNs += toNs - fromNs
	}
	if only.possible {
		s.possibleNs += toNs - fromNs
	}
	t.device.spread(fromNs, toNs, func(c *cell, ns float64) { now.addTo(c, ns) })
	if s.state == stateOther {
		if t.waitNs == 0 {
			t.waitNs = s.fromNs
		}
		t.otherNs += toNs - fromNs
	}
}

// certainty tells how certain a state is.
type certainty struct{ certain, probable, possible bool }

// moment has the certainty of the states at a time.
type moment struct {
	isUnrecorded              bool
	idle, copies, collectives certainty
}

func (t *track) momentary() moment {
	n := &t.counts
	runs := func(c edgeKind) bool { return n[c] > 0 }
	m := moment{isUnrecorded: n[edgeUnrecorded] > 0}
	m.idle = certainty{t.sumOf(edgePossible) == 0, t.sumOf(edgeProbable) == 0, t.sumOf(edgeCertain) == 0}
	const copies, collectives = 1, 2
	m.copies = certainty{
		runs(edgeCertain+copies) && !runs(edgePossible) && !runs(edgePossible+collectives),
		runs(edgeProbable+copies) && !runs(edgeProbable) && !runs(edgeProbable+collectives),
		runs(edgePossible+copies) && !runs(edgeCertain) && !runs(edgeCertain+collectives),
	}
	m.collectives = certainty{
		runs(edgeCertain+collectives) && !runs(edgePossible),
		runs(edgeProbable+collectives) && !runs(edgeProbable),
		runs(edgePossible+collectives) && !runs(edgeCertain),
	}
	return m
}

// only returns the certainty of a state.
func (m *moment) only(s state) certainty {
	switch s {
	case stateIdle:
		return m.idle
	case stateCopies:
		return m.copies
	case stateCollectives:
		return m.collectives
	}
	return certainty{}
}

// addTo adds a time to a cell.
func (m *moment) addTo(c *cell, ns float64) {
	if m.isUnrecorded {
		c.UnrecordedNs += ns
		return
	}
	c.SpanNs += ns
	m.idle.addTo(&c.Idle, ns)
	m.copies.addTo(&c.Copies, ns)
	m.collectives.addTo(&c.Collectives, ns)
}

func (c certainty) addTo(e *Estimate, ns float64) {
	if c.certain {
		e.MinNs += ns
	}
	if c.probable {
		e.ProbableNs += ns
	}
	if c.possible {
		e.MaxNs += ns
	}
}

// closeSegment ends the segment, and passes it on if the GPU did not run kernels in it.
func (t *track) closeSegment() {
	s := &t.segment
	fromNs, toNs := max(s.fromNs, t.device.Window.FromNs), min(t.atNs, t.device.Window.ToNs)
	if toNs <= fromNs || t.lastStart == nil || s.state > stateCollectives {
		return
	}
	g := t.gaps.Next()
	*g = pendingGap{Gap: Gap{FromNs: fromNs, ToNs: toNs, Cause: Cause{Stream: -1, Label: -1}}, track: t}
	g.MinNs, g.MaxNs = min(s.certainNs, g.LengthNs()), max(s.possibleNs, g.LengthNs())
	switch s.state {
	case stateIdle:
		g.setNext(t.lastStart)
		if s.after != nil {
			g.MaxNs = max(g.LengthNs(), t.lastStart.startHiNs-s.after.endLoNs)
		}
	case stateCopies:
		g.setRunning(ReasonCopy, t.lastOf[classCopy])
	case stateCollectives:
		g.setRunning(ReasonCollective, t.lastOf[classCollective])
	}
}

// setNext sets the operation that ended the gap.
func (g *pendingGap) setNext(w *operation) {
	g.next, g.Tid, g.NextStack, g.NextLabel, g.NextOp = w, w.tid, w.stack, w.label, w.op
}

// setRunning sets the operation that ran in the gap.
func (g *pendingGap) setRunning(r Reason, w *operation) {
	g.setNext(w)
	g.Cause.Reason, g.Cause.Stack, g.Cause.Label, g.Cause.Stream = r, w.stack, w.label, w.stream
}

// minWaitNs is the shortest time for which a main stream waits for another stream.
const minWaitNs = 3000

// endWait ends the time in which only other streams ran kernels, if the main stream waited for them.
func (t *track) endWait(w *operation) {
	fromNs, otherNs := t.waitNs, t.otherNs
	t.waitNs, t.otherNs = 0, 0
	if w.hold == nil || w.hold.Kind != activity.HoldEvent || otherNs < minWaitNs || w.callNs > fromNs+otherNs/2 {
		return
	}
	g := t.gaps.Next()
	*g = pendingGap{Gap: Gap{FromNs: fromNs, ToNs: t.atNs, MaxNs: t.atNs - fromNs}, track: t}
	g.setNext(w)
	g.Cause = Cause{
		Reason: ReasonStream, Stack: w.hold.Stack, After: w.hold.After.Stack, Stream: w.hold.Stream,
		Label: w.hold.After.Label,
	}
}
