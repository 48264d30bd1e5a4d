package perfetto

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// States of threads are slices with Perfetto's names of states, on a track below the thread. They are no
// scheduler events, from which Perfetto would make a thread_state table. Those need every switch of every
// processor, and the recording has only the longer waits of some threads: the trace would show other threads
// as idle, and trace_processor would report mismatched switches.

// hostLane identifies a track with rows of class host, below the track of a thread. A tid of 0 means the process.
type hostLane struct {
	origin.Thread
	kind string
}

// Kinds of lanes with rows of class host. They are the names of the tracks.
const (
	stateLaneKind  = "thread state"
	pauseLaneKind  = "garbage collection"
	sampleLaneKind = "CPU samples"
	wakeLaneKind   = "wakes up"
)

// hostSlice is a slice or an instant on a lane.
type hostSlice struct {
	startNs, endNs int64 // Unix ns
	lane           hostLane
	name           string
	state          string // Perfetto's letter of the state; "" for other lanes
	stack          int32
	wait           *hosttime.Wait // nil if the slice is no part of a wait
	uncertainNs    int64          // of both ends of a garbage collection
	// flow is the id of the flow from the instant of a wake-up to the slice of the woken thread; 0: none.
	flow uint64
}

// isInstant reports whether the slice is a CPU sample or a wake-up.
func (s *hostSlice) isInstant() bool { return s.lane.kind == sampleLaneKind || s.isWake() }

// isWake reports whether the slice is the instant at which a thread ends the wait of another one.
func (s *hostSlice) isWake() bool { return s.lane.kind == wakeLaneKind }

// startsBefore orders slices by time. A wake-up comes before the slice to which its flow leads. A longer slice comes
// before a shorter one, because it may enclose the other.
func (s *hostSlice) startsBefore(o *hostSlice) int {
	return cmp.Or(
		cmp.Compare(s.startNs, o.startNs), report.CompareBools(o.isWake(), s.isWake()),
		cmp.Compare(o.endNs, s.endNs), cmp.Compare(s.lane.Pid, o.lane.Pid),
		cmp.Compare(s.lane.Tid, o.lane.Tid), cmp.Compare(s.lane.kind, o.lane.kind),
	)
}

// perfettoStates are the names and letters of states in Perfetto.
var perfettoStates = map[string][2]string{
	format.StateRunning:         {"Running", "Running"},
	format.StateRunnable:        {"Runnable", "R"},
	format.StateSleeping:        {"Sleeping", "S"},
	format.StateUninterruptible: {"Uninterruptible Sleep", "D"},
	format.StateStopped:         {"Stopped", "T"},
	format.StateTraced:          {"Traced", "t"},
}

// hostReader collects the slices of class host.
type hostReader struct {
	t      *timeline.Timeline
	filter *query.Filter
	slices []hostSlice
	ends   map[origin.Thread]int64 // end of the last wait
	// running is the name of the time between two waits. It is empty if rows were lost, because a wait may be missing.
	running string
}

