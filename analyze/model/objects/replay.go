package objects

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Replay replays the calls that create and destroy objects, in the order of their effect: a creation
// when the call returns, a destruction when it starts. It changes Timeline.Origins, so it needs a view
// of its own if another replay runs at the same time. A Replay is not safe for concurrent use.
type Replay struct {
	t       *timeline.Timeline
	consume func(*Change)
	Counts  [NumKinds]Counts // calls that the replay could not match, by kind

	columns columns
	pending []step                // steps that may come after steps of row groups that are not read yet
	events  []livemem.MemoryEvent // ends of contexts and processes that are not applied yet
	live    liveSet
	// ended has the objects whose context ended, by number of the process, until the process creates another object or
	// ends.
	ended map[int32][]endedObject
	// capturedTo has the graphs that stream captures add to: the end of such a capture creates no graph.
	capturedTo  map[objectKey]bool
	lastDestroy []threadDestroy // by number of the thread, as in origin.OriginTable
	change      Change
}

// endedObject is an object that ended with its context or its process.
type endedObject struct {
	key    objectKey
	object Object
	atNs   int64
}

// threadDestroy is the latest destruction by a thread. A nested call for the same object starts before
// endNs.
type threadDestroy struct {
	key   objectKey
	endNs int64
}

// NewReplay returns a replay that passes each change to consume. Call AddGroup for row groups in the
// order of their FirstNs, then Finish.
func NewReplay(t *timeline.Timeline, consume func(*Change)) *Replay {
	return &Replay{
		t:          t,
		consume:    consume,
		events:     t.Events,
		ended:      make(map[int32][]endedObject),
		capturedTo: make(map[objectKey]bool),
	}
}

// Read replays a recording. It returns the calls that the replay could not match, and errors of
// reading the recording.
func Read(t *timeline.Timeline, consume func(*Change)) (counts [NumKinds]Counts, err error) {
	r := NewReplay(t, consume)
	for _, s := range SpansInOrder(slices.Concat(t.Memory, t.Calls)) {
		r.AddGroup(s, s.Group)
		if err := s.Group.Err(); err != nil {
			return r.Counts, t.WrapReadError(err)
		}
	}
	r.Finish()
	return r.Counts, nil
}

// SpansInOrder returns the spans in the order that AddGroup needs.
func SpansInOrder(spans []timeline.Span) []timeline.Span {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b timeline.Span) int { return cmp.Compare(a.FirstNs, b.FirstNs) })
	return spans
}

// AddGroup adds the calls of a row group. g has the rows of s.Group, and may cache its columns. No
// later group may have an earlier FirstNs. Err of g has errors of reading it.
func (r *Replay) AddGroup(s timeline.Span, g *format.Group) {
	r.applyStepsBefore(s.FirstNs)
	r.pending = r.columns.appendSteps(r.pending, r.t, g)
}

// Finish applies all remaining calls, and the ends of contexts and processes. Objects that are live
// afterwards have no further change.
func (r *Replay) Finish() {
	r.applyStepsBefore(math.MaxInt64)
	r.applyEventsBefore(math.MaxInt64)
	for process := range r.ended {
		r.emitEnded(process, ChangeEndedByExit)
	}
}

// EachLive calls yield for every live object, in no order.
func (r *Replay) EachLive(yield func(handle int64, o Object)) {
	for i := range r.live {
		r.live[i].each(func(_ Kind, handle int64, o Object) { yield(handle, o) })
	}
}

// applyStepsBefore applies the pending steps before a time, Unix ns.
func (r *Replay) applyStepsBefore(ns int64) {
	timeline.SortNearlySorted(r.pending, (*step).comesBefore)
	n := 0
	for ; n < len(r.pending) && r.pending[n].atNs < ns; n++ {
		s := &r.pending[n]
		r.applyEventsBefore(s.atNs)
		r.applyStep(s)
	}
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
}

func (r *Replay) emit(kind ChangeKind, atNs int64, key objectKey, o Object) {
	r.change = Change{kind, atNs, key.handle, o}
	r.consume(&r.change)
}

