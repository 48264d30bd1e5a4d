package timeline

import (
	"errors"
	"math"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// ReplayMemoryAndAllocators replays memory calls and allocator events together in order of time,
// and passes the changes of both to their consumers.
func (t *Timeline) ReplayMemoryAndAllocators(
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.ChangeConsumer,
) (*livemem.Set, *caching.AllocatorSet, error) {
	return t.replayBoth(false, consume, consumeAllocator)
}

// replayBoth is ReplayMemoryAndAllocators, optionally with only those allocator events that concern
// segments.
func (t *Timeline) replayBoth(
	onlySegments bool,
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.ChangeConsumer,
) (*livemem.Set, *caching.AllocatorSet, error) {
	s := caching.NewAllocatorSet(&t.Allocators, t.Facts.AllocatorRules)
	if !onlySegments {
		s.UseEarlierStates(t.Facts.EarlierStates)
	}
	r := livemem.MemoryReplay{Live: livemem.New(&t.Origins, t.ContextEndFrees), Events: t.Events, Consume: consume}
	r.Exit = func(pid int32, atNs int64) { s.EndProcess(pid, atNs, consumeAllocator) }
	allCalls, allEvents := NewOrderedRows(
		t.Memory,
		t.NewMemoryStream(),
	), NewOrderedRows(
		t.Allocations,
		t.NewAllocatorStream(onlySegments),
	)
	defer allCalls.Close()
	defer allEvents.Close()
	var calls []livemem.MemoryCall
	var events []caching.AllocatorEvent
	var callErr, err error
	for {
		if len(calls) == 0 && callErr == nil {
			calls, callErr = allCalls.NextRows()
		}
		if len(events) == 0 && err == nil {
			events, err = allEvents.NextRows()
		}
		switch {
		case len(calls) > 0 && (len(events) == 0 || calls[0].AtNs <= events[0].AtNs):
			r.ApplyCall(&calls[0])
			calls = calls[1:]
		case len(events) > 0:
			r.ApplyEventsBefore(events[0].AtNs)
			s.ApplyStatesBefore(events[0].AtNs, consumeAllocator)
			s.ApplyEvent(&events[0], consumeAllocator)
			events = events[1:]
		default:
			s.ApplyStatesBefore(math.MaxInt64, consumeAllocator)
			r.ApplyRemainingEvents()
			return r.Live, s, t.WrapReadError(errors.Join(err, callErr))
		}
	}
}

// ReplayMemory replays all memory calls of the recording in the order of their effect. It passes
// each change to consume before it is applied, and returns the final memory.
//
// Failed, open and abandoned calls change nothing. A free of an unknown pointer ends memory from
// before the recording: it is counted, and bytes never become negative. An allocation that returns
// a live pointer proves that a free was lost. The end of a context frees the memory allocated in
// it, and the end of a process all of its memory. Physical memory lives while it has references or
// mappings, regardless of contexts. If calls nest (a runtime call around a driver call) and both
// are recorded, the first to take effect counts.
func (t *Timeline) ReplayMemory(consume func(*livemem.Set, *livemem.Change)) (*livemem.Set, error) {
	r := livemem.MemoryReplay{Live: livemem.New(&t.Origins, t.ContextEndFrees), Events: t.Events, Consume: consume}
	err := EachRowInOrder(t.Memory, t.NewMemoryStream(), func(m *livemem.MemoryCall) error {
		r.ApplyCall(m)
		return nil
	})
	r.ApplyRemainingEvents()
	return r.Live, t.WrapReadError(err)
}
