//go:build linux

package sampling

import (
	"sync/atomic"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

// Recorder measures rates of a recording and writes rows to it. *rowwriter.Writer implements it.
type Recorder interface {
	// Send writes rows of one class. It may block.
	Send(rows []format.Row)
	// LaunchesPerSecond returns the rate of the process with the most kernel launches.
	LaunchesPerSecond() int64
}

// Sampler applies policies to the probes of a recording. Each method is called in its own goroutine
// and returns when stop is closed. It notes in the recording which calls are missing since when.
type Sampler struct {
	Probes   *probe.Probes
	Recorder Recorder
	Clock    clock.Clock
	// Warn is called with a text about data that will be missing in the recording.
	Warn func(text string)
	// Blocks lets LimitOverhead sample events of PyTorch's allocator; nil: they are always recorded.
	Blocks BlockReader

	// launchesSampled is true while launches are recorded in windows only. windowLaunchRate is the
	// number of launches per second in the last window.
	launchesSampled  atomic.Bool
	windowLaunchRate atomic.Int64
	probeCost        atomic.Pointer[format.ProbeCost]
}

// ProbeCost returns the overhead of probes so far, or nil if it is not measured. The caller must not change it.
func (s *Sampler) ProbeCost() *format.ProbeCost { return s.probeCost.Load() }

// writeNote writes a note to the recording.
func (s *Sampler) writeNote(name string, value float64, text string) {
	s.Recorder.Send(
		[]format.Row{
			{Kind: format.KindNote, Name: name, StartNs: s.Clock.NowNs(), Device: -1, Value: value, Message: text},
		},
	)
}
