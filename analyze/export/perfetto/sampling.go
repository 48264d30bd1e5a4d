package perfetto

import (
	"math"

	"github.com/gpurec/gpurec/analyze/query"
)

// samplingMarks returns marks for the intervals in which launches, or their stacks, were not
// recorded.
func (p *trace) samplingMarks() (marks []mark) {
	s := &p.t.Facts.Sampling
	end := p.t.Recording().ToNs
	for _, kind := range []struct {
		name  string
		times []query.Window
	}{
		{"launches not recorded (--max-overhead)", s.NoLaunches},
		{"stacks of launches not recorded (--max-overhead)", s.NoStacks},
	} {
		for _, w := range kind.times {
			if w.ToNs == math.MaxInt64 {
				w.ToNs = max(w.FromNs, end)
			}
			marks = append(marks, mark{w.FromNs, func() {
				p.instant(p.ownTrack(), kind.name)
				p.w.note("interval_ns", annotationInt, uint64(w.DurNs()))
				p.w.finish(w.FromNs)
			}})
		}
	}
	return marks
}
