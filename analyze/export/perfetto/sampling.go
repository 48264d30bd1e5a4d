package perfetto

import (
	"math"

	"github.com/gpurec/gpurec/analyze/query"
)

// newSamplingMarks returns marks for the intervals in which launches, or their stacks, were not
// recorded.
func (p *traceBuilder) newSamplingMarks() (marks []traceMark) {
	s := &p.t.Facts.Sampling
	end := p.t.RecordingWindow().ToNs
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
			marks = append(marks, traceMark{w.FromNs, func() {
				p.startInstant(p.findGpurecTrack(), kind.name)
				p.w.addAnnotation("interval_ns", fieldAnnotationInt, uint64(w.DurNs()))
				p.w.finishEvent(w.FromNs)
			}})
		}
	}
	return marks
}
