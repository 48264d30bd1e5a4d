package waits

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// threadSpans collects the time from the first to the last recorded call of each thread in a window.
type threadSpans struct {
	window query.Window
	spans  map[origin.Thread]*threadSpan

	start, dur []int64
	pid, tid   []int32
}

// threadSpan is the start of the first call of a thread and the end of its last one, Unix ns.
type threadSpan struct{ firstNs, lastNs int64 }

// addRowGroup adds the calls of a row group.
func (s *threadSpans) addRowGroup(_ timeline.Span, g *format.Group) {
	s.start, s.dur = g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
	s.pid, s.tid = g.Int32("pid", s.pid), g.Int32("tid", s.tid)
	if g.Err() != nil {
		return
	}
	var last origin.Thread
	var span *threadSpan
	for i, start := range s.start {
		if start < s.window.FromNs || start > s.window.ToNs {
			continue
		}
		if now := (origin.Thread{Pid: s.pid[i], Tid: s.tid[i]}); span == nil || now != last {
			last, span = now, s.spans[now]
			if span == nil {
				span = &threadSpan{start, start}
				s.spans[now] = span
			}
		}
		span.firstNs = min(span.firstNs, start)
		span.lastNs = max(span.lastNs, min(units.EndOfRange(start, s.dur[i]), s.window.ToNs))
	}
}
