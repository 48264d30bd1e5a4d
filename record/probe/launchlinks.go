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

// launchLinks holds the links of the probes on kernel launches. If a program launches too many
// kernels, the return probes are removed for a share of the time (returns.go), or all of them
// (package overhead).
type launchLinks struct {
	skipped          bool // return probes of launches are removed
	detached         bool // entry and return probes of launches are removed
	entries, returns []launchLink
}

// launchLink is the link of the entries or of the returns of one library in one process. link is
// nil while the probes are removed.
type launchLink struct {
	executable *link.Executable
	options    link.UprobeMultiOptions
	link       link.Link
	gone       bool // the process has exited: do not attach again
}

// listOpenLinks returns the open links of launch probes.
func listOpenLinks(of []launchLink) []link.Link {
	var links []link.Link
	for _, l := range of {
		if l.link != nil {
			links = append(links, l.link)
		}
	}
	return links
}

// closeLaunchLinks closes the links of launch probes.
func closeLaunchLinks(of []launchLink) error {
	err := closeLinks(listOpenLinks(of))
	for i := range of {
		of[i].link = nil
	}
	return err
}

// addLaunchLinks attaches entries and returns of launches, in separate links. While launches are
// not recorded, it attaches them later. The caller holds p.mu.
func (p *Probes) addLaunchLinks(executable *link.Executable, probes []library.Probe, pid int) error {
	entry, exit := makeMultiOptions(probes, pid)
	p.launches.entries = append(p.launches.entries, launchLink{executable: executable, options: entry})
	p.launches.returns = append(p.launches.returns, launchLink{executable: executable, options: exit})
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return p.attachMissingLaunches()
}

// attachMissingLaunches attaches those launch probes that should be attached and are not, returns
// first, so that each recorded entry has its return. The caller holds p.mu.
func (p *Probes) attachMissingLaunches() error {
	if p.launches.detached {
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
				of[i].gone = true // the library file is open, so the process is missing
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

// awaitLaunchReturns waits until no open launch waits for its return probe. It reports false if
// stop was closed or limit has passed; limit 0 means no limit.
func (p *Probes) awaitLaunchReturns(stop <-chan struct{}, limit time.Duration) (bool, error) {
	for begin := time.Now(); limit == 0 || time.Since(begin) < limit; {
		if clock.Sleep(stop, returnsPollInterval) {
			return false, nil
		}
		open, err := p.OpenCalls()
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(open, launchAwaitsReturn) {
			return true, nil
		}
	}
	return false, nil
}

// launchAwaitsReturn reports whether an open call is a launch that will be sent at its return.
func launchAwaitsReturn(e bpf.CudaEvent) bool {
	call, _, _, ok := bpf.FunctionByCookie(e.Call)
	return ok && call.SamplesReturnProbes() && e.Flags&uint8(bpf.CudaEventFlagsEVENT_NO_RETURN) == 0
}

// LaunchSwitchDelay is how long in advance the BPF programs get the time at which launches are
// included or ignored. It is longer than the recorder usually waits for a CPU.
const LaunchSwitchDelay = 20 * time.Millisecond

// IgnoreLaunches makes the BPF programs ignore launches that begin at or after untilNs, on
// CLOCK_MONOTONIC. All launches before untilNs are recorded. Call DetachLaunches next.
func (p *Probes) IgnoreLaunches() (untilNs int64, err error) {
	untilNs = clock.ReadNs(unix.CLOCK_MONOTONIC) + LaunchSwitchDelay.Nanoseconds()
	if err := p.Objects.LaunchesUntilNs.Set(uint64(untilNs)); err != nil {
		return 0, fmt.Errorf("ignore launches: %w", err)
	}
	p.MissingLaunches.Begin(untilNs)
	return untilNs, nil
}

// maxLaunchReturnWait limits how long DetachLaunches waits for open launches. A launch does not
// return while its stream's queue is full.
const maxLaunchReturnWait = time.Second

// DetachLaunches removes the launch probes, after IgnoreLaunches. Closing stop ends its waits.
func (p *Probes) DetachLaunches(stop <-chan struct{}) error {
	if clock.Sleep(stop, LaunchSwitchDelay) {
		return nil
	}
	p.mu.Lock()
	p.launches.detached = true
	err := closeLaunchLinks(p.launches.entries)
	p.mu.Unlock()
	returned, aerr := p.awaitLaunchReturns(stop, maxLaunchReturnWait)
	if err = errors.Join(err, aerr); err != nil || !returned {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return closeLaunchLinks(p.launches.returns)
}

// AttachLaunches attaches the launch probes again. All launches that begin at or after fromNs, on
// CLOCK_MONOTONIC, are recorded.
func (p *Probes) AttachLaunches() (fromNs int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launches.detached = false
	if err := p.attachMissingLaunches(); err != nil {
		return 0, fmt.Errorf("probe launches: %w", err)
	}
	for {
		fromNs = clock.ReadNs(unix.CLOCK_MONOTONIC) + LaunchSwitchDelay.Nanoseconds()
		err := errors.Join(
			p.Objects.LaunchesFromNs.Set(uint64(fromNs)),
			p.Objects.LaunchesUntilNs.Set(uint64(math.MaxUint64)),
		)
		if err != nil {
			return 0, fmt.Errorf("probe launches: %w", err)
		}
		if clock.ReadNs(unix.CLOCK_MONOTONIC) < fromNs { // otherwise the window was set too late: try again
			p.MissingLaunches.End(fromNs)
			return fromNs, nil
		}
	}
}
