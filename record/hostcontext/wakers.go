//go:build linux

package hostcontext

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
	"github.com/gpurec/gpurec/record/hoststack"
)

const (
	// enoughWakings is the number of long waits of watched threads that a thread ends before it is watched.
	enoughWakings = 3
	// maxCandidates bounds the threads that are counted before they are watched.
	maxCandidates = 4096
	// searchInterval is the time between two reads of ended waits while wakers are new: each waker that is watched
	// can show the next one.
	searchInterval = 20 * time.Millisecond
	// maxWakingShare is the share of a processor that wake-ups of threads that are not watched may cost.
	maxWakingShare = 0.02
	// enoughTooMany is for how many seconds in turn wake-ups must cost too much. Few runs of the program are timed, and
	// one of them that the machine holds up makes the price of its second far too high.
	enoughTooMany = 3
	// wakingPause is how long wake-ups are not recorded after they cost more.
	wakingPause = time.Minute
)

// wakers finds the threads that end waits of watched threads, and watches them, too. It is used by Run alone.
type wakers struct {
	accounts *switches.Accounts
	threads  *threadSet
	note     func(text string)

	isOn     bool
	maxShare float64 // maxWakingShare, or less in tests
	// processes are the recorded processes. Threads of others are named, but not watched.
	processes map[int]int64
	ended     map[wakerKey]int // long waits that a thread has ended and that is not watched
	isNew     bool             // a thread was counted since the last call of interval
	last      switches.Counters
	lastNs    int64 // CLOCK_MONOTONIC of last
	tooMany   int   // seconds in turn in which wake-ups cost too much
	pausedNs  int64 // CLOCK_MONOTONIC from which on wake-ups are recorded again, while they are off
}

// wakerKey identifies a thread.
type wakerKey struct{ pid, tid int }

// startWakings is replaced by tests of kernels that do not allow it.
var startWakings = (*switches.Accounts).StartWakings

// newWakers begins to record wake-ups. Where the kernel does not allow it, waits have no wakers, and note says so.
func newWakers(accounts *switches.Accounts, threads *threadSet, note func(string)) *wakers {
	w := &wakers{
		accounts: accounts, threads: threads, note: note, maxShare: maxWakingShare, ended: make(map[wakerKey]int),
	}
	if err := startWakings(accounts); err != nil {
		note(fmt.Sprintf("who ended a wait is not recorded: %v", err))
		return w
	}
	w.isOn = true
	return w
}

// setProcesses sets the start times of the recorded processes, by pid.
func (w *wakers) setProcesses(processes map[int]int64) { w.processes = processes }

// see counts the waker of a wait. It watches a thread that has ended enough of them.
func (w *wakers) see(wait *switches.Wait) {
	if wait.State == 0 || wait.Continues == 0 && wait.OnNs-wait.OffNs < uint64(minWait) {
		return
	}
	if ender := enderOf(wait); ender != format.EndedByThread && ender != format.EndedBySender {
		return
	}
	key := wakerKey{int(wait.Waking.Tgid), int(wait.Waking.Tid)}
	if _, isRecorded := w.processes[key.pid]; !isRecorded || w.threads.get(key.tid) != nil {
		return
	}
	if len(w.ended) >= maxCandidates {
		clear(w.ended)
	}
	w.isNew = true
	if w.ended[key]++; w.ended[key] < enoughWakings {
		return
	}
	delete(w.ended, key)
	if !w.threads.watchWaker(key.pid, key.tid) {
		w.note(fmt.Sprintf("more than %d threads end waits: what the others do is not recorded", maxWakers))
	}
}

// interval returns the time until ended waits are read again.
func (w *wakers) interval() time.Duration {
	if w.isNew {
		w.isNew = false
		return searchInterval
	}
	return watchInterval
}

// describe sets what ended a wait.
func (w *wakers) describe(row *format.Row, fact *format.WaitFact, wait *switches.Wait) {
	if !w.isOn || wait.State == 0 || row.Flags&format.FlagOpen != 0 {
		return
	}
	if wait.Continues != 0 {
		row.Flags |= format.FlagContinues
	}
	fact.EndedBy = enderOf(wait)
	switch fact.EndedBy {
	case format.EndedByThread, format.EndedBySender, format.EndedBySignal:
		row.WakerPid, row.WakerTid = int32(wait.Waking.Tgid), int32(wait.Waking.Tid)
		fact.Waker = switches.WakerName(wait)
		fact.WakerCall = hoststack.SystemCallName(int64(wait.Waking.Call))
	}
}

// receivingCalls are the system calls that an interrupt of the network ends.
var receivingCalls = []string{
	"read", "readv", "recvfrom", "recvmsg", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait",
	"epoll_pwait2", "accept", "accept4", "connect",
}

// enderOf returns what ended a wait, one of the EndedBy constants. An interrupt inside of a call that sends
// ends a wait in a call that receives for the sender, and other waits for itself.
func enderOf(wait *switches.Wait) string {
	ender := switches.Ender(wait)
	if ender == format.EndedBySender &&
		!slices.Contains(receivingCalls, hoststack.SystemCallName(int64(wait.Call))) {
		return format.EndedByInterrupt
	}
	return ender
}

// limit is called about once a second. It stops the recording of wake-ups for a while if those of other threads are
// too many.
func (w *wakers) limit(c *switches.Counters) {
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	if !w.isOn {
		if w.pausedNs != 0 && now >= w.pausedNs && startWakings(w.accounts) == nil {
			w.isOn, w.last, w.lastNs = true, *c, now
		}
		return
	}
	others := float64(c.Wakings - w.last.Wakings - c.TargetWakings + w.last.TargetWakings)
	passedNs, costNs := float64(now-w.lastNs), others*c.WakingNsSince(&w.last)
	isFirst := w.lastNs == 0
	w.last, w.lastNs = *c, now
	if isFirst || costNs <= w.maxShare*passedNs {
		w.tooMany = 0
		return
	}
	if w.tooMany++; w.tooMany < enoughTooMany {
		return
	}
	w.tooMany = 0
	w.accounts.StopWakings()
	w.isOn, w.pausedNs = false, now+int64(wakingPause)
	w.note(fmt.Sprintf("%.0f wake-ups a second of other threads would have cost more than %.0f %% of a processor: for "+
		"%.0f s, who ended a wait was not recorded", 1e9*others/passedNs, 100*w.maxShare, wakingPause.Seconds()))
}
