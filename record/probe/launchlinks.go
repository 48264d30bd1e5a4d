//go:build linux

package probe

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/library"
)

// launchLinks are the probes of launches of kernels, which are in place for a share of the
// time only where there are too many launches: their returns (returns.go), or all of them
// (package overhead).
type launchLinks struct {
	skipped          bool // returns are not probed
	away             bool // neither entries nor returns are
	entries, returns []launchLink
}

// launchLink is the entries or the returns of one library for one process; link is nil
// while they are not probed. If the process has ended meanwhile, it is gone.
type launchLink struct {
	executable *link.Executable
	options    link.UprobeMultiOptions
	link       link.Link
	gone       bool
}

// placed returns the links that are in place.
func placed(of []launchLink) []link.Link {
	var links []link.Link
	for _, l := range of {
		if l.link != nil {
			links = append(links, l.link)
		}
	}
	return links
}

// remove takes probes away.
func remove(of []launchLink) error {
	err := closeLinks(placed(of))
	for i := range of {
		of[i].link = nil
	}
	return err
}

// linkLaunches links entries and, in a link of their own, returns of launches, or notes
// them for later. The caller holds p.mu.
func (p *Probes) linkLaunches(executable *link.Executable, probes []library.Probe, pid int) error {
	entry, exit := multiOptions(probes, pid)
	p.launches.entries = append(p.launches.entries, launchLink{executable: executable, options: entry})
	p.launches.returns = append(p.launches.returns, launchLink{executable: executable, options: exit})
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return p.placeLaunches()
}

// placeLaunches places those probes of launches that should be and are not, returns first:
// no entry must lack its return. The caller holds p.mu.
func (p *Probes) placeLaunches() error {
	if p.launches.away {
		return nil
	}
	var err error
	place := func(of []launchLink, multi func(*launchLink, *link.UprobeMultiOptions) (link.Link, error)) {
		for i := range of {
			if of[i].link != nil || of[i].gone {
				continue
			}
			options := of[i].options
			l, lerr := multi(&of[i], &options)
			switch {
			case lerr == nil:
				of[i].link = l
			case options.PID != EveryProcess && errors.Is(lerr, os.ErrNotExist):
				of[i].gone = true // the library is held open: it is the process that is not there
			default:
				err = errors.Join(err, lerr)
			}
		}
	}
	if !p.launches.skipped {
		place(p.launches.returns, func(l *launchLink, o *link.UprobeMultiOptions) (link.Link, error) {
			return l.executable.UretprobeMulti(nil, p.Objects.CallExit, o)
		})
	}
	place(p.launches.entries, func(l *launchLink, o *link.UprobeMultiOptions) (link.Link, error) {
		return l.executable.UprobeMulti(nil, p.Objects.LaunchEnter, o)
	})
	return err
}

// awaitReturns waits until no launch awaits its return any more, and reports whether that
// came true within the time; a limit of 0 is none.
func (p *Probes) awaitReturns(stop <-chan struct{}, limit time.Duration) (bool, error) {
	for begin := time.Now(); limit == 0 || time.Since(begin) < limit; {
		if clock.Sleep(stop, returnsGrace) {
			return false, nil
		}
		open, err := p.OpenCalls()
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(open, awaitsReturn) {
			return true, nil
		}
	}
	return false, nil
}

// awaitsReturn reports whether an open call's return is one that is to be given up.
func awaitsReturn(e bpf.CudaEvent) bool {
	call, _, _, ok := bpf.ByCookie(e.Call)
	return ok && call.SamplesReturns() && e.Flags&uint8(bpf.CudaEventFlagsEVENT_NO_RETURN) == 0
}

// LaunchSwitchDelay is how long before a switch of launches the programs get its time. It is longer
// than the recorder usually waits for a processor.
const LaunchSwitchDelay = 20 * time.Millisecond

// IgnoreLaunches makes the programs ignore launches from a time on, which it returns, on
// CLOCK_MONOTONIC. All launches before are recorded. DetachLaunches may follow.
func (p *Probes) IgnoreLaunches() (untilNs int64, err error) {
	untilNs = clock.Ns(unix.CLOCK_MONOTONIC) + LaunchSwitchDelay.Nanoseconds()
	if err := p.Objects.LaunchesUntilNs.Set(uint64(untilNs)); err != nil {
		return 0, fmt.Errorf("leave launches out: %w", err)
	}
	p.Missing.Begin(untilNs)
	return untilNs, nil
}

// dropGrace bounds how long a launch that does not return, since its queue is full, keeps
// the returns of launches probed that are to be left out.
const dropGrace = time.Second

// DetachLaunches removes the probes of launches, after IgnoreLaunches.
func (p *Probes) DetachLaunches(stop <-chan struct{}) error {
	if clock.Sleep(stop, LaunchSwitchDelay) {
		return nil
	}
	p.mu.Lock()
	p.launches.away = true
	err := remove(p.launches.entries)
	p.mu.Unlock()
	returned, aerr := p.awaitReturns(stop, dropGrace)
	if err = errors.Join(err, aerr); err != nil || !returned {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return remove(p.launches.returns)
}

// AttachLaunches probes launches again. It returns the time from which on all are recorded, on
// CLOCK_MONOTONIC.
func (p *Probes) AttachLaunches() (fromNs int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.away = false
	if err := p.placeLaunches(); err != nil {
		return 0, fmt.Errorf("probe launches: %w", err)
	}
	for {
		fromNs = clock.Ns(unix.CLOCK_MONOTONIC) + LaunchSwitchDelay.Nanoseconds()
		err := errors.Join(
			p.Objects.LaunchesFromNs.Set(uint64(fromNs)),
			p.Objects.LaunchesUntilNs.Set(uint64(math.MaxUint64)),
		)
		if err != nil {
			return 0, fmt.Errorf("probe launches: %w", err)
		}
		if clock.Ns(unix.CLOCK_MONOTONIC) < fromNs { // else launches since then may have been left out
			p.Missing.End(fromNs)
			return fromNs, nil
		}
	}
}
