package perfetto

import (
	"math"

	"github.com/gpurec/gpurec/analyze/query"
)

// newSamplingMarks returns marks for the intervals in which launches, or their stacks, were not
// recorded.
func (t *traceBuilder) newSamplingMarks() (marks []traceMark) {
	s := &t.t.Facts.Sampling
	end := t.t.RecordingWindow().ToNs
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
				t.startInstant(t.findGpurecTrack(), kind.name)
				t.w.addAnnotation("interval_ns", fieldAnnotationInt, uint64(w.DurNs()))
				t.w.finishEvent(w.FromNs)
			}})
		}
	}
	return marks
}
