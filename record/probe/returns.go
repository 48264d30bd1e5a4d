//go:build linux

package probe

import (
	"fmt"
	"time"
)

// returnsGrace is for launches under way, which may wait for room in a full queue.
const returnsGrace = 10 * time.Millisecond

// SkipReturns removes the probes of returns of launches. Calls are sent at their entry first; the
// probes go when earlier launches have returned. Closing stop ends the wait.
func (p *Probes) SkipReturns(stop <-chan struct{}) error {
	if err := p.Objects.SkipReturns.Set(uint8(1)); err != nil {
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

// ProbeReturns probes the returns of launches again.
func (p *Probes) ProbeReturns() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.skipped = false
	if err := p.placeLaunches(); err != nil {
		return fmt.Errorf("probe returns of launches: %w", err)
	}
	return p.Objects.SkipReturns.Set(uint8(0))
}
