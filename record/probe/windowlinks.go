//go:build linux

package probe

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/overhead"
)

// windowLinks holds the links of probes that can be recorded in windows only (package overhead): those on kernel
// launches and on PyTorch's allocator. If a program launches too many kernels, the return probes are removed for a
// share of the time, too (returns.go).
type windowLinks struct {
	returnsSkipped  bool           // return probes of launches are removed
	detached        overhead.Kinds // kinds whose probes are removed
	launches        []windowLink   // entries of launches
	launchReturns   []windowLink
	allocatorEvents []windowLink
}

// windowLink is the link of the entries or of the returns of one library in one process. link is
// nil while the probes are removed.
type windowLink struct {
	executable *link.Executable
	options    link.UprobeMultiOptions
	link       link.Link
	gone       bool // the process has exited: do not attach again
}

// lists returns all lists of links, entries first.
func (w *windowLinks) lists() []*[]windowLink {
	return []*[]windowLink{&w.launches, &w.allocatorEvents, &w.launchReturns}
}

// entries returns the lists of links to entries of some kinds.
func (w *windowLinks) entries(of overhead.Kinds) (lists [][]windowLink) {
	if of.Has(overhead.Launches) {
		lists = append(lists, w.launches)
	}
	if of.Has(overhead.AllocatorEvents) {
		lists = append(lists, w.allocatorEvents)
	}
	return lists
}

// listOpenLinks returns the open links of a list.
func listOpenLinks(of []windowLink) []link.Link {
	var links []link.Link
	for _, l := range of {
		if l.link != nil {
			links = append(links, l.link)
		}
	}
	return links
}

// closeWindowLinks closes the links of lists.
func closeWindowLinks(lists ...[]windowLink) error {
	var open []link.Link
	for _, of := range lists {
		open = append(open, listOpenLinks(of)...)
	}
	err := closeLinks(open)
	for _, of := range lists {
		for i := range of {
			of[i].link = nil
		}
	}
	return err
}

// addWindowLinks attaches probes that can be recorded in windows only, entries and returns in separate links. While
// they are not recorded, it attaches them later. All probes must have the same kind. The caller holds p.mu.
func (p *Probes) addWindowLinks(executable *link.Executable, probes []library.Probe, pid int) error {
	entry, exit := makeMultiOptions(probes, pid)
	entries := windowLink{executable: executable, options: entry}
	if call, _, _, _ := bpf.FunctionByCookie(probes[0].Cookie); call.SamplesReturnProbes() {
		p.windows.launches = append(p.windows.launches, entries)
		returns := windowLink{executable: executable, options: exit}
		p.windows.launchReturns = append(p.windows.launchReturns, returns)
	} else {
		p.windows.allocatorEvents = append(p.windows.allocatorEvents, entries)
	}
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return p.attachMissingLinks()
}

// HoldFrequentProbes makes AttachLibrary leave out the probes that are hit most, until ReleaseFrequentProbes: those of
// launches, of allocators and of getters. So they cost nothing while all others are attached.
func (p *Probes) HoldFrequentProbes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows.detached = overhead.Launches | overhead.AllocatorEvents
	p.isHolding = true
}

// ReleaseFrequentProbes attaches what HoldFrequentProbes has left out.
func (p *Probes) ReleaseFrequentProbes() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, attach := range p.held {
		err = errors.Join(err, attach())
	}
	p.windows.detached, p.isHolding, p.held = 0, false, nil
	return errors.Join(err, p.attachMissingLinks())
}

// attachMissingLinks attaches those probes of windows that should be attached and are not, returns first, so that each
// recorded entry has its return. The caller holds p.mu.
func (p *Probes) attachMissingLinks() error {
	w := &p.windows
	var err error
	if !w.detached.Has(overhead.Launches) {
		if !w.returnsSkipped {
			err = placeLinks(w.launchReturns, p.Objects.CallExit, (*link.Executable).UretprobeMulti)
		}
		err = errors.Join(err, placeLinks(w.launches, p.Objects.LaunchEnter, (*link.Executable).UprobeMulti))
	}
	if !w.detached.Has(overhead.AllocatorEvents) {
		allocator := placeLinks(w.allocatorEvents, p.Objects.AllocatorEnter, (*link.Executable).UprobeMulti)
		err = errors.Join(err, allocator)
	}
	return err
}

// multiAttacher attaches the probes of one link.
type multiAttacher func(*link.Executable, []string, *ebpf.Program, *link.UprobeMultiOptions) (link.Link, error)

// placeLinks attaches those links of a list that are not attached.
func placeLinks(of []windowLink, program *ebpf.Program, attach multiAttacher) (err error) {
	for i := range of {
		if of[i].link != nil || of[i].gone {
			continue
		}
		options := of[i].options
		l, lerr := attach(of[i].executable, nil, program, &options)
		switch {
		case lerr == nil:
			of[i].link = l
		case options.PID != EveryProcess && errors.Is(lerr, os.ErrNotExist):
			of[i].gone = true // the library file is open, so the process is missing
		default:
			err = errors.Join(err, lerr)
		}
	}
	return err
}