func (r *Replay) applyStep(s *step) {
	key := objectKey{s.handle, s.process, s.kind}
	switch s.op {
	case opCreate, opEndCapture:
		r.create(s, key)
	case opCaptureTo:
		r.capturedTo[key] = true
	case opDestroy:
		r.destroy(s, key)
	case opDestroyAll:
		for r.destroy(s, key) {
			if _, more := r.live.get(key); !more {
				break
			}
		}
	}
}

func (r *Replay) create(s *step, key objectKey) {
	if len(r.ended) > 0 {
		r.emitEnded(key.process, ChangeEndedWithContext) // the process continues
	}
	if s.unknown {
		r.Counts[s.kind].Unknown++
		return
	}
	if old, ok := r.live.get(key); ok && !traits[s.kind].counted {
		threads := r.t.Origins.Thread
		switch {
		case s.op == opEndCapture && r.capturedTo[key]:
			return
		case old.SinceNs >= s.atNs-s.durNs && threads[old.Origin] == s.thread:
			r.Counts[s.kind].Nested++ // a call inside this one created the object
			return
		}
		r.Counts[s.kind].LostDestroys++
		r.live.take(key)
		r.emit(ChangeDestroyLost, s.atNs, key, old)
	}
	o := Object{s.atNs, s.origin, s.kind}
	r.live.add(key, o)
	r.emit(ChangeCreated, s.atNs, key, o)
}

// destroy ends the latest object of a handle. It returns false if there is none.
func (r *Replay) destroy(s *step, key objectKey) bool {
	for len(r.lastDestroy) <= int(s.thread) {
		r.lastDestroy = append(r.lastDestroy, threadDestroy{})
	}
	o, ok := r.live.take(key)
	if !ok {
		if last := &r.lastDestroy[s.thread]; last.key == key && s.atNs <= last.endNs {
			r.Counts[s.kind].Nested++ // a call around this one destroyed the object
		} else {
			r.Counts[s.kind].Older++
		}
		return false
	}
	delete(r.capturedTo, key)
	r.lastDestroy[s.thread] = threadDestroy{key, units.EndOfRange(s.atNs, s.durNs)}
	r.emit(ChangeDestroyed, s.atNs, key, o)
	return true
}

// applyEventsBefore applies the ends of contexts and processes before a time, Unix ns.
func (r *Replay) applyEventsBefore(ns int64) {
	for ; len(r.events) > 0 && r.events[0].AtNs < ns; r.events = r.events[1:] {
		switch e := &r.events[0]; e.Kind {
		case livemem.EventContextEnd:
			r.endObjects(e, func(kind Kind, o Object) bool {
				return traits[kind].withContext && r.t.ContextEndFrees(o.Origin, e)
			})
		case livemem.EventProcessExit:
			r.emitEnded(r.endObjects(e, func(Kind, Object) bool { return true }), ChangeEndedByExit)
		}
	}
}

// endObjects takes the objects that end with a context or a process. It returns the number of the
// process.
func (r *Replay) endObjects(e *livemem.MemoryEvent, ends func(Kind, Object) bool) int32 {
	process := origin.NumberOfKey(r.t.Origins.Pids, e.Pid)
	list := r.live.takeAll(process, ends)
	if len(list) == 0 {
		return process
	}
	for i := range list {
		list[i].atNs = e.AtNs
	}
	slices.SortFunc(list, func(a, b endedObject) int {
		return cmp.Or(cmp.Compare(a.object.SinceNs, b.object.SinceNs), cmp.Compare(a.key.kind, b.key.kind),
			cmp.Compare(a.key.handle, b.key.handle))
	})
	r.ended[process] = append(r.ended[process], list...)
	return process
}

// emitEnded emits the ends of a process's objects that ended with their context.
func (r *Replay) emitEnded(process int32, kind ChangeKind) {
	list, ok := r.ended[process]
	if !ok {
		return
	}
	delete(r.ended, process)
	for i := range list {
		r.emit(kind, list[i].atNs, list[i].key, list[i].object)
	}
}
