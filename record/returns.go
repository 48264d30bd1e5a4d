//go:build linux

package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurec/gpurec/format"
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

// returnsGrace is for launches under way, which may wait for room in a full queue.
const returnsGrace = 10 * time.Millisecond

// skipReturns ends the probing of returns of launches: first calls are sent at their
// entry, then, when those before have returned, the probes go. stop ends the wait.
func (p *probes) skipReturns(stop <-chan struct{}) error {
	if err := p.objects.SkipReturns.Set(uint8(1)); err != nil {
		return fmt.Errorf("send launches at their entry: %w", err)
	}
	if returned, err := p.awaitReturns(stop, 0); err != nil || !returned {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.skipped = true
	return remove(p.launches.returns)
}

// probeReturns begins the probing of returns again.
func (p *probes) probeReturns() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.skipped = false
	if err := p.placeLaunches(); err != nil {
		return fmt.Errorf("probe returns of launches: %w", err)
	}
	return p.objects.SkipReturns.Set(uint8(0))
}

// spareReturns looks at the rate of launches until stop is closed.
func (s *Session) spareReturns(stop <-chan struct{}) {
	noted, policy := false, s.opt.returns
	for !sleep(stop, policy.on/4) {
		rate := s.scribe.launchesPerSecond()
		if rate < policy.maxRate || s.launchesSampled.Load() {
			continue
		}
		if !noted {
			s.noteReturns(rate)
			noted = true
		}
		err := s.probes.skipReturns(stop)
		if sleep(stop, policy.period-policy.on) {
			return
		}
		if err = errors.Join(err, s.probes.probeReturns()); err != nil {
			s.scribe.send([]format.Row{{Kind: format.KindNote, Name: "returns", StartNs: s.clock.now(), Device: -1, Message: err.Error()}})
			return
		}
		if sleep(stop, policy.on) {
			return
		}
	}
}

func (s *Session) noteReturns(rate int64) {
	s.scribe.send([]format.Row{{
		Kind: format.KindNote, Name: "returns", StartNs: s.clock.now(), Device: -1, Value: float64(rate),
		Message: fmt.Sprintf("a process launched %d kernels a second: from here on duration and result of launches are recorded for %v in every %v (--keep-returns: for all)",
			rate, s.opt.returns.on, s.opt.returns.period),
	}})
}

// launchRate counts launches by process, to find the rate of the busiest one.
type launchRate struct {
	since time.Time
	calls map[int32]int64
}

func newLaunchRate() launchRate { return launchRate{since: time.Now(), calls: make(map[int32]int64)} }

func (r *launchRate) count(pid int32) { r.calls[pid]++ }

// minRateInterval is the shortest time in which a rate shows.
const minRateInterval = 300 * time.Millisecond

// look returns the highest rate, per second, of the interval that ends now, if that is
// long enough to tell.
func (r *launchRate) look(now time.Time) (rate int64, ok bool) {
	elapsed := now.Sub(r.since)
	if elapsed < minRateInterval {
		return 0, false
	}
	for _, n := range r.calls {
		rate = max(rate, int64(float64(n)/elapsed.Seconds()))
	}
	r.since = now
	clear(r.calls)
	return rate, true
}
