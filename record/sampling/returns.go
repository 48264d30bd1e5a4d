//go:build linux

package sampling

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurec/gpurec/record/clock"
)

// Returns says when returns of launches are probed. A probed return costs a launch as much again as
// its entry, and most of what it tells is that nothing happened. Where a process launches more than
// MaxRate kernels a second, returns are probed for On of every Period only: launches in between are
// recorded at their entry, without duration and result.
type Returns struct {
	On, Period time.Duration
	MaxRate    int64
}

// DefaultReturns probes returns for one second in ten above 8,000 launches a second.
var DefaultReturns = Returns{On: time.Second, Period: 10 * time.Second, MaxRate: 8000}

// SampleReturns removes and places the probes of returns of launches as the policy says.
func (s *Sampler) SampleReturns(policy Returns, stop <-chan struct{}) {
	noted := false
	for !clock.Sleep(stop, policy.On/4) {
		rate := s.Recorder.LaunchesPerSecond()
		if rate < policy.MaxRate || s.launchesSampled.Load() {
			continue
		}
		if !noted {
			s.note("returns", float64(rate), fmt.Sprintf("a process launched %d kernels a second: from here on "+
				"duration and result of launches are recorded for %v in every %v (--keep-returns: for all)",
				rate, policy.On, policy.Period))
			noted = true
		}
		err := s.Probes.SkipReturns(stop)
		if clock.Sleep(stop, policy.Period-policy.On) {
			return
		}
		if err = errors.Join(err, s.Probes.ProbeReturns()); err != nil {
			s.note("returns", 0, err.Error())
			return
		}
		if clock.Sleep(stop, policy.On) {
			return
		}
	}
}
