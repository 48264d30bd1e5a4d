package threadstate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// Thread is a thread at the time of a snapshot.
type Thread struct {
	Pid, Tid int32
	Name     string
	State    string // one of the format.State names
	OffNs    int64  // time since the thread last came to a processor
	Wait     format.WaitFact
	Frames   []format.Frame // innermost first; shared, not to be changed
	Stack    int32          // number of the stack in a recording, 0 for none
	// InBackward reports that the thread waits in a backward pass whose autograd thread waits for other ranks. Read
	// sets it.
	InBackward bool
}

// Snapshot has the states and stacks of all threads of a process at one time.
type Snapshot struct {
	Pid     int32
	AtNs    int64  // Unix ns
	When    string // one of the format.When names
	Threads []Thread
}

// userFrames returns the frames outside of the kernel.
func (t *Thread) userFrames() []format.Frame {
	for i := range t.Frames {
		if t.Frames[i].Type != format.FrameKernel {
			return t.Frames[i:]
		}
	}
	return nil
}

// Site returns the line that the thread executes in the program's own code, or "" without user frames.
func (t *Thread) Site() string {
	i := symbolize.CodeFrame(len(t.Frames), func(i int) symbolize.SiteCandidate {
		f := &t.Frames[i]
		return symbolize.SiteCandidate{
			Module: f.Module, Function: f.Func, File: f.File,
			Python: f.Type == "python", Kernel: f.Type == format.FrameKernel,
		}
	})
	if i < 0 {
		return ""
	}
	f := &t.Frames[i]
	return symbolize.NameWithLine(symbolize.FrameName(f.Func, f.Module, f.Addr), f.File, f.Line)
}

// Key identifies what the thread does: functions and lines, without addresses. Threads of several processes
// with equal keys do the same. A thread without user frames has its system call and its reason as key.
func (t *Thread) Key() string {
	user := t.userFrames()
	if len(user) == 0 {
		return t.State + " " + t.Wait.SystemCall + " " + t.Wait.Reason
	}
	var key strings.Builder
	for i := range user {
		f := &user[i]
		name := f.Func
		if name == "" {
			name = fmt.Sprintf("%x", f.Addr) // in the file, which is the same for all processes
		}
		fmt.Fprintf(&key, "%s\x00%s\x00%s\x00%d\n", name, path.Base(f.Module), f.File, f.Line)
	}
	return key.String()
}

// gradientReduction is the collective of a backward pass. DistributedDataParallel calls it, not the program.
const gradientReduction = "all_reduce of DistributedDataParallel"

// linkBackward finds the threads that wait in a backward pass until an autograd thread has the gradients of all ranks.
// The names are those of torch/csrc/autograd/engine.cpp and torch/csrc/distributed/c10d/reducer.cpp.
func (s *Snapshot) linkBackward() {
	if !slices.ContainsFunc(s.Threads, func(t Thread) bool { return inReducer(t.Frames) }) {
		return
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		t.InBackward = t.hasPython() && inAutograd(t.Frames)
	}
}

// reducerWait is the function in which an autograd thread waits for the gradients of other ranks.
const reducerWait = "c10d::Reducer::finalize_backward"

