package activity

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// A record of an event with timing is a work of a channel, because the GPU writes the time. A record
// of an event without timing is none.

// eventTiming tells which events have timing.
type eventTiming struct{ timed, untimed map[handleKey]bool }

// disableTiming is CU_EVENT_DISABLE_TIMING of cuEventCreate.
const disableTiming = 2

// opOfRecord returns the Op of a record of an event. Any is true if the event may have no timing.
func (e *eventTiming) opOfRecord(event handleKey) (op Op, anyTiming bool) {
	if e.timed[event] {
		return OpRecordEvent, false
	}
	if e.untimed[event] {
		return OpMarkEvent, false
	}
	return OpRecordEvent, true
}

// readEventTiming reads which events a program created without timing, and which it asked for times.
func readEventTiming(t *timeline.Timeline) (*eventTiming, error) {
	e := &eventTiming{make(map[handleKey]bool), make(map[handleKey]bool)}
	var r eventRows
	for _, span := range t.Calls {
		if err := r.read(span.Group, e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// eventRows reads the calls about the timing of events.
type eventRows struct {
	name        format.Strings
	ptr, src    []int64
	pid, result []int32
	value       []float64
}

func (r *eventRows) read(g *format.Group, e *eventTiming) error {
	r.name = g.StringsInto("name", r.name)
	isAboutTiming := func(name string) bool { return isEventCreate(name) || isElapsedTime(name) }
	if !slices.ContainsFunc(r.name.Dict, isAboutTiming) {
		return g.Err()
	}
	r.ptr, r.src = g.Int64("ptr", r.ptr), g.Int64("src_ptr", r.src)
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
			e.timed[key], e.timed[handleKey{r.pid[i], r.src[i]}] = true, true
		case isEventCreate(name) && int64(r.value[i])&disableTiming != 0:
			e.untimed[key] = true
		case isEventCreate(name):
			e.timed[key] = true
		}
	}
	return nil
}

func isEventCreate(name string) bool { return name == "cuEventCreate" }

func isElapsedTime(name string) bool { return strings.HasPrefix(name, "cuEventElapsedTime") }