// readHostSlices returns the slices of class host that pass the filter, in order of time.
func readHostSlices(p *traceBuilder) ([]hostSlice, error) {
	if !hosttime.HasTimes(p.t) {
		return nil, nil
	}
	r := &hostReader{t: p.t, filter: &p.filter, ends: make(map[origin.Thread]int64)}
	if n := p.t.Rec.Meta.HostRows; p.t.Facts.Host != nil && (n == nil || n.Lost == 0) {
		r.running = "Running, or waits below " + units.FormatDuration(p.t.Facts.Host.MinWaitNs)
	}
	if err := hosttime.NewSelection(p.t, &p.filter).Each(p.t, hosttime.Yield{
		Wait: r.addWait, Sample: r.addSample, Pause: r.addPause,
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(r.slices, func(a, b hostSlice) int { return a.startsBefore(&b) })
	return r.slices, nil
}

// addWait adds a wait: a slice for the wait, one for its time in the run queue, and one for the time since the last
// wait.
func (r *hostReader) addWait(w *hosttime.Wait) {
	lane, copied := hostLane{w.Thread, stateLaneKind}, *w
	if end := r.ends[w.Thread]; end != 0 && end < w.FromNs && r.running != "" {
		r.slices = append(r.slices, hostSlice{
			startNs: end, endNs: w.FromNs, lane: lane, name: r.running, state: perfettoStates[format.StateRunning][1],
		})
	}
	r.ends[w.Thread] = w.ToNs
	state, ok := perfettoStates[w.State]
	if !ok {
		state = [2]string{"Unknown state", "?"}
	}
	runnable := perfettoStates[format.StateRunnable]
	queuedNs := w.QueuedNs
	if w.State == format.StateRunnable {
		queuedNs = 0 // the whole wait is one slice
	}
	name := state[0]
	if w.Fact.Reason != "" && w.Fact.Reason != format.ReasonRunQueue {
		name += ": " + w.Fact.Reason
	}
	if asleep := w.ToNs - queuedNs; asleep > w.FromNs || queuedNs == 0 {
		r.slices = append(r.slices, hostSlice{
			startNs: w.FromNs, endNs: asleep, lane: lane, name: name, state: state[1], stack: w.Stack, wait: &copied,
		})
	}
	if queuedNs > 0 {
		r.slices = append(r.slices, hostSlice{
			startNs: w.ToNs - queuedNs, endNs: w.ToNs, lane: lane, name: runnable[0], state: runnable[1], wait: &copied,
			flow: r.addWake(w),
		})
	}
}

// addWake adds the instant at which a thread of a recorded process ended a wait. It returns the id of the flow to the
// woken thread; 0: there is none.
func (r *hostReader) addWake(w *hosttime.Wait) (flow uint64) {
	_, isRecorded := r.t.Facts.Processes[w.Waker.Pid]
	if by := w.Fact.EndedBy; !isRecorded || !hosttime.PassesThread(r.filter, w.Waker) ||
		by != format.EndedByThread && by != format.EndedBySender {
		return 0
	}
	wokenNs := w.ToNs - w.QueuedNs
	flow = flowOfWake(w.Thread, wokenNs)
	r.slices = append(r.slices, hostSlice{
		startNs: wokenNs, endNs: wokenNs, lane: hostLane{w.Waker, wakeLaneKind}, flow: flow,
		name: "wakes up " + r.t.ThreadLabel(w.Thread),
	})
	return flow
}

// flowOfWake returns the id of the flow of a wake-up. It differs from those of calls by its lowest bit.
func flowOfWake(woken origin.Thread, ns int64) uint64 {
	return flowOfCall(woken.Pid, woken.Tid, ns) &^ 1
}

// addSample adds a CPU sample.
func (r *hostReader) addSample(s *hosttime.CPUSample) {
	r.slices = append(r.slices, hostSlice{
		startNs: s.AtNs, endNs: s.AtNs, lane: hostLane{s.Thread, sampleLaneKind}, name: "CPU sample", stack: s.Stack,
	})
}

// addPause adds a garbage collection.
func (r *hostReader) addPause(p *hosttime.Pause) {
	name := "garbage collection"
	if p.Generation >= 0 {
		name += fmt.Sprintf(", generation %d", p.Generation)
	}
	r.slices = append(r.slices, hostSlice{
		startNs: p.FromNs, endNs: p.ToNs, lane: hostLane{p.Thread, pauseLaneKind}, name: name, stack: p.Stack,
		uncertainNs: p.UncertainNs,
	})
}

// writeHostSlice writes the next slice of class host. If the trace is full, it leaves out all of them.
func (t *traceBuilder) writeHostSlice() error {
	s := t.host[0]
	if t.max > 0 && t.slices >= t.max && t.next != nil {
		if err := t.beginNextPart(s.startNs); err != nil {
			return err
		}
	}
	if t.full || t.max > 0 && t.slices >= t.max {
		t.leaveOutHost()
		return nil
	}
	t.host = t.host[1:]
	t.slices++
	track := t.findHostLane(s.lane)
	if s.isInstant() {
		t.startInstant(track.uuid, s.name)
	} else {
		t.beginSlice(openSlice{
			startNs: s.startNs, atNs: s.endNs, thread: track, caller: s.lane.Thread, name: s.name,
			category: s.lane.kind, stack: s.stack, hostKind: s.lane.kind,
		})
		t.w.setEventName(s.name)
		t.w.addEventCategory(s.lane.kind)
	}
	t.w.setEventStack(s.stack)
	switch {
	case s.flow == 0:
	case s.isWake():
		t.w.event = appendFixed64Field(t.w.event, fieldFlowIDs, s.flow)
	default:
		t.w.event = appendFixed64Field(t.w.event, fieldTerminatingFlowIDs, s.flow)
	}
	t.annotateHostSlice(&s)
	t.w.finishEvent(s.startNs)
	return nil
}

// leaveOutHost leaves out the rest of class host, and says so.
func (t *traceBuilder) leaveOutHost() {
	at := max(t.host[0].startNs, t.window.FromNs)
	t.startInstant(t.findGpurecTrack(), fmt.Sprintf("all later states of threads are left out: %s",
		units.CountWithNoun(int64(len(t.host)), "slice")))
	t.w.finishEvent(at)
	t.stats.LeftOutHost, t.host = int64(len(t.host)), nil
}

// annotateHostSlice adds what a thread waits for to the current event.
func (t *traceBuilder) annotateHostSlice(s *hostSlice) {
	if s.state != "" {
		t.w.addTextAnnotation("state", s.state)
	}
	if s.uncertainNs > 0 {
		t.w.addAnnotation("uncertain_ns", fieldAnnotationInt, uint64(s.uncertainNs))
	}
	if s.wait == nil {
		return
	}
	f := s.wait.Fact
	t.w.addAnnotation("wait_ns", fieldAnnotationInt, uint64(s.wait.ToNs-s.wait.FromNs))
	for _, text := range []struct{ key, value string }{
		{"reason", f.Reason},
		{"system_call", f.SystemCall},
		{"cuda_call", f.CUDACall},
		{"owner", f.Owner},
		{"target", f.Target},
		{"ended_by", f.EndedBy},
		{"waker", f.Waker},
		{"waker_call", f.WakerCall},
	} {
		if text.value != "" {
			t.w.addTextAnnotation(text.key, text.value)
		}
	}
	if line, ok := t.t.Stacks.HostLine(s.wait.Stack); ok {
		t.w.addTextAnnotation("line", symbolize.NameWithLine(query.FrameName(line), line.File, line.Line))
	}
	if f.OwnerTid != 0 {
		t.w.addAnnotation("owner_tid", fieldAnnotationInt, uint64(f.OwnerTid))
	}
	if s.wait.Waker.Tid != 0 {
		t.w.addAnnotation("waker_tid", fieldAnnotationInt, uint64(s.wait.Waker.Tid))
	}
	if s.wait.IsOpen {
		t.w.addAnnotation("open", fieldAnnotationBool, 1)
	}
	if s.wait.IsInferred {
		t.w.addAnnotation("stack_inferred", fieldAnnotationBool, 1)
	}
}
