//go:build linux

package progress

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

const (
	// windowInterval is the length of a window of evidence, and the time between snapshots of
	// trusted pages.
	windowInterval = 5 * time.Millisecond
	quietInterval  = 25 * time.Millisecond // the same if no evidence is being collected
	// idleInterval is the same if the process has submitted nothing for restAfter.
	idleInterval = 50 * time.Millisecond
	// undecidedTime is the time after which evidence is collected in windows of quietInterval.
	undecidedTime = 10 * time.Second
	// snapshotInterval is the time between snapshots of all watched pages.
	snapshotInterval = 250 * time.Millisecond
	// sizeInterval is the time between reads of the size of the process.
	sizeInterval = 50 * time.Millisecond
	// maxReadingTime is the longest reading of calls and steps that ends a window. During a longer one, the recorder
	// lost its processor, so that they may be of different times.
	maxReadingTime = windowInterval / 2
	// mappingsFactor is the pause after a read of the mappings, in durations of that read.
	mappingsFactor = 200
	// unsettledTime is the time after slots have gone in which mappings are read again.
	unsettledTime = 5 * time.Second
	// scanBytesPerSecond limits the scan for new slots. eagerBytesPerSecond is the limit for the
	// eagerRounds scans after new mappings.
	scanBytesPerSecond  = 4 << 20
	eagerBytesPerSecond = 64 << 20
	// eagerRounds is the number of scans of all mappings at the higher rate.
	eagerRounds = 8
	// maxCandidates limits the words whose evidence is collected.
	maxCandidates = 256
)

// group has the candidates of one mapping. All channels of a context have their slots in one
// mapping.
type group struct {
	candidates map[uint64]*pair // pairs that have moved as the words of a channel do, by address
	// complete is the evidence of windows in which launches were counted, partial of all other
	// windows.
	complete, partial evidence
	steps             int64 // steps of the candidates in the current window
	sinceNs           int64 // CLOCK_MONOTONIC
	trusted           bool  // the candidates are slots of channels
}

// finder finds the slots of one process and passes them to its poller. Its goroutine owns all
// members.
type finder struct {
	pid       int
	clock     clock.Clock
	progress  *probe.ProcessProgress
	missing   *probe.MissingLaunchTimes
	scanner   *scanner
	groups    map[uint64]*group // by start of the mapping
	found     chan<- found
	stop      <-chan struct{}
	slotsGone *atomic.Bool // set by the poller: slots are no longer mapped

	mapped      string          // the process's size, as in /proc/PID/statm
	sizedNs     int64           // when the size was read, on CLOCK_MONOTONIC
	unsettledNs int64           // until then, mappings are read again even if the size is the same
	mappedNs    int64           // when the mappings may be read again
	snapshotNs  int64           // when all watched pages were read
	stepNs      int64           // start of the last round
	activeNs    int64           // start of the last round after a submission
	calls       uint64          // submitted calls at that time
	windowNs    int64           // start of the current window of evidence
	windowCalls uint64          // submitted calls at that time
	scanCalls   uint64          // submitted calls at the end of the last scan
	credit      int             // bytes that may be scanned
	eager       int             // rounds that may be scanned eagerly
	passed      map[uint64]bool // addresses of slots of channels that were passed to the poller
	moved       bool            // words have moved as the words of a channel do
}

// run finds slots until stop is closed or the process exits.
func (f *finder) run() {
	defer close(f.found)
	f.windowNs = clock.ReadNs(unix.CLOCK_MONOTONIC)
	f.stepNs, f.activeNs = f.windowNs, f.windowNs
	for f.step() == nil {
		interval := quietInterval
		switch {
		case f.isResting():
			interval = idleInterval
		case f.isUndecided():
			interval = windowInterval
		}
		if clock.Sleep(f.stop, interval) {
			return
		}
	}
}

// isResting reports whether the process has submitted nothing for restAfter.
func (f *finder) isResting() bool { return f.stepNs-f.activeNs > restAfter.Nanoseconds() }

// isUndecided reports whether evidence about words is being collected that have begun to move in the last undecidedTime.
func (f *finder) isUndecided() bool {
	for _, g := range f.groups {
		if !g.trusted && f.stepNs-g.sinceNs < undecidedTime.Nanoseconds() {
			return true
		}
	}
	return false
}

// step runs one round of the finder. It returns an error if the process has exited.
func (f *finder) step() error {
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	calls := f.progress.Submitted()
	lengthNs, isActive := now-f.stepNs, calls != f.calls
	f.stepNs, f.calls = now, calls
	if isActive {
		f.activeNs = now
	}
	if err := f.refreshMappings(now); err != nil {
		return err
	}
	f.takeSnapshot(now, isActive)
	f.weigh()
	return f.scan(lengthNs)
}