// Reduces reports whether the thread is in a collective in which each rank contributes data. In the others, such as a
// broadcast or a barrier, the ranks of an idle server wait for work.
func (t *Thread) Reduces() bool {
	name := strings.ToLower(t.Collective())
	return slices.ContainsFunc([]string{"reduce", "all_to_all", "alltoall"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// inAutograd reports whether a thread with a stack waits for work of autograd, or until another thread has done it.
func inAutograd(frames []format.Frame) bool { return isIn(frames, "torch::autograd::ReadyQueue::pop") }

// inReducer reports whether an autograd thread with a stack waits for the gradients of other ranks.
func inReducer(frames []format.Frame) bool { return isIn(frames, reducerWait) }

// isIn reports whether a function of a library is in the stack.
func isIn(frames []format.Frame, function string) bool {
	return slices.ContainsFunc(frames, func(f format.Frame) bool {
		return f.Type == "native" && strings.HasPrefix(f.Func, function)
	})
}

// Collective returns the name of the collective operation in which the thread is, "" for none: as collectiveOf, or that
// of the backward pass in which the thread waits.
func (t *Thread) Collective() string {
	if t.InBackward {
		return gradientReduction
	}
	return collectiveOf(t.Frames, t.Wait.CUDACall != "")
}

// collectiveOf returns the name of the collective operation in which a thread with a stack is, "" for none. It is a
// function of torch.distributed that the program called, one of NCCL, or that of a backward pass. inCUDA says that the
// thread is in a CUDA call. Threads of a library without Python frames are in none otherwise.
func collectiveOf(frames []format.Frame, inCUDA bool) string {
	collective, hasPython := "", false
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Type == "python" && isDistributed(f.File):
			if name := f.Func[strings.LastIndexByte(f.Func, '.')+1:]; name != "wrapper" && name != "<module>" {
				collective = name
			}
			hasPython = true
		case f.Type == "python":
			hasPython = true
		case f.Type == "native" && isNCCLCall(f.Func):
			collective = f.Func
		}
	}
	switch {
	case hasPython, inCUDA, strings.HasPrefix(collective, "nccl"):
		return collective
	case inReducer(frames):
		return gradientReduction
	}
	return "" // a thread of the library
}

// isDistributed reports whether a Python file has the collectives of PyTorch. The launcher is in another
// folder.
func isDistributed(file string) bool {
	return strings.Contains(file, "torch/distributed/") && !strings.Contains(file, "distributed/elastic/") &&
		!strings.Contains(file, "distributed/launcher/") && !strings.HasSuffix(file, "distributed/run.py")
}

// isNCCLCall reports whether a function is one of NCCL's interface, such as ncclAllReduce.
func isNCCLCall(function string) bool {
	rest, ok := strings.CutPrefix(function, "nccl")
	return ok && rest != "" && rest[0] >= 'A' && rest[0] <= 'Z' && !strings.ContainsAny(rest, ":(< ")
}

// isCollecting reports whether the thread collects garbage. Interpreters without symbols do not tell.
func (t *Thread) isCollecting() bool {
	return slices.ContainsFunc(t.Frames, func(f format.Frame) bool {
		return f.Type == "native" && (f.Func == "gc_collect_main" || f.Func == "_PyGC_Collect")
	})
}

// isImporting reports whether the innermost lines belong to the import of a module.
func (t *Thread) isImporting() bool {
	for i := range t.Frames {
		if f := &t.Frames[i]; f.Type == "python" {
			return f.File == "<frozen importlib._bootstrap>" || f.File == "<frozen importlib._bootstrap_external>"
		}
	}
	return false
}

// stateTexts describe states of threads whose reason is unknown.
var stateTexts = map[string]string{
	format.StateRunning:         "runs",
	format.StateRunnable:        "waits for a processor",
	format.StateSleeping:        "sleeps",
	format.StateUninterruptible: "waits and cannot be interrupted",
	format.StateStopped:         "is stopped",
	format.StateTraced:          "is stopped by a debugger",
}

// Why returns in words what the thread does, and for what it waits. The snapshot has the owners of locks.
func (s *Snapshot) Why(t *Thread) string {
	text := catalog.DescribeWait(&t.Wait, s.ownerSite(t))
	if text == "" {
		text = stateTexts[t.State]
		if call := t.Wait.SystemCall; call != "" && t.State != format.StateRunning {
			text += " in " + call
		}
		if t.Wait.CUDACall != "" {
			text += " in " + t.Wait.CUDACall
		}
	}
	switch collective := t.Collective(); {
	case collective != "":
		text = "is in the collective " + collective + ", " + text
	case t.isCollecting():
		text = "collects garbage of Python, " + text
	case t.isImporting() && t.Wait.Reason != format.ReasonImportLock:
		text = "imports a module, " + text
	}
	return text
}

// ownerSite returns the line of the thread that holds a lock, "" if the snapshot has no such thread.
func (s *Snapshot) ownerSite(t *Thread) string {
	for i := range s.Threads {
		if owner := &s.Threads[i]; t.Wait.OwnerTid != 0 && owner.Tid == t.Wait.OwnerTid {
			return owner.Site()
		}
	}
	return ""
}

// Describe returns a sentence on a thread: name, reason, line, and since when.
func (s *Snapshot) Describe(t *Thread, sinceNs int64) string {
	text := strings.TrimSpace(fmt.Sprintf("thread %d %s", t.Tid, t.Name)) + " " + s.Why(t)
	if site := t.Site(); site != "" {
		text += ", at " + site
	}
	if sinceNs > 0 {
		text += ", for at least " + units.FormatDuration(sinceNs)
	}
	return text
}

// Main returns the thread that explains best why the process makes no progress, nil without threads: one in
// a CUDA call, one in a collective, a Python thread, the first one. preferred is a thread that is known to
// matter, such as one with an open call; 0: none.
func (s *Snapshot) Main(preferred int32) *Thread {
	var best *Thread
	bestRank := -1
	for i := range s.Threads {
		t := &s.Threads[i]
		if rank := t.rank(preferred); rank > bestRank {
			best, bestRank = t, rank
		}
	}
	return best
}

// rank returns how well a thread explains the state of its process: more is better.
func (t *Thread) rank(preferred int32) int {
	switch {
	case t.Tid == preferred:
		return 5
	case t.Wait.CUDACall != "" && t.hasPython():
		return 4
	case t.Wait.CUDACall != "":
		return 3
	case t.Collective() != "" && t.hasPython():
		return 2
	case t.Tid == t.Pid:
		return 1
	}
	return 0
}

// hasPython reports whether the thread runs Python code.
func (t *Thread) hasPython() bool { return hasPython(t.Frames) }

// hasPython reports whether a stack has a Python frame.
func hasPython(frames []format.Frame) bool {
	return slices.ContainsFunc(frames, func(f format.Frame) bool { return f.Type == "python" })
}
