package timeline

import (
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// This file adds the readings of blocks to replays of a recording that lacks the events of allocators for part of the
// time. A reading in a gap is applied at its time. A reading soon after a gap is also turned into the state at the end of
// the gap: the events between both are undone. So the model has all blocks from the first event on.

// maxRewindNs is the longest time from the end of a gap to a reading that is turned into the state at the end of the gap.
// maxRewindEvents bounds the events in this time.
const (
	maxRewindNs     = int64(2e9)
	maxRewindEvents = 1 << 20
)

// indexReadings indexes the readings of a recording that lacks allocator events.
func (t *Timeline) indexReadings() error {
	if !t.IsAllocatorSampled() {
		return nil
	}
	if t.readings == nil {
		t.readings = blockreadings.NewIndex()
	}
	if err := t.readings.Extend(t.Blocks); err != nil {
		return t.WrapReadError(err)
	}
	return t.WrapReadError(t.scanTotals())
}

// EachReading calls yield for the usable readings of a recording that lacks allocator events, in order of time. It returns
// errors of reading the recording.
func (t *Timeline) EachReading(yield func(*caching.EarlierState)) error {
	if t.readings == nil {
		return nil
	}
	states := blockreadings.NewStates(t.readings)
	for {
		s, isEnd, err := states.Next(true)
		if err != nil || isEnd {
			return t.WrapReadError(err)
		}
		if s != nil {
			yield(s)
		}
	}
}

// readingQueue returns the states that readings show, in the order of the times at which they apply.
type readingQueue struct {
	t      *Timeline
	states *blockreadings.States
	// queue has states that apply later, in order of AtNs.
	queue []*caching.EarlierState
	// rewound has the end of the gap for which an allocator got a state, Unix ns.
	rewound map[caching.AllocatorKey]int64
	totals  *OrderedRows[caching.OwnTotals] // nil: not needed
	rows    []caching.OwnTotals             // the next rows of totals
	limitNs int64                           // rows from this time on may be missing, Unix ns; math.MaxInt64: none
	ahead   *windowEvents                   // nil: no state at the end of a gap is needed
}

// newReadingQueue returns the states of all readings. canRewind adds those at the ends of gaps.
func newReadingQueue(t *Timeline, canRewind bool) *readingQueue {
	q := &readingQueue{
		t: t, states: blockreadings.NewStates(t.readings), rewound: make(map[caching.AllocatorKey]int64),
		limitNs: math.MaxInt64,
	}
	if canRewind {
		q.ahead, q.totals = newWindowEvents(t), NewOrderedRows(nil, newTotalsStream())
	}
	return q
}

// grow adds the new row groups of the Timeline, and lets rows before limitNs pass.
func (q *readingQueue) grow(limitNs int64) {
	q.limitNs = limitNs
	if q.ahead != nil {
		q.ahead.rows.Grow(q.t.Allocations, limitNs)
		q.totals.Grow(q.t.totals, limitNs)
	}
}

func (q *readingQueue) close() {
	if q.ahead != nil {
		q.ahead.rows.Close()
		q.totals.Close()
	}
}

// next returns the next state that applies at or before atNs, Unix ns, or nil. The last event that was applied is from
// lastNs: earlier readings come too late. It returns errors of reading the recording.
func (q *readingQueue) next(atNs, lastNs int64) (*caching.EarlierState, error) {
	horizonNs := atNs
	if w, ok := q.t.allocatorWindowAt(atNs); ok && q.ahead != nil {
		horizonNs = max(atNs, min(w.ToNs, units.EndOfRange(w.FromNs, maxRewindNs), q.limitNs-1))
	}
	for q.states.PeekNs() <= min(horizonNs, math.MaxInt64-1) {
		s, isLater, err := q.states.Next(q.limitNs == math.MaxInt64)
		if err != nil {
			return nil, q.t.WrapReadError(err)
		}
		if isLater {
			break
		}
		if s == nil || s.AtNs <= lastNs {
			continue
		}
		s.IsReported = q.t.isReportedAllocator(s.Pid)
		if err := q.addStateAtWindow(s, lastNs); err != nil {
			return nil, err
		}
		q.add(s)
	}
	if len(q.queue) == 0 || q.queue[0].AtNs > atNs {
		return nil, nil
	}
	s := q.queue[0]
	q.queue = q.queue[1:]
	return s, nil
}

// add adds a state to the queue.
func (q *readingQueue) add(s *caching.EarlierState) {
	i := sort.Search(len(q.queue), func(i int) bool { return q.queue[i].AtNs > s.AtNs })
	q.queue = slices.Insert(q.queue, i, s)
}

// addStateAtWindow adds the state at the begin of the window with events in which a reading lies. It does nothing if the
// allocator has one already, or if events of the window were applied.
func (q *readingQueue) addStateAtWindow(s *caching.EarlierState, lastNs int64) error {
	key := caching.AllocatorKey{Pid: s.Pid, Device: s.Device}
	w, ok := q.t.allocatorWindowAt(s.AtNs)
	isLate := w.FromNs <= lastNs || s.AtNs-w.FromNs > maxRewindNs
	if !ok || q.ahead == nil || isLate || q.rewound[key] == w.FromNs || s.AtNs == w.FromNs {
		return nil
	}
	q.rewound[key] = w.FromNs
	events, ok, err := q.ahead.between(w.FromNs, s.AtNs)
	if err != nil || !ok {
		return q.t.WrapReadError(err)
	}
	rewind := caching.NewRewind(s, q.t.Facts.AllocatorRules[s.Pid])
	for i := range events {
		if q.ahead.view.Allocators.Keys[events[i].Allocator] == key {
			rewind.AddEvent(&events[i])
		}
	}
	if atBegin := rewind.StateAt(w.FromNs); atBegin != nil {
		q.add(atBegin)
	}
	return nil
}

// isReportedAllocator reports whether the allocator of a process is known from its reported statistics.
func (t *Timeline) isReportedAllocator(pid int32) bool {
	return slices.ContainsFunc(t.Facts.Allocators, func(a facts.AllocatorFact) bool {
		return a.Pid == pid && a.Source == format.SourceReports
	})
}

// allocatorWindowAt returns the time with allocator events that contains atNs, Unix ns, and follows a gap. It returns
// false if there is none.
func (t *Timeline) allocatorWindowAt(atNs int64) (query.Window, bool) {
	gaps := t.Facts.Sampling.NoAllocator
	n := sort.Search(len(gaps), func(i int) bool { return gaps[i].FromNs > atNs })
	if n == 0 || gaps[n-1].ToNs > atNs {
		return query.Window{}, false
	}
	w := query.Window{FromNs: gaps[n-1].ToNs, ToNs: math.MaxInt64}
	if n < len(gaps) {
		w.ToNs = gaps[n].FromNs
	}
	return w, true
}

// windowEvents reads allocator events ahead of a replay.
type windowEvents struct {
	view   *Timeline // has the numbers of the allocators
	rows   *OrderedRows[caching.AllocatorEvent]
	next   []caching.AllocatorEvent // the next rows
	events []caching.AllocatorEvent // those of the last window, in order of time
	fromNs int64                    // begin of the last window, Unix ns
	isFull bool
}

func newWindowEvents(t *Timeline) *windowEvents {
	view := *t
	view.Origins, view.Allocators = origin.NewOriginTable(), caching.NewAllocatorNumbers()
	return &windowEvents{view: &view, rows: NewOrderedRows(nil, view.NewAllocatorStream(false)), fromNs: math.MinInt64}
}

// between returns the events from fromNs to before toNs, Unix ns. fromNs must not decrease. It returns false if there are
// too many. It returns errors of reading the recording.
func (w *windowEvents) between(fromNs, toNs int64) ([]caching.AllocatorEvent, bool, error) {
	if w.fromNs != fromNs {
		w.events, w.fromNs, w.isFull = w.events[:0], fromNs, false
	}
	for !w.isFull {
		if len(w.next) == 0 {
			rows, err := w.rows.NextRows()
			if err != nil {
				return nil, false, err
			}
			if w.next = rows; len(rows) == 0 {
				break
			}
		}
		n := sort.Search(len(w.next), func(i int) bool { return w.next[i].AtNs >= toNs })
		for i := range w.next[:n] {
			if w.next[i].AtNs >= fromNs {
				w.events = append(w.events, w.next[i])
			}
		}
		w.isFull = len(w.events) > maxRewindEvents
		if w.next = w.next[n:]; len(w.next) > 0 {
			break
		}
	}
	n := sort.Search(len(w.events), func(i int) bool { return w.events[i].AtNs >= toNs })
	return w.events[:n], !w.isFull, nil
}

// useReadings makes the replay apply readings, if the recording lacks allocator events. With onlySegments, no state at
// the end of a gap is needed.
func (r *MemoryReplay) useReadings(onlySegments bool) {
	r.Allocators.UseGaps(r.t.Facts.Sampling.NoAllocator)
	if r.readings == nil && r.t.readings != nil {
		r.readings = newReadingQueue(r.t, !onlySegments)
	}
}

// applyStatesBefore applies the states from before an event or call at atNs, Unix ns: those from before the recording,
// and readings.
func (r *MemoryReplay) applyStatesBefore(atNs int64) error {
	for r.readings != nil {
		s, err := r.readings.next(atNs, r.lastEventNs)
		if err != nil {
			return err
		}
		if s == nil {
			break
		}
		if err := r.applyTotalsBefore(s.AtNs); err != nil {
			return err
		}
		r.driver.ApplyEventsBefore(s.AtNs)
		if r.onReading != nil {
			r.onReading(s)
		} else {
			r.Allocators.ApplyReading(s, r.consumeAllocator)
		}
	}
	if err := r.applyTotalsBefore(atNs); err != nil {
		return err
	}
	r.Allocators.ApplyStatesBefore(atNs, r.consumeAllocator)
	return nil
}
