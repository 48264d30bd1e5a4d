package timeline

import (
	"errors"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// ReplayAll replays memory calls and allocator events together in order of time, and passes the
// changes of both to their consumers.
func (t *Timeline) ReplayAll(
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.Consumer,
) (*livemem.Set, *caching.Set, error) {
	return t.replayTogether(false, consume, consumeAllocator)
}

// replayTogether is ReplayAll, optionally with only those allocator events that concern segments.
func (t *Timeline) replayTogether(
	onlySegments bool,
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.Consumer,
) (*livemem.Set, *caching.Set, error) {
	s := caching.NewSet(&t.Allocators, t.Facts.AllocatorRules)
	r := livemem.Replay{Live: livemem.New(&t.Origins, t.EndedWith), Events: t.Events, Consume: consume}
	r.Exit = func(pid int32, atNs int64) { s.Exit(pid, atNs, consumeAllocator) }
	allCalls, allEvents := newOrdered(
		t.Memory,
		t.StreamMemory(),
	), newOrdered(
		t.Allocations,
		t.StreamAllocators(onlySegments),
	)
	defer allCalls.close()
	defer allEvents.close()
	var calls []livemem.Call
	var events []caching.Event
	var callErr, err error
	for {
		if len(calls) == 0 && callErr == nil {
			calls, callErr = allCalls.next()
		}
		if len(events) == 0 && err == nil {
			events, err = allEvents.next()
		}
		switch {
		case len(calls) > 0 && (len(events) == 0 || calls[0].AtNs <= events[0].AtNs):
			r.Call(&calls[0])
			calls = calls[1:]
		case len(events) > 0:
			r.EventsBefore(events[0].AtNs)
			s.Apply(&events[0], consumeAllocator)
			events = events[1:]
		default:
			r.Finish()
			return r.Live, s, t.Wrap(errors.Join(err, callErr))
		}
	}
}

// Replay replays all memory calls of the recording in the order of their effect. It passes each
// change to consume before it is applied, and returns the final memory.
//
// Failed, open and abandoned calls change nothing. A free of an unknown pointer ends memory from
// before the recording: it is counted, and bytes never become negative. An allocation that returns
// a live pointer proves that a free was lost. The end of a context frees the memory allocated in
// it, and the end of a process all of its memory. Physical memory lives while it has references or
// mappings, regardless of contexts. If calls nest (a runtime call around a driver call) and both
// are recorded, the first to take effect counts.
func (t *Timeline) Replay(consume func(*livemem.Set, *livemem.Change)) (*livemem.Set, error) {
	r := livemem.Replay{Live: livemem.New(&t.Origins, t.EndedWith), Events: t.Events, Consume: consume}
	err := InOrder(t.Memory, t.StreamMemory(), func(m *livemem.Call) error {
		r.Call(m)
		return nil
	})
	r.Finish()
	return r.Live, t.Wrap(err)
}
