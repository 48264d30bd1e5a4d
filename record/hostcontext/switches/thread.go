//go:build linux

package switches

import (
	"fmt"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// Bits of the kernel's task state.
const (
	stateInterruptible   = 0x01
	stateUninterruptible = 0x02
	stateStopped         = 0x04
	stateTraced          = 0x08
)

// StateName returns the name of a waiting thread's state, one of the State constants of package format.
// state is the kernel's state when the thread left its processor; 0: it was preempted.
func StateName(state uint32) string {
	switch {
	case state == 0:
		return format.StateRunnable
	case state&stateUninterruptible != 0:
		return format.StateUninterruptible
	case state&stateStopped != 0:
		return format.StateStopped
	case state&stateTraced != 0:
		return format.StateTraced
	}
	return format.StateSleeping
}

// ParseState returns the kernel's state for a letter of /proc/PID/task/TID/stat.
func ParseState(letter byte) uint32 {
	switch letter {
	case 'S', 'I':
		return stateInterruptible
	case 'D':
		return stateUninterruptible
	case 'T':
		return stateStopped
	case 't':
		return stateTraced
	}
	return 0
}

// Thread is the account of a thread at one moment.
type Thread struct {
	// RunningNs, RunnableNs, SleepingNs and UninterruptibleNs are the times since the thread is watched,
	// up to the moment.
	RunningNs, RunnableNs, SleepingNs, UninterruptibleNs int64
	// Switches counts how often the thread has left a processor since it is watched. MajorFaults is the
	// kernel's count at its last switch, 0 before the first one.
	Switches, MajorFaults int64
	// Open is the present wait. OnNs is the moment. Only OffNs, OnNs, Count, State, NextPid, NextTgid,
	// NextName, RanNs and IsPartial are valid. It is meaningless without IsWaiting.
	Open      Wait
	IsWaiting bool
	HasEnded  bool
}

// maxReads bounds the reads of an account that changes.
const maxReads = 4

// Read returns the account of a thread at the time nowNs, CLOCK_MONOTONIC. ok is false if the thread is not
// watched.
func (a *Accounts) Read(tid int, nowNs int64) (t Thread, ok bool, err error) {
	var first, again bpf.HostSwitchSwitchThread
	if err := a.objects.Watched.Lookup(uint32(tid), &first); err != nil {
		if isMissing(err) {
			return Thread{}, false, nil
		}
		return Thread{}, false, fmt.Errorf("read account of thread %d: %w", tid, err)
	}
	// The program may change the account during a read. Two equal reads are of one moment. A thread that
	// differs each time has switched within microseconds; so large are then the errors.
	for range maxReads {
		if err := a.objects.Watched.Lookup(uint32(tid), &again); err != nil {
			break
		}
		if again == first {
			break
		}
		first = again
	}
	return newThread(uint32(tid), &first, uint64(nowNs)), true, nil
}

// newThread completes an account up to the time now.
func newThread(tid uint32, s *bpf.HostSwitchSwitchThread, now uint64) Thread {
	const running = bpf.HostSwitchSwitchSumSUM_RUNNING
	sums := s.SumNs
	t := Thread{Switches: int64(s.Switches), MajorFaults: int64(s.MajorFaults), HasEnded: s.HasEnded != 0}
	since, began := max(s.OnNs, s.OffNs), s.OnNs != 0 || s.OffNs != 0
	if !began {
		since = s.SinceNs
	}
	isOff := s.OffNs != 0 || !began && s.State != 0
	if now > since && !t.HasEnded {
		sum := running
		if isOff {
			sum = sumOf(s.State)
			t.IsWaiting = true
			t.Open = Wait{
				OffNs: since, OnNs: now, Count: s.Count, Tid: tid, State: s.State, NextPid: s.NextPid,
				NextTgid: s.NextTgid, NextName: s.NextName, RanNs: sums[running] - s.RecordRunningNs,
			}
			if !began {
				t.Open.IsPartial = 1
			}
			if s.State == 0 {
				t.Open.DelayNs = now - since
			}
		}
		sums[sum] += now - since
	}
	t.RunningNs = int64(sums[running])
	t.RunnableNs = int64(sums[bpf.HostSwitchSwitchSumSUM_RUNNABLE])
	t.SleepingNs = int64(sums[bpf.HostSwitchSwitchSumSUM_SLEEPING])
	t.UninterruptibleNs = int64(sums[bpf.HostSwitchSwitchSumSUM_UNINTERRUPTIBLE])
	return t
}

// sumOf returns the sum to which a wait belongs.
func sumOf(state uint32) bpf.HostSwitchSwitchSum {
	switch {
	case state == 0:
		return bpf.HostSwitchSwitchSumSUM_RUNNABLE
	case state&stateUninterruptible != 0:
		return bpf.HostSwitchSwitchSumSUM_UNINTERRUPTIBLE
	}
	return bpf.HostSwitchSwitchSumSUM_SLEEPING
}

// NextName returns the name of the thread that took the processor of a preempted thread.
func NextName(w *Wait) string { return textOf(&w.NextName) }

// parseWait returns the wait of a record.
func parseWait(data []byte) (*Wait, bool) {
	if len(data) < int(unsafe.Sizeof(Wait{})) {
		return nil, false
	}
	return (*Wait)(unsafe.Pointer(unsafe.SliceData(data))), true
}