// awaitLaunchReturns is awaitReturns for launches.
func (p *Probes) awaitLaunchReturns(stop <-chan struct{}, limit time.Duration) (bool, error) {
	return p.awaitReturns(stop, limit, (*bpf.ProbedFunction).SamplesReturnProbes)
}

// awaitReturns waits until no open call of some functions waits for its return probe. It reports false if stop was
// closed or limit has passed; limit 0 means no limit.
func (p *Probes) awaitReturns(
	stop <-chan struct{}, limit time.Duration, isOf func(*bpf.ProbedFunction) bool,
) (bool, error) {
	isAwaited := func(e bpf.CudaEvent) bool {
		call, _, _, ok := bpf.FunctionByCookie(e.Call)
		return ok && isOf(call) && e.Flags&uint8(bpf.CudaEventFlagsEVENT_NO_RETURN) == 0
	}
	for begin := time.Now(); limit == 0 || time.Since(begin) < limit; {
		if clock.Sleep(stop, returnsPollInterval) {
			return false, nil
		}
		open, err := p.OpenCalls()
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(open, isAwaited) {
			return true, nil
		}
	}
	return false, nil
}

// MissingKinds returns the kinds whose probes are removed now.
func (p *Probes) MissingKinds() overhead.Kinds {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.windows.detached
}

// WindowSwitchDelay is how long in advance the BPF programs get the time at which a window begins or ends. It is
// longer than the recorder usually waits for a CPU.
const WindowSwitchDelay = 10 * time.Millisecond

// bounds returns the variables with the begin and the end of the windows of some kinds.
func (p *Probes) bounds(of overhead.Kinds) (from, until []*ebpf.Variable) {
	if of.Has(overhead.Launches) {
		from, until = append(from, p.Objects.LaunchesFromNs), append(until, p.Objects.LaunchesUntilNs)
	}
	if of.Has(overhead.AllocatorEvents) {
		from, until = append(from, p.Objects.AllocatorFromNs), append(until, p.Objects.AllocatorUntilNs)
	}
	return from, until
}

// setAll sets variables to a value.
func setAll(variables []*ebpf.Variable, value uint64) error {
	for _, v := range variables {
		if err := v.Set(value); err != nil {
			return err
		}
	}
	return nil
}

// EndWindow makes the BPF programs ignore calls of some kinds that begin at or after untilNs, on CLOCK_MONOTONIC. All
// earlier calls are recorded. Call DetachKinds next.
func (p *Probes) EndWindow(of overhead.Kinds) (untilNs int64, err error) {
	_, until := p.bounds(of)
	untilNs = clock.ReadNs(unix.CLOCK_MONOTONIC) + WindowSwitchDelay.Nanoseconds()
	if err := setAll(until, uint64(untilNs)); err != nil {
		return 0, fmt.Errorf("end a window: %w", err)
	}
	if of.Has(overhead.Launches) {
		p.MissingLaunches.Begin(untilNs)
	}
	return untilNs, nil
}

// maxLaunchReturnWait limits how long DetachKinds waits for open launches. A launch does not
// return while its stream's queue is full.
const maxLaunchReturnWait = time.Second

// DetachKinds removes the probes of some kinds, after EndWindow. Closing stop ends its waits.
func (p *Probes) DetachKinds(of overhead.Kinds, stop <-chan struct{}) error {
	if clock.Sleep(stop, WindowSwitchDelay) {
		return nil
	}
	p.mu.Lock()
	p.windows.detached |= of
	err := closeWindowLinks(p.windows.entries(of)...)
	p.mu.Unlock()
	if err != nil || !of.Has(overhead.Launches) {
		return err
	}
	returned, err := p.awaitLaunchReturns(stop, maxLaunchReturnWait)
	if err != nil || !returned {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return closeWindowLinks(p.windows.launchReturns)
}

// BeginWindow attaches the probes of some kinds again. All of their calls that begin at or after fromNs, on
// CLOCK_MONOTONIC, are recorded.
func (p *Probes) BeginWindow(of overhead.Kinds) (fromNs int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows.detached &^= of
	if err := p.attachMissingLinks(); err != nil {
		return 0, fmt.Errorf("begin a window: %w", err)
	}
	from, until := p.bounds(of)
	for {
		fromNs = clock.ReadNs(unix.CLOCK_MONOTONIC) + WindowSwitchDelay.Nanoseconds()
		if err := errors.Join(setAll(from, uint64(fromNs)), setAll(until, math.MaxUint64)); err != nil {
			return 0, fmt.Errorf("begin a window: %w", err)
		}
		if clock.ReadNs(unix.CLOCK_MONOTONIC) < fromNs { // otherwise the window was set too late: try again
			break
		}
	}
	if of.Has(overhead.Launches) {
		p.MissingLaunches.End(fromNs)
	}
	return fromNs, nil
}
