package activity

import (
	"cmp"
	"slices"
	"sync"

	"github.com/gpurec/gpurec/analyze/model/progress"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Activity is the activity of a recording in a window.
type Activity struct {
	*Result
	// UntilNs is the end of the part of the recording that was read, Unix ns; 0: all was read.
	UntilNs int64
	plan    *attempt
	means   map[durationKey]*Duration
	shared  map[durationKey]bool // durations with IsShared
}

// Of returns the activity of a recording in a window. It computes it once for all views of the
// Timeline; later calls with the same window return the same Activity. Several goroutines may call it.
// It returns errors of reading the recording. Without progress words the Activity is empty.
func Of(t *timeline.Timeline, w query.Window) (*Activity, error) {
	return timeline.Remember(t, activityOf{w, 0}, func() (*Activity, error) { return compute(t.NewView(), w, 0) })
}

// OfPart is Of for the first part of a window, as if the recording ended there. The part has about a number
// of calls; 0 means all. If the window has no more calls, the part is the whole window.
func OfPart(t *timeline.Timeline, w query.Window, calls int64) (*Activity, error) {
	share := float64(calls) / float64(max(1, t.Scan.Events))
	part := int64(share * float64(t.RecordingWindow().DurNs()))
	if calls <= 0 || part >= w.DurNs() {
		return Of(t, w)
	}
	untilNs := w.FromNs + part
	return timeline.Remember(t, activityOf{w, untilNs}, func() (*Activity, error) {
		return compute(t.NewView(), w, untilNs)
	})
}

// Prefetch begins to compute the activity of a recording in a window, for a later call of Of. The
// recording must stay open until such a call has returned.
func Prefetch(t *timeline.Timeline, w query.Window) {
	if len(t.Facts.Channels) > 0 {
		view := t.NewView()
		go func() { _, _ = Of(view, w) }() // the later call returns the error
	}
}

// activityOf is the key of the activity of a window in the memo of a Timeline. untilNs is
// Activity.UntilNs.
type activityOf struct {
	window  query.Window
	untilNs int64
}

// MeanOf returns the estimated duration of operations of a kind with a label in a process. It returns nil if
// there is none.
func (a *Activity) MeanOf(pid int32, op Op, label int32) *Duration {
	return a.means[durationKey{pid, labelKey{op, label}}]
}

// EachOperation calls yield for each operation with a channel, in the whole recording. Operations of a channel come in
// the order of their calls, without Call.Event. The pointer is valid until yield returns. Several goroutines may call
// EachOperation. It returns errors of reading the recording, or of a file that has the operations.
func (a *Activity) EachOperation(yield func(*Operation)) error {
	return a.EachOperationOrSpan(yield, nil)
}

// EachOperationOrSpan is EachOperation, and calls untimed for spans of time in which operations without a channel may
// have run, as Options.OnUntimed.
func (a *Activity) EachOperationOrSpan(yield func(*Operation), untimed func(pid, device int32, span Interval)) error {
	if a.plan == nil {
		return nil
	}
	return a.plan.eachOperationAlongside(a.means, yield, untimed)
}

// replayLock is the key of a lock in the memo of a Timeline. The activities of several windows are computed one after
// the other, because each needs much memory.
type replayLock struct{}

// compute computes the activity of a recording in a window. It reads the recording up to untilNs, Unix ns;
// 0 means all of it.
func compute(t *timeline.Timeline, w query.Window, untilNs int64) (*Activity, error) {
	if len(t.Facts.Channels) == 0 {
		return &Activity{Result: new(Result)}, nil
	}
	replaying, err := timeline.Remember(t, replayLock{}, func() (*sync.Mutex, error) { return new(sync.Mutex), nil })
	if err != nil {
		return nil, err
	}
	replaying.Lock()
	defer replaying.Unlock()
	read, labels, err := newReplay(t, untilNs)
	if err != nil {
		return nil, err
	}
	plan, err := findBest(read, recordedChannels(t), Options{
		Gaps: recordedGaps(t), Window: Window(w), untilNs: untilNs, keepsOperations: true,
	})
	if err != nil {
		return nil, err
	}
	result := plan.result()
	plan.out, plan.reader = nil, nil
	result.Labels = labels.list
	a := &Activity{
		Result:  result,
		UntilNs: untilNs,
		plan:    plan,
		means:   result.durationsByKey(),
		shared:  make(map[durationKey]bool),
	}
	for i := range result.Durations {
		d := &result.Durations[i]
		a.shared[durationKey{d.Pid, labelKey{d.Op, d.Label}}] = d.IsShared
	}
	return a, nil
}

// newReplay returns a Source of the calls and samples of a recording up to a time, Unix ns, and the labels of its calls. 0
// means all of it. It returns errors of reading the recording.
func newReplay(t *timeline.Timeline, untilNs int64) (Source, *labelTable, error) {
	labels := new(labelTable)
	timing, err := readEventTiming(t)
	if err != nil {
		return nil, nil, t.WrapReadError(err)
	}
	contexts, several, err := readOnlyContexts(t)
	if err != nil {
		return nil, nil, t.WrapReadError(err)
	}
	var peers timeline.PeerCopies
	if several {
		if peers, err = t.ReadPeerCopies(); err != nil {
			return nil, nil, t.WrapReadError(err)
		}
	}
	memory := sync.Pool{New: func() any {
		return &replayMemory{
			rows:  &callRows{t: t, labels: labels, timing: timing, contexts: contexts, peers: peers},
			spare: make(chan []Call, 4),
		}
	}}
	return func(to Consumer) error {
		m := memory.Get().(*replayMemory)
		defer memory.Put(m)
		return t.WrapReadError(mergeRows(t, m, untilNs, to))
	}, labels, nil
}

// recordedChannels returns the channels of a recording.
func recordedChannels(t *timeline.Timeline) (list []Channel) {
	for _, c := range t.Facts.Channels {
		list = append(list, Channel{
			Number: c.Number, Pid: c.Pid, Device: -1, FirstCounter: c.FirstCounter,
			FromNs: c.StartNs, ToNs: cmp.Or(c.EndNs, UnknownNs),
		})
	}
	return list
}

// recordedGaps returns the times in which calls may be missing, in order.
func recordedGaps(t *timeline.Timeline) (list []Window) {
	for _, w := range t.Facts.Sampling.NoLaunches {
		list = append(list, Window{w.FromNs, w.ToNs})
	}
	for _, l := range t.Facts.Lost {
		list = append(list, Window{l.StartNs, units.EndOfRange(l.StartNs, l.DurNs)})
	}
	slices.SortFunc(list, func(a, b Window) int { return cmp.Compare(a.FromNs, b.FromNs) })
	joined := list[:0]
	for _, w := range list {
		if n := len(joined); n > 0 && w.FromNs <= joined[n-1].ToNs {
			joined[n-1].ToNs = max(joined[n-1].ToNs, w.ToNs)
			continue
		}
		joined = append(joined, w)
	}
	return joined
}

// replayMemory is memory of a replay, which later replays use again.
type replayMemory struct {
	rows  *callRows
	spare chan []Call
}

// mergeRows gives calls and samples to a consumer in order of time. Another goroutine reads the calls one row group
// ahead. Row groups that begin after untilNs, Unix ns, are not read; 0: all are.
func mergeRows(t *timeline.Timeline, m *replayMemory, untilNs int64, to Consumer) error {
	calls := timeline.NewOrderedRows(spansUntil(t.Calls, untilNs), timeline.RowStream[Call]{
		Load: func(s timeline.Span) ([]Call, error) {
			var list []Call
			select {
			case list = <-m.spare:
			default:
			}
			return m.rows.readGroup(s.Group, list[:0])
		},
		LoadAhead: true,
		Release: func(_ timeline.Span, list []Call) {
			select {
			case m.spare <- list:
			default:
			}
		},
		At:   func(c *Call) int64 { return c.StartNs },
		Less: (*Call).startsBefore,
	})
	defer calls.Close()
	samples := progress.NewReader(t)
	var pending []Call
	var s Sample
	isDone := func() bool {
		f, ok := to.(*assumptionFilter)
		return ok && f.isDone
	}
	for !isDone() {
		batch, err := samples.NextSamples()
		if err != nil {
			return err
		}
		for i := range batch {
			s = Sample{batch[i].SeenNs, batch[i].Counter, batch[i].GPUTimeNs, batch[i].Channel}
			if pending, err = addCallsUpTo(s.SeenNs, pending, calls, to); err != nil {
				return err
			}
			to.AddSample(&s)
		}
		if len(batch) == 0 {
			_, err = addCallsUpTo(UnknownNs, pending, calls, to)
			return err
		}
	}
	return nil
}

// spansUntil returns the row groups that begin up to a time, Unix ns; 0: all.
func spansUntil(spans []timeline.Span, untilNs int64) []timeline.Span {
	if untilNs == 0 {
		return spans
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s timeline.Span) bool { return s.FirstNs > untilNs })
}

// addCallsUpTo gives the calls that start up to ns to a consumer. It returns the calls that are read
// but not given.
func addCallsUpTo(ns int64, pending []Call, calls *timeline.OrderedRows[Call], to Consumer) ([]Call, error) {
	for {
		for i := range pending {
			if pending[i].StartNs > ns {
				return pending[i:], nil
			}
			to.AddCall(&pending[i])
		}
		next, err := calls.NextRows()
		if err != nil || len(next) == 0 {
			return nil, err
		}
		pending = next
	}
}
