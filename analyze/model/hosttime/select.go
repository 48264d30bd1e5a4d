package hosttime

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// HasTimes reports whether the recording has waits, CPU samples, garbage collections or metrics. States of
// threads at the end of a recording alone are no times.
func HasTimes(t *timeline.Timeline) bool {
	return slices.ContainsFunc(t.Host, func(g *format.Group) bool {
		return slices.ContainsFunc(g.Kinds(), func(kind string) bool { return kind != format.KindThreadState })
	})
}

// Selection passes on the rows that pass a filter. Reports and exports share it, so their sums are equal. It
// is not safe for concurrent use.
type Selection struct {
	Filter *query.Filter
	Window query.Window
	// Bad is the number of rows with impossible values that Each has seen, of all processes. A wait that
	// begins before the last one of its thread has ended is one of them.
	Bad int64
	// Pids are the processes that Each has seen.
	Pids map[int32]bool
	ends map[origin.Thread]int64 // end of the last wait of each thread
}

// Yield has the functions to which Selection.Each passes rows. Functions may be nil. Rows are valid until the
// function returns.
type Yield struct {
	// Wait gets waits that touch the window, cut to it. Waits of a thread do not overlap.
	Wait func(w *Wait)
	// Sample gets CPU samples in the window.
	Sample func(s *CPUSample)
	// Pause gets garbage collections that touch the window, cut to it.
	Pause func(p *Pause)
	// Metric gets metrics at all times, because a counter in the window begins before it.
	Metric func(m *Metric)
}

// NewSelection returns a selection of the rows of a recording that pass the filter.
func NewSelection(t *timeline.Timeline, f *query.Filter) *Selection {
	return &Selection{
		Filter: f, Window: f.NarrowWindow(t.RecordingWindow()), Pids: make(map[int32]bool),
		ends: make(map[origin.Thread]int64),
	}
}

// Each reads the recording, and passes on its rows. It returns errors of reading.
func (s *Selection) Each(t *timeline.Timeline, y Yield) error {
	return EachGroup(t, func(rows *Rows) error {
		s.Bad += rows.Bad
		for i := range rows.Waits {
			if w := &rows.Waits[i]; s.passes(w.Thread) && s.cutWait(w) && y.Wait != nil {
				y.Wait(w)
			}
		}
		for i := range rows.Samples {
			if p := &rows.Samples[i]; s.passes(p.Thread) && y.Sample != nil &&
				p.AtNs >= s.Window.FromNs && p.AtNs <= s.Window.ToNs {
				y.Sample(p)
			}
		}
		for i := range rows.Pauses {
			if p := &rows.Pauses[i]; s.passes(p.Thread) && s.cut(&p.FromNs, &p.ToNs) && y.Pause != nil {
				y.Pause(p)
			}
		}
		for i := range rows.Metrics {
			if m := &rows.Metrics[i]; (m.Pid == 0 || s.passes(m.Thread)) && y.Metric != nil && !isBadMetric(m.Value) {
				y.Metric(m)
			}
		}
		return nil
	})
}

// passes reports whether the rows of a thread, or of a process if tid is 0, pass the filter. Rows of class
// host have no device and no stream.
func (s *Selection) passes(th origin.Thread) bool {
	s.Pids[th.Pid] = true
	return PassesThread(s.Filter, th)
}

// PassesThread reports whether a filter passes rows of class host of a thread, or of a process if the tid is 0.
func PassesThread(f *query.Filter, th origin.Thread) bool {
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, th.Pid)) &&
		(len(f.Tids) == 0 || th.Tid == 0 || slices.Contains(f.Tids, th.Tid))
}

// cutWait cuts a wait to the window, and to the end of the last wait of its thread. It returns false if
// nothing is left.
func (s *Selection) cutWait(w *Wait) bool {
	if end := s.ends[w.Thread]; w.FromNs < end {
		s.Bad++
		if w.FromNs = end; w.ToNs <= end {
			return false
		}
	}
	s.ends[w.Thread] = w.ToNs
	if !s.cut(&w.FromNs, &w.ToNs) {
		return false
	}
	w.QueuedNs = min(w.QueuedNs, w.ToNs-w.FromNs)
	return true
}

// cut cuts a time to the window. It returns false if the two do not touch.
func (s *Selection) cut(fromNs, toNs *int64) bool {
	if *toNs < s.Window.FromNs || *fromNs > s.Window.ToNs {
		return false
	}
	*fromNs, *toNs = max(*fromNs, s.Window.FromNs), min(*toNs, s.Window.ToNs)
	return true
}
