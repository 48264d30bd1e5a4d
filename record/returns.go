//go:build linux

package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
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

// returnLinks are the probed returns of functions whose returns are not always probed.
type returnLinks struct {
	skipped bool
	probed  []returnLink
}

// returnLink is the returns of one library for one process; link is nil while they are
// not probed.
type returnLink struct {
	executable *link.Executable
	options    link.UprobeMultiOptions
	link       link.Link
}

// open returns the links that are in place.
func (r *returnLinks) open() []link.Link {
	var links []link.Link
	for _, l := range r.probed {
		if l.link != nil {
			links = append(links, l.link)
		}
	}
	return links
}

// linkLaunches links entries and, in a link of their own, returns of launches. The caller
// holds p.mu.
func (p *probes) linkLaunches(executable *link.Executable, probes []Probe, pid int) error {
	entry, exit := multiOptions(probes, pid)
	p.launches.probed = append(p.launches.probed, returnLink{executable: executable, options: exit})
	if !p.launches.skipped {
		if err := p.linkReturns(&p.launches.probed[len(p.launches.probed)-1]); err != nil {
			return err
		}
	}
	entries, err := executable.UprobeMulti(nil, p.objects.CallEnter, &entry)
	if err != nil {
		return err
	}
	p.lasting.entries = append(p.lasting.entries, entries)
	p.own(pid, entries)
	p.count += len(entry.Addresses) + len(exit.Addresses)
	return nil
}

func (p *probes) linkReturns(l *returnLink) error {
	options := l.options
	links, err := l.executable.UretprobeMulti(nil, p.objects.CallExit, &options)
	if err != nil {
		return err
	}
	l.link = links
	return nil
}

// skipReturns ends the probing of returns of launches: first calls are sent at their
// entry, then, when those before have returned, the probes go. stop ends the wait.
func (p *probes) skipReturns(stop <-chan struct{}) error {
	if err := p.objects.SkipReturns.Set(uint8(1)); err != nil {
		return fmt.Errorf("send launches at their entry: %w", err)
	}
	for {
		if sleep(stop, returnsGrace) {
			return nil
		}
		open, err := p.openCalls()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(open, awaitsReturn) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.skipped = true
	err := closeLinks(p.launches.open())
	for i := range p.launches.probed {
		p.launches.probed[i].link = nil
	}
	return err
}

// awaitsReturn reports whether an open call's return is one that is to be given up.
func awaitsReturn(e bpf.CudaEvent) bool {
	call, _, _, ok := bpf.ByCookie(e.Call)
	return ok && call.ReturnSpared() && e.Flags&uint8(bpf.CudaEventFlagsEVENT_NO_RETURN) == 0
}

// probeReturns begins the probing of returns again.
func (p *probes) probeReturns() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for i := range p.launches.probed {
		if p.launches.probed[i].link == nil {
			err = errors.Join(err, p.linkReturns(&p.launches.probed[i]))
		}
	}
	if err != nil {
		return fmt.Errorf("probe returns of launches: %w", err)
	}
	p.launches.skipped = false
	return p.objects.SkipReturns.Set(uint8(0))
}

// spareReturns looks at the rate of launches until stop is closed.
func (s *Session) spareReturns(stop <-chan struct{}) {
	noted, policy := false, s.opt.returns
	for !sleep(stop, policy.on/4) {
		rate := s.scribe.launchRate.Load()
		if rate < policy.maxRate {
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
			s.scribe.rows <- []format.Row{{Kind: format.KindNote, Name: "returns", StartNs: s.scribe.accounts.clock.now(), Device: -1, Message: err.Error()}}
			return
		}
		if sleep(stop, policy.on) {
			return
		}
	}
}

func (s *Session) noteReturns(rate int64) {
	s.scribe.rows <- []format.Row{{
		Kind: format.KindNote, Name: "returns", StartNs: s.scribe.accounts.clock.now(), Device: -1, Value: float64(rate),
		Message: fmt.Sprintf("a process launched %d kernels a second: from here on duration and result of launches are recorded for %v in every %v (--keep-returns: for all)",
			rate, s.opt.returns.on, s.opt.returns.period),
	}}
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
