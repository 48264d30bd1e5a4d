package timeline

import (
	"errors"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// ReplayAll runs memory calls and allocators' events together in order of time, and
// hands the changes of both to their consumers.
func (t *Timeline) ReplayAll(
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.Consumer,
) (*livemem.Set, *caching.Set, error) {
	return t.replayTogether(false, consume, consumeAllocator)
}

// replayTogether is replayAll with all events of allocators, or only those that tell of segments.
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

// Replay runs all memory calls of the recording in order of effect and hands each
// change of the ledger to consume, before it is made. It returns the final ledger.
//
// The rules: failed, open and abandoned calls change nothing. A free of an unknown
// pointer ends memory from before the recording: it is counted and never makes bytes
// negative. An alloc that returns a live pointer proves that its free was lost. The
// end of a context frees what was allocated in it, the end of a process what it
// holds. Physical memory lives while it is referred to or mapped, whatever contexts
// there are. Where calls nest (a runtime call around the driver call that does the
// work) and both are recorded, the first of them to take effect counts and the other
// is the same memory.
func (t *Timeline) Replay(consume func(*livemem.Set, *livemem.Change)) (*livemem.Set, error) {
	r := livemem.Replay{Live: livemem.New(&t.Origins, t.EndedWith), Events: t.Events, Consume: consume}
	err := InOrder(t.Memory, t.StreamMemory(), func(m *livemem.Call) error {
		r.Call(m)
		return nil
	})
	r.Finish()
	return r.Live, t.Wrap(err)
}