// refreshMappings reads the mappings again if the size of the process has changed.
func (f *finder) refreshMappings(nowNs int64) error {
	if f.slotsGone.Swap(false) { // new slots may come soon without a change of the size
		f.unsettledNs = nowNs + unsettledTime.Nanoseconds()
	}
	if nowNs < f.mappedNs || nowNs-f.sizedNs < sizeInterval.Nanoseconds() {
		return nil
	}
	f.sizedNs = nowNs
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", f.pid))
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(statm, []byte(" "))
	size := string(first)
	if size == f.mapped && nowNs > f.unsettledNs {
		return nil
	}
	mappings, err := readDeviceMappings(f.pid)
	if err != nil {
		return err
	}
	f.mapped = size
	f.mappedNs = nowNs + mappingsFactor*(clock.ReadNs(unix.CLOCK_MONOTONIC)-nowNs)
	if f.scanner.setMappings(mappings) {
		f.eager = eagerRounds
	}
	for start := range f.groups {
		if m := f.scanner.mappingOf(start); m == nil || m.start != start {
			delete(f.groups, start)
		}
	}
	for address := range f.passed {
		if f.scanner.mappingOf(address) == nil {
			delete(f.passed, address)
		}
	}
	return nil
}

// takeSnapshot finds pairs that have moved since the last snapshot. It reads pages near known slots each time,
// and the other watched pages every snapshotInterval.
func (f *finder) takeSnapshot(nowNs int64, isActive bool) {
	all := nowNs-f.snapshotNs >= snapshotInterval.Nanoseconds() || isActive && len(f.passed) == 0 && f.eager > 0
	if !all && f.isResting() {
		return // no slot begins to move
	}
	if all {
		f.snapshotNs = nowNs
	}
	for _, m := range f.scanner.findMoves(!all, f.clock.NowNs()) {
		mapping := f.scanner.mappingOf(m.address)
		if mapping == nil {
			continue
		}
		f.moved = true
		g := f.groups[mapping.start]
		if g == nil {
			g = &group{candidates: make(map[uint64]*pair), sinceNs: nowNs}
			f.groups[mapping.start] = g
		}
		if g.trusted {
			f.passChannel(m.address, m.now)
		} else if g.candidates[m.address] == nil && len(g.candidates) < maxCandidates {
			g.candidates[m.address] = &pair{m.now.counter, m.now.gpuNs}
			f.pass(found{m.address, m.now, trustPending})
		}
	}
}

// weigh ends the current window, and adds it to the evidence about the groups that are not trusted yet. The window
// continues if its calls and steps could not be read at the same time.
func (f *finder) weigh() {
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	calls := f.progress.Submitted()
	for _, g := range f.groups {
		if !g.trusted {
			g.steps += f.readSteps(g)
		}
	}
	if clock.ReadNs(unix.CLOCK_MONOTONIC)-now > maxReadingTime.Nanoseconds() {
		return
	}
	w := window{ns: now - f.windowNs, calls: int64(calls - f.windowCalls)}
	complete := !f.missing.Overlaps(f.windowNs, now)
	f.windowNs, f.windowCalls = now, calls
	for _, g := range f.groups {
		if !g.trusted {
			w.steps, g.steps = g.steps, 0
			f.weighGroup(g, w, complete)
		}
	}
}

// weighGroup adds a window to the evidence about a group. In an incomplete window, launches were not counted.
func (f *finder) weighGroup(g *group, w window, complete bool) {
	e := &g.partial
	if complete {
		e = &g.complete
	}
	if e.add(w); !e.isRelated(complete) {
		return
	}
	g.trusted = true
	for address, c := range g.candidates {
		f.passChannel(address, *c)
	}
	clear(g.candidates)
}

// readSteps reads the candidates of a group again, and returns the sum of their steps. It rejects
// candidates that change in a way in which channels never change.
func (f *finder) readSteps(g *group) (steps int64) {
	var words [slotBytes]byte
	for address, c := range g.candidates {
		one := [1]span{{address, slotBytes}}
		if n, err := f.scanner.memory.read(words[:], one[:]); err != nil || n < slotBytes {
			f.reject(g, address)
			continue
		}
		now := pairAt(words[:])
		switch {
		case now == *c:
		case isStep(*c, now):
			steps += now.counter - c.counter
			*c = now
		case now.counter != c.counter && now.gpuNs != c.gpuNs:
			f.reject(g, address)
		}
	}
	return steps
}

// reject removes a candidate, and its slot from the poller.
func (f *finder) reject(g *group, address uint64) {
	delete(g.candidates, address)
	f.pass(found{address: address, trust: trustNone})
}

// passChannel passes the slot of a channel to the poller.
func (f *finder) passChannel(address uint64, words pair) {
	if !f.passed[address] {
		f.passed[address] = true
		f.scanner.trust(address)
	}
	f.pass(found{address, words, trustChannel})
}

// pass passes a message to the poller.
func (f *finder) pass(m found) {
	select {
	case f.found <- m:
	case <-f.stop:
	}
}

// scan scans a part of the mappings. It does not scan while the process submits no work, because no
// slot begins to move then.
func (f *finder) scan(lengthNs int64) error {
	rate := scanBytesPerSecond
	if f.eager > 0 {
		rate = eagerBytesPerSecond
	}
	if f.scanner.rounds > 0 && f.calls == f.scanCalls {
		return nil
	}
	f.credit = min(f.credit+int(float64(rate)*float64(lengthNs)/1e9), rate/4)
	if f.credit < scanBlockBytes {
		return nil
	}
	rounds := f.scanner.rounds
	err := f.scanner.scan(f.credit, f.clock.NowNs())
	f.credit = 0
	if f.scanner.rounds > rounds {
		f.scanCalls = f.calls
		f.eager = max(0, f.eager-1)
	}
	return err
}
