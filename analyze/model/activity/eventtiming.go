package activity

import (
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// A record of an event with timing is an operation of a channel, because the GPU writes the time. A record
// of an event without timing is none.

// eventTiming tells which events have timing. A program may destroy an event, and the driver gives its handle to the
// next one, with timing or without. So a handle has several lives.
type eventTiming struct {
	lives map[handleKey][]eventLife // in order of time
	asked map[handleKey]int64       // when the program first asked for times of an event, Unix ns; nil after finish
}

// eventLife is the life of an event: 2 × the time of its creation, Unix ns, plus 1 if it has timing.
type eventLife int64

func newEventLife(fromNs int64, isTimed bool) eventLife {
	if isTimed {
		return eventLife(2*fromNs + 1)
	}
	return eventLife(2 * fromNs)
}

func (l eventLife) fromNs() int64 { return int64(l) >> 1 }

func (l eventLife) isTimed() bool { return l&1 == 1 }

// disableTiming is CU_EVENT_DISABLE_TIMING of cuEventCreate.
const disableTiming = 2

// setOp sets the Op of a call that records an event. AnyTiming is set if the event was created before the recording,
// and the program did not ask for its times: then it probably has timing if the next event with its handle has it,
// because many programs create events at one place.
func (e *eventTiming) setOp(c *Call) {
	lives := e.lives[handleKey{c.Pid, c.Event}]
	i := sort.Search(len(lives), func(i int) bool { return lives[i].fromNs() > c.StartNs })
	if i == 0 {
		c.Op, c.AnyTiming, c.LikelyTiming = OpRecordEvent, true, len(lives) > 0 && lives[0].isTimed()
		return
	}
	if c.Op = OpMarkEvent; lives[i-1].isTimed() {
		c.Op = OpRecordEvent
	}
}

// readEventTiming reads which events a program created without timing, and which it asked for times.
func readEventTiming(t *timeline.Timeline) (*eventTiming, error) {
	e := &eventTiming{make(map[handleKey][]eventLife), make(map[handleKey]int64)}
	var r eventRows
	for _, span := range t.Calls {
		if err := r.read(span.Group, e); err != nil {
			return nil, err
		}
	}
	e.finish()
	return e, nil
}

// finish sorts the lives, and joins those that follow each other and are alike. An event that was created before the
// recording, and that the program asked for times, has timing from the start of the recording on.
func (e *eventTiming) finish() {
	for event, lives := range e.lives {
		slices.Sort(lives)
		e.lives[event] = slices.CompactFunc(lives, func(a, b eventLife) bool { return a.isTimed() == b.isTimed() })
	}
	for event, firstNs := range e.asked {
		if lives := e.lives[event]; len(lives) == 0 || firstNs < lives[0].fromNs() {
			e.lives[event] = slices.Insert(lives, 0, newEventLife(0, true))
		}
	}
	e.asked = nil
}

// ask notes that the program asked for times of an event.
func (e *eventTiming) ask(event handleKey, ns int64) {
	if firstNs, ok := e.asked[event]; !ok || ns < firstNs {
		e.asked[event] = ns
	}
}

// eventRows reads the calls about the timing of events.
type eventRows struct {
	name            format.Strings
	start, ptr, src []int64
	pid, result     []int32
	value           []float64
}

func (r *eventRows) read(g *format.Group, e *eventTiming) error {
	r.name = g.StringsInto("name", r.name)
	isAboutTiming := func(name string) bool { return isEventCreate(name) || isElapsedTime(name) }
	if !slices.ContainsFunc(r.name.Dict, isAboutTiming) {
		return g.Err()
	}
	r.start, r.ptr, r.src = g.Int64("start_ns", r.start), g.Int64("ptr", r.ptr), g.Int64("src_ptr", r.src)
	r.pid, r.result, r.value = g.Int32("pid", r.pid), g.Int32("result", r.result), g.Float64("value", r.value)
	if g.Err() != nil {
		return g.Err()
	}
	for i := range r.ptr {
		name := r.name.Dict[r.name.Index[i]]
		key := handleKey{r.pid[i], r.ptr[i]}
		switch {
		case r.result[i] != 0:
		case isElapsedTime(name):
			e.ask(key, r.start[i])
			e.ask(handleKey{r.pid[i], r.src[i]}, r.start[i])
		case isEventCreate(name):
			isTimed := int64(r.value[i])&disableTiming == 0
			e.lives[key] = append(e.lives[key], newEventLife(r.start[i], isTimed))
		}
	}
	return nil
}

func isEventCreate(name string) bool { return name == "cuEventCreate" }

func isElapsedTime(name string) bool { return strings.HasPrefix(name, "cuEventElapsedTime") }
