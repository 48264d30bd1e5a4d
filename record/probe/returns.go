//go:build linux

package probe

import (
	"fmt"
	"time"
)

// returnsPollInterval is the interval at which awaitReturns checks for open calls.
const returnsPollInterval = 10 * time.Millisecond

// SkipLaunchReturns sends launches at their entry, and removes the return probes of launches when
// all earlier launches have returned. Closing stop ends the wait.
func (p *Probes) SkipLaunchReturns(stop <-chan struct{}) error {
	if err := p.Objects.SkipReturns.Set(uint8(1)); err != nil {
		return fmt.Errorf("send launches at their entry: %w", err)
	}
	if returned, err := p.awaitLaunchReturns(stop, 0); err != nil || !returned {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows.returnsSkipped = true
	return closeWindowLinks(p.windows.launchReturns)
}

// AttachLaunchReturns attaches the return probes of launches again.
func (p *Probes) AttachLaunchReturns() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows.returnsSkipped = false
	if err := p.attachMissingLinks(); err != nil {
		return fmt.Errorf("probe the returns of launches: %w", err)
	}
	return p.Objects.SkipReturns.Set(uint8(0))
}
