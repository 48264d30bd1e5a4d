package timeline

import (
	"errors"
	"math"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// ReplayMemoryAndAllocators replays memory calls and allocator events together in order of time,
// and passes the changes of both to their consumers.
func (t *Timeline) ReplayMemoryAndAllocators(
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.ChangeConsumer,
) (*livemem.Set, *caching.AllocatorSet, error) {
	r := t.NewMemoryAndAllocatorReplay(consume, consumeAllocator)
	err := r.Finish()
	return r.Live(), r.Allocators, err
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
	r := t.NewMemoryReplay(consume)
	err := r.Finish()
	return r.Live(), err
}

// MemoryReplay is a replay of memory calls, and optionally of allocator events, that continues as the recording grows:
// Extend adds rows to its Timeline, and Advance replays them. Finish ends it, and so does an error. It is not safe for
// concurrent use, and not while Extend runs.
type MemoryReplay struct {
	// Allocators are the caching allocators; nil if their events are not replayed.
	Allocators *caching.AllocatorSet

	t                *Timeline
	driver           livemem.MemoryReplay
	calls            *OrderedRows[livemem.MemoryCall]
	events           *OrderedRows[caching.AllocatorEvent] // nil if they are not replayed
	consumeAllocator caching.ChangeConsumer
	useEarlierStates bool
	readings         *readingQueue               // nil: no readings replace missing events
	onReading        func(*caching.EarlierState) // replaces consumeAllocator for readings, if set

	appliedNs    int64 // driver events before it were applied, Unix ns
	lastEventNs  int64 // time of the last allocator event, Unix ns
	extended     int   // how often the Timeline was extended when events and states were read
	callErr, err error
}

// NewMemoryReplay returns a replay of memory calls, as ReplayMemory does it. It passes each change to consume before it
// is applied.
func (t *Timeline) NewMemoryReplay(consume func(*livemem.Set, *livemem.Change)) *MemoryReplay {
	return &MemoryReplay{
		t: t,
		driver: livemem.MemoryReplay{
			Live:    livemem.New(&t.Origins, t.ContextEndFrees),
			Events:  t.Events,
			Consume: consume,
		},
		calls:       NewOrderedRows(nil, t.NewMemoryStream()),
		appliedNs:   math.MinInt64,
		lastEventNs: math.MinInt64,
		extended:    t.extended,
	}
}

// NewMemoryAndAllocatorReplay returns a replay of memory calls and allocator events together, as
// ReplayMemoryAndAllocators does it.
func (t *Timeline) NewMemoryAndAllocatorReplay(
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.ChangeConsumer,
) *MemoryReplay {
	return t.newReplayOfBoth(false, consume, consumeAllocator)
}

// newReplayOfBoth is NewMemoryAndAllocatorReplay, optionally with only those allocator events that concern segments.
func (t *Timeline) newReplayOfBoth(
	onlySegments bool,
	consume func(*livemem.Set, *livemem.Change),
	consumeAllocator caching.ChangeConsumer,
) *MemoryReplay {
	r := t.NewMemoryReplay(consume)
	r.events = NewOrderedRows(nil, t.NewAllocatorStream(onlySegments))
	r.consumeAllocator, r.useEarlierStates = consumeAllocator, !onlySegments
	r.Allocators = caching.NewAllocatorSet(&t.Allocators, t.Facts.AllocatorRules)
	r.useReadings(onlySegments)
	if r.useEarlierStates {
		r.Allocators.UseEarlierStates(t.earlierStates)
	}
	r.driver.Exit = func(pid int32, atNs int64) { r.Allocators.EndProcess(pid, atNs, consumeAllocator) }
	return r
}

// Live returns the live memory after the changes so far.
func (r *MemoryReplay) Live() *livemem.Set { return r.driver.Live }

// Advance replays all calls and events before untilNs, Unix ns. It must not decrease. No call that is added to the
// Timeline later may begin, and no event or exit happen, before untilNs: such an event is ignored. It returns errors
// of reading the recording.
func (r *MemoryReplay) Advance(untilNs int64) error {
	r.readNewEvents()
	r.grow(untilNs)
	if err := r.replayRows(); err != nil {
		return err
	}
	r.driver.ApplyEventsBefore(untilNs)
	r.appliedNs = max(r.appliedNs, untilNs)
	return nil
}

// Finish replays all remaining calls and events. It returns errors of reading the recording. Live has the final memory.
func (r *MemoryReplay) Finish() error {
	r.readNewEvents()
	r.grow(math.MaxInt64)
	defer r.close()
	err := r.replayRows()
	if r.events != nil {
		err = errors.Join(err, r.applyStatesBefore(math.MaxInt64))
	}
	r.driver.ApplyRemainingEvents()
	return err
}

// omitEarlierStates makes the replay ignore states that it has not applied yet.
func (r *MemoryReplay) omitEarlierStates() {
	r.useEarlierStates = false
	r.Allocators.UseEarlierStates(nil)
}

// grow adds the new row groups of the Timeline, and lets rows before limitNs pass.
func (r *MemoryReplay) grow(limitNs int64) {
	r.calls.Grow(r.t.Memory, limitNs)
	if r.readings != nil {
		r.readings.grow(limitNs)
	}
	if r.events != nil {
		r.events.Grow(r.t.Allocations, limitNs)
	}
}

func (r *MemoryReplay) close() {
	r.calls.Close()
	if r.readings != nil {
		r.readings.close()
	}
	if r.events != nil {
		r.events.Close()
	}
}

// readNewEvents takes the events and states that are not applied yet from a Timeline that was extended.
func (r *MemoryReplay) readNewEvents() {
	if r.extended == r.t.extended {
		return
	}
	r.extended = r.t.extended
	if r.events != nil {
		r.useReadings(!r.useEarlierStates)
	}
	events := r.t.Events
	r.driver.Events = events[sort.Search(len(events), func(i int) bool { return events[i].AtNs >= r.appliedNs }):]
	if r.useEarlierStates {
		states := r.t.earlierStates
		isNew := func(i int) bool { return states[i].AtNs > r.lastEventNs }
		r.Allocators.UseEarlierStates(states[sort.Search(len(states), isNew):])
	}
}

// replayRows replays the rows up to the limit.
func (r *MemoryReplay) replayRows() error {
	if r.events == nil {
		return r.replayCalls()
	}
	var calls []livemem.MemoryCall
	var events []caching.AllocatorEvent
	for {
		if len(calls) == 0 && r.callErr == nil {
			calls, r.callErr = r.calls.NextRows()
		}
		if len(events) == 0 && r.err == nil {
			events, r.err = r.events.NextRows()
		}
		switch {
		case len(calls) > 0 && (len(events) == 0 || calls[0].AtNs <= events[0].AtNs):
			if err := r.applyStatesBefore(calls[0].AtNs); err != nil {
				return err
			}
			r.driver.ApplyCall(&calls[0])
			calls = calls[1:]
		case len(events) > 0:
			r.driver.ApplyEventsBefore(events[0].AtNs)
			if err := r.applyStatesBefore(events[0].AtNs); err != nil {
				return err
			}
			r.lastEventNs = events[0].AtNs
			r.Allocators.ApplyEvent(&events[0], r.consumeAllocator)
			events = events[1:]
		default:
			return r.t.WrapReadError(errors.Join(r.err, r.callErr))
		}
	}
}

// replayCalls replays the memory calls up to the limit.
func (r *MemoryReplay) replayCalls() error {
	for r.callErr == nil {
		var calls []livemem.MemoryCall
		calls, r.callErr = r.calls.NextRows()
		if len(calls) == 0 {
			break
		}
		for i := range calls {
			r.driver.ApplyCall(&calls[i])
		}
	}
	return r.t.WrapReadError(r.callErr)
}
