//go:build linux

package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// returnPolicy says when returns of launches are probed. A probed return costs a launch as
// much again as its entry, and most of what it tells is that nothing happened. Where a
// process launches more than maxRate kernels a second, returns are probed for a share of
// the time only: launches in between are recorded at their entry, without duration and
// result.
type returnPolicy struct {
	on, period time.Duration // probed for on of every period
	maxRate    int64
}

var defaultReturns = returnPolicy{on: time.Second, period: 10 * time.Second, maxRate: 8000}

// spareReturns looks at the rate of launches until stop is closed.
func (s *Session) spareReturns(stop <-chan struct{}) {
	noted, policy := false, s.opt.returns
	for !clock.Sleep(stop, policy.on/4) {
		rate := s.scribe.LaunchesPerSecond()
		if rate < policy.maxRate || s.launchesSampled.Load() {
			continue
		}
		if !noted {
			s.noteReturns(rate)
			noted = true
		}
		err := s.probes.SkipReturns(stop)
		if clock.Sleep(stop, policy.period-policy.on) {
			return
		}
		if err = errors.Join(err, s.probes.ProbeReturns()); err != nil {
			s.scribe.Send([]format.Row{{Kind: format.KindNote, Name: "returns", StartNs: s.clock.NowNs(), Device: -1, Message: err.Error()}})
			return
		}
		if clock.Sleep(stop, policy.on) {
			return
		}
	}
}

func (s *Session) noteReturns(rate int64) {
	s.scribe.Send([]format.Row{{
		Kind: format.KindNote, Name: "returns", StartNs: s.clock.NowNs(), Device: -1, Value: float64(rate),
		Message: fmt.Sprintf("a process launched %d kernels a second: from here on duration and result of launches are recorded for %v in every %v (--keep-returns: for all)",
			rate, s.opt.returns.on, s.opt.returns.period),
	}})
}
