//go:build linux

package hoststack

import (
	"path"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// Thread is the stack and the state of one thread.
type Thread struct {
	// Tid is the thread ID in the PID namespace of the caller, NamespaceTid in that of the process.
	Tid, NamespaceTid                      int
	Name                                   string
	State                                  string // one of the snapshot.State names
	CPU                                    int    // the processor on which the thread runs, or last ran
	InIOWait                               bool   // the thread waits for a disk
	RunNs                                  int64  // CPU time
	RunDelayNs                             int64  // time in run queues
	OffNs                                  int64  // time since the thread last came to a processor, to a few ms
	VoluntarySwitches, InvoluntarySwitches uint64
	// PC and SP are the user registers at the entry into the kernel.
	PC, SP uint64
	// SystemCall is the system call in which the thread waits, "" outside of one or if unknown.
	SystemCall string
	// CUDACall is the function of libcuda in which the thread is, "" if none is on its stack.
	CUDACall string
	// Wait says why the thread waits. Owners and targets are best effort: they were read after the stack.
	Wait format.WaitFact
	// Frames are the frames, innermost first. Their Type is kernel, native, jit or python.
	Frames []format.Frame
	Status string
	// Reason says why the stack is not complete, "" if it is.
	Reason string
	// Rounds is the number of tries that the stack needed.
	Rounds int

	number    int64     // of the system call, -1 outside of one
	arguments [6]uint64 // of it
	memory    waitMemory
}

// Values of Thread.Status.
const (
	StatusComplete  = "complete"  // all frames up to the first one of the thread
	StatusTruncated = "truncated" // the frames are right, but not all
	StatusMissed    = "missed"    // no user frames: the thread moved during each try
)

// States of threads that do not wait.
const (
	StateRunning  = snapshot.StateRunning
	StateRunnable = snapshot.StateRunnable
)

// FrameKernel is the Type of kernel frames.
const FrameKernel = "kernel"

// Flags of tasks without a user stack.
const (
	flagExiting    = 0x00000004
	flagIOWorker   = 0x00000010
	flagUserWorker = 0x00004000
	flagKernel     = 0x00200000
)

// hasUserStack reports whether a thread runs user code.
func hasUserStack(s *snapshot.Snapshot) bool {
	return s.Flags&(flagExiting|flagIOWorker|flagUserWorker|flagKernel) == 0
}

// newThread returns the thread of a snapshot without frames.
func newThread(s *snapshot.Snapshot, pid int) Thread {
	t := Thread{
		Tid: int(s.Tid), NamespaceTid: int(s.NsTid), Name: s.ThreadName(), State: s.StateName(), CPU: int(s.Cpu),
		InIOWait: s.InIowait != 0, RunNs: int64(s.RunNs), RunDelayNs: int64(s.RunDelayNs), OffNs: int64(s.OffNs),
		VoluntarySwitches: s.VoluntaryBefore, InvoluntarySwitches: s.InvoluntaryBefore,
		Status: StatusMissed,
	}
	if t.State == snapshot.StateRunning {
		t.OffNs = 0
	}
	var ok bool
	if t.number, t.arguments, ok = s.Call(); !ok || s.OnCpuBefore != 0 {
		t.number = -1
	}
	t.PC, t.SP = s.Place()
	// The kernel gives numbers of the first PID namespace. The caller may be in another one.
	if int(s.Tgid) != pid {
		t.Tid = t.NamespaceTid
	}
	return t
}

// ProcessSnapshot has the stacks and states of all threads of a process at one time.
type ProcessSnapshot struct {
	Pid     int
	Name    string
	Taken   time.Time
	Took    time.Duration
	Threads []Thread // sorted by thread ID, the first thread of the process first
	// Python is the version of the interpreter whose frames were read, "" for none.
	Python string
	// Identity is the role of the process in its job, nil if it is unknown.
	Identity *format.Identity
	// Notes are facts about missing data.
	Notes []string
}

// Count returns the number of threads with a status.
func (s *ProcessSnapshot) Count(status string) int {
	n := 0
	for i := range s.Threads {
		if s.Threads[i].Status == status {
			n++
		}
	}
	return n
}

// systemCallPrefixes are prefixes of kernel functions that implement a system call.
var systemCallPrefixes = []string{"__x64_sys_", "__ia32_sys_", "__arm64_sys_", "__do_sys_", "ksys_"}

// findSystemCall returns the system call on a kernel stack. number is its number, -1 if it is unknown.
func findSystemCall(kernel []format.Frame, number int64) string {
	for i := len(kernel) - 1; i >= 0; i-- {
		for _, prefix := range systemCallPrefixes {
			if name, ok := strings.CutPrefix(kernel[i].Func, prefix); ok {
				return name
			}
		}
	}
	return callNames[number]
}

// findCUDACall returns the function of libcuda that the program called: the outermost one. Functions
// inside of libcuda have no symbols.
func findCUDACall(frames []format.Frame) string {
	for i := len(frames) - 1; i >= 0; i-- {
		f := &frames[i]
		if strings.HasPrefix(path.Base(f.Module), "libcuda.so") && strings.HasPrefix(f.Func, "cu") {
			return f.Func
		}
	}
	return ""
}
