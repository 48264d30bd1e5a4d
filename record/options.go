//go:build linux

package record

import (
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/sampling"
	"github.com/gpurec/gpurec/record/target"
	"github.com/gpurec/gpurec/record/xid"
)

// Options say what to record and how. Zero values are not defaults: DefaultOptions
// has those.
type Options struct {
	// Pids are the processes to record.
	Pids []int
	// Command is a held program to record as well; it may be nil.
	Command *Command
	// HoldMax is the longest time for which a thread of Command or of its children is held, while
	// what it has loaded is not covered yet; 0: none is held.
	HoldMax time.Duration
	// Duration ends the recording; 0: it ends with the context or the processes.
	Duration time.Duration
	// Output is the file to write; "" makes a name from process and time in Folder.
	Output string
	Folder string
	Force  bool
	Owner  format.Owner
	// BufferBytes is the size of the ring buffer, a power of two from 64 KiB.
	BufferBytes int
	// Stacks is how stacks are taken: StacksAuto, StacksFull, StacksFP or StacksOff.
	Stacks string
	Attach privilege.Attach
	// NVMLInterval is the time between GPU samples, 0: none.
	NVMLInterval time.Duration
	// MaxBytes bounds what the recording takes on disk, segments and finished file together;
	// then it ends. 0: no bound, else at least format.MinMaxBytes.
	MaxBytes int64
	// Ring keeps only the last RingFor (0: of any age), within MaxBytes.
	Ring    bool
	RingFor time.Duration
	// SegmentInterval is what a crash costs at most.
	SegmentInterval time.Duration
	// WaitForLibrary waits for processes that have not loaded libcuda yet.
	WaitForLibrary bool
	// Children records the processes' children, those of now and those to come.
	Children bool
	// All records every process on the machine that uses CUDA; Pids is then empty.
	All bool
	// KeepGetters goes on probing getters however often they are called.
	KeepGetters bool
	// KeepReturns goes on probing the returns of launches however many there are.
	KeepReturns bool
	// MaxOverheadPct is how much of its time, in percent, probes may cost the thread that
	// they cost most: above it, launches of kernels are recorded for part of the time. 0:
	// no limit.
	MaxOverheadPct float64
	// Allocator is how PyTorch's caching allocator is recorded.
	Allocator library.AllocatorMode
	// Classes are the classes of calls to record, some of format.RecordClasses; none: all.
	// Without RecordAllocator among them, Allocator must be AllocatorOff.
	Classes []string
	// Warn is told in a sentence what will be missing from the recording, while it runs, by
	// any goroutine; it may be nil.
	Warn func(text string)
	// Comm and Cgroup narrow All: processes of this name (15 characters, as in
	// /proc/PID/comm), processes in this cgroup v2 or below it.
	Comm, Cgroup string
	Version      string
	CommandLine  []string

	// Only probes these functions alone, if there are any. For tests, as what is below.
	Only []string

	returns   sampling.Returns // of launches
	governor  overhead.Policy
	knownSets int        // probe.Options.KnownSets
	xids      *xid.Paths // tests: where Xids come from; nil: the system's
	// clockShift is added to the wall clock as it was when the recording began.
	clockShift time.Duration
}

// DefaultOptions returns the options that the command line starts from.
func DefaultOptions() Options {
	return Options{
		BufferBytes:     32 << 20,
		Stacks:          probe.StacksAuto,
		Attach:          privilege.AttachAuto,
		HoldMax:         20 * time.Second,
		Children:        true,
		Allocator:       library.AllocatorAuto,
		NVMLInterval:    100 * time.Millisecond,
		SegmentInterval: 3 * time.Second,
		returns:         sampling.DefaultReturns,
		governor:        overhead.DefaultPolicy,
	}
}

// limits are the bounds of the recording that the options ask for.
func (o *Options) limits() format.Limits {
	return format.Limits{MaxBytes: o.MaxBytes, Ring: o.Ring, KeepNs: int64(o.RingFor / time.Nanosecond)}
}

// getters is the policy for getters: with launches they may be called more often.
func (o *Options) getters() sampling.Getters {
	if len(o.Classes) > 0 && !slices.Contains(o.Classes, format.RecordLaunch) {
		return sampling.GettersAlone
	}
	return sampling.DefaultGetters
}

// targets are the options of the set of processes.
func (o *Options) targets(warn func(text string)) target.Options {
	t := target.Options{
		Pids: o.Pids, Children: o.Children, All: o.All, Comm: process.KernelComm(o.Comm), Cgroup: o.Cgroup,
		WaitForLibrary: o.WaitForLibrary, Allocator: o.Allocator, Warn: warn,
	}
	if o.Command != nil {
		t.CommandPid = o.Command.Pid()
	}
	return t
}
