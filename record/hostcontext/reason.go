//go:build linux

package hostcontext

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
	"github.com/gpurec/gpurec/record/hoststack"
)

// explainWait returns why a thread waited, from the account alone.
func explainWait(w *switches.Wait) format.WaitFact {
	var fact format.WaitFact
	name := switches.StateName(w.State)
	switch {
	case name == format.StateRunnable && w.IsPartial != 0:
		fact.Reason = format.ReasonRunQueue
		return fact
	case name == format.StateRunnable && w.NextPid == 0:
		// The processor became idle, although the thread was runnable.
		fact.Reason = format.ReasonThrottled
		return fact
	case name == format.StateRunnable:
		fact.Reason = format.ReasonRunQueue
		fact.OwnerPid, fact.OwnerTid, fact.Owner = int32(w.NextTgid), int32(w.NextPid), switches.NextName(w)
		return fact
	case name == format.StateStopped || name == format.StateTraced:
		fact.Reason = format.ReasonStopped
	}
	fact.SystemCall = hoststack.SystemCallName(int64(w.Call))
	if fact.SystemCall == "" {
		if w.Call == noCall && name == format.StateUninterruptible {
			fact.Reason = format.ReasonPageFault
		}
		return fact
	}
	if fact.Reason == "" && !isFutex(fact.SystemCall) {
		fact.Reason = hoststack.SystemCallReason(fact.SystemCall)
	}
	return fact
}

// Values of Wait.Call that are no number of a system call.
const (
	noCall      = -1 // the thread entered the kernel by an exception or an interrupt
	unknownCall = -2
)

// readOpenCall completes a present wait by what /proc says. It returns false if the thread does not wait.
func readOpenCall(t *thread, w *switches.Wait) bool {
	w.Tgid, w.Call = uint32(t.pid), unknownCall
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", t.pid, t.tid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(text)) // "running", or the number, six arguments, sp and pc
	if len(fields) < 3 {
		return w.State == 0
	}
	call, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil {
		return true
	}
	w.Call = int32(call)
	w.Sp, _ = strconv.ParseUint(fields[len(fields)-2], 0, 64)
	w.Pc, _ = strconv.ParseUint(fields[len(fields)-1], 0, 64)
	return true
}

// isFutex reports whether a system call waits for a futex: a lock, a condition, or the GIL.
func isFutex(call string) bool { return strings.HasPrefix(call, "futex") }
