package catalog

import (
	"fmt"

	"github.com/gpurec/gpurec/format"
)

// waitTexts describe waits by reason.
var waitTexts = map[string]string{
	format.ReasonSleep:      "sleeps",
	format.ReasonGIL:        "waits for the GIL",
	format.ReasonLock:       "waits for a lock",
	format.ReasonCondition:  "waits for a condition, or a lock without an owner",
	format.ReasonImportLock: "waits for the import of a module",
	format.ReasonPipe:       "waits for a pipe",
	format.ReasonNetwork:    "waits for the network",
	format.ReasonFile:       "waits for a file",
	format.ReasonPageFault:  "waits for a page of memory",
	format.ReasonPoll:       "waits for one of several descriptors",
	format.ReasonChild:      "waits for the end of a child process",
	format.ReasonCUDA:       "waits for the GPU",
	format.ReasonStopped:    "is stopped",
	format.ReasonRunQueue:   "waits for a processor",
	format.ReasonThrottled:  "is throttled by the CPU limit of its cgroup",
}

// DescribeWait returns in words why a thread waits, "" if it is unknown. ownerAt is the function or line
// in which the owner of the lock is, "" if it is unknown. Names and paths in the text are those of the
// process: printing them needs care.
func DescribeWait(w *format.WaitFact, ownerAt string) string {
	text := waitTexts[w.Reason]
	if text == "" {
		return ""
	}
	switch w.Reason {
	case format.ReasonCUDA:
		if w.CUDACall != "" {
			text += " in " + w.CUDACall
		}
	case format.ReasonGIL, format.ReasonLock:
		if w.OwnerTid != 0 {
			text += ", held by " + describeOwner(w)
		}
	case format.ReasonImportLock:
		if w.OwnerTid != 0 {
			text += " in " + describeOwner(w)
		}
	case format.ReasonChild:
		if w.OwnerPid != 0 {
			text = fmt.Sprintf("waits for the end of process %d %q", w.OwnerPid, w.Owner)
		}
	case format.ReasonStopped:
		if w.OwnerPid != 0 {
			text += fmt.Sprintf(" by process %d %q", w.OwnerPid, w.Owner)
		}
	}
	if w.OwnerTid != 0 && ownerAt != "" {
		text += " at " + ownerAt
	}
	if w.Target != "" && w.Target != "pipe" {
		text += ": " + w.Target
	}
	return text
}

// describeOwner returns the ID and the name of the thread that holds a lock.
func describeOwner(w *format.WaitFact) string {
	return fmt.Sprintf("thread %d %q", w.OwnerTid, w.Owner)
}
