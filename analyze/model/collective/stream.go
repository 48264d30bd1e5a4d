package collective

import (
	"math"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Stream reads the operations of a recording in order of their start. It keeps only the row groups that overlap in
// time, so its memory does not grow with the recording. It is not safe for concurrent use.
type Stream struct {
	t      *timeline.Timeline
	reader reader
	fromNs int64         // operations that ended before are left out, Unix ns
	spare  [][]Operation // of row groups that were yielded
}

// NewStream reads the communicators of a recording. The stream has the operations that pass the filter of opt and
// overlap its window. NewStream returns errors of reading the recording.
func NewStream(t *timeline.Timeline, opt query.Options) (*Stream, error) {
	window := opt.NarrowWindow(t.RecordingWindow())
	s := &Stream{t: t, fromNs: window.FromNs}
	window.FromNs = math.MinInt64
	s.reader = reader{index: make(map[address][]int32), window: window, filter: &opt.Filter}
	if err := s.reader.readCommunicators(t); err != nil {
		return nil, t.WrapReadError(err)
	}
	return s, nil
}

// Communicators returns the communicators that are known so far. Each adds those without facts.
func (s *Stream) Communicators() []Communicator { return s.reader.survey.Communicators }

// Each calls yield for each operation in order of its start. The operation is valid until yield returns. Each returns
// errors of reading the recording, and the error of yield.
func (s *Stream) Each(yield func(o *Operation) error) error {
	spans, err := s.spans()
	if err != nil {
		return err
	}
	return timeline.EachRowInOrder(spans, timeline.RowStream[Operation]{
		Load:    s.load,
		Release: func(_ timeline.Span, rows []Operation) { s.spare = append(s.spare, rows[:0]) },
		At:      func(o *Operation) int64 { return o.StartNs },
		Less:    startsBefore,
	}, yield)
}

// startsBefore orders operations by their start, and an enclosing one before those inside of it.
func startsBefore(a, b *Operation) bool {
	if a.StartNs != b.StartNs {
		return a.StartNs < b.StartNs
	}
	return a.DurNs > b.DurNs
}

// spans returns the row groups that begin before the end of the window.
func (s *Stream) spans() (list []timeline.Span, err error) {
	var start []int64
	for i, g := range s.t.Groups {
		if g.Class() != format.ClassCollective {
			continue
		}
		start = g.Int64("start_ns", start)
		if err := g.Err(); err != nil {
			return nil, s.t.WrapReadError(err)
		}
		span := timeline.Span{Group: g, Index: i, FirstNs: math.MaxInt64, LastNs: math.MinInt64}
		for _, ns := range start {
			span.FirstNs, span.LastNs = min(span.FirstNs, ns), max(span.LastNs, ns)
		}
		if span.FirstNs <= s.reader.window.ToNs {
			list = append(list, span)
		}
	}
	return list, nil
}

// load returns the operations of a row group, in order.
func (s *Stream) load(span timeline.Span) ([]Operation, error) {
	var list []Operation
	if n := len(s.spare); n > 0 {
		list, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	s.reader.survey.Operations = list
	s.reader.addGroup(span.Group)
	if err := span.Group.Err(); err != nil {
		return nil, s.t.WrapReadError(err)
	}
	list = s.reader.survey.Operations
	kept := list[:0]
	for i := range list {
		if units.EndOfRange(list[i].StartNs, list[i].DurNs) >= s.fromNs {
			kept = append(kept, list[i])
		}
	}
	timeline.SortNearlySorted(kept, startsBefore)
	return kept, nil
}
