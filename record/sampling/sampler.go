//go:build linux

package sampling

import (
	"sync/atomic"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/probe"
)

// Recorder has the rates of a recording and takes notes for it. *rowwriter.Writer is one.
type Recorder interface {
	// Send writes rows of one class; it may wait.
	Send(rows []format.Row)
	// BusiestThreadRates returns the hits of the busiest thread since the last call; false if stop was closed.
	BusiestThreadRates(stop <-chan struct{}) (overhead.Rates, bool)
	// LaunchesPerSecond returns the rate of the process that launches most kernels.
	LaunchesPerSecond() int64
}

// Sampler applies policies to the probes of a recording. Each of its methods runs in a goroutine of
// its own until stop is closed, and notes in the recording what is left out from when on.
type Sampler struct {
	Probes   *probe.Probes
	Recorder Recorder
	Clock    clock.Clock
	// Warn is called with what will be missing from the recording.
	Warn func(text string)

	// launchesSampled is set while probes of launches come and go.
	launchesSampled atomic.Bool
}

// note writes a note into the recording.
func (s *Sampler) note(name string, value float64, text string) {
	s.Recorder.Send(
		[]format.Row{
			{Kind: format.KindNote, Name: name, StartNs: s.Clock.NowNs(), Device: -1, Value: value, Message: text},
		},
	)
}
