//go:build linux

package record

import (
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/sampling"
	"github.com/gpurec/gpurec/record/target"
	"github.com/gpurec/gpurec/record/xid"
)

// Options select the processes and events to record, and how. Their zero values are no defaults:
// start from DefaultOptions.
type Options struct {
	// Pids are the processes to record.
	Pids []int
	// Command is a program from StartCommand to record as well, or nil.
	Command *Command
	// HoldMax is the longest time for which a thread of Command or of its children is held until the
	// code that it has loaded is covered. 0: no thread is held.
	HoldMax time.Duration
	// Duration ends the recording; 0: until the context is done or all processes have exited.
	Duration time.Duration
	// Output is the path of the file. "": a name from process and time, in Folder.
	Output string
	Folder string
	// Force overwrites an existing file.
	Force bool
	// Owner is the user and group of the file.
	Owner format.Owner
	// BufferBytes is the size of the ring buffer: a power of two, at least 64 KiB.
	BufferBytes int
	// Stacks selects how stacks are captured: probe.StacksAuto, StacksFull, StacksFP or StacksOff.
	Stacks string
	Attach privilege.AttachMethod
	// TableFolder is a folder that keeps unwind tables for later recordings. It is created if its
	// parent exists. "": none.
	TableFolder string
	// GPUTime is how often the progress of the GPUs' channels is read. RateOff: GPU times are not
	// recorded.
	GPUTime progress.Rate
	// KernelArgs is the number of launches of a stream whose arguments are kept, and written at a failure and at
	// the end. AllLaunches: those of all launches are written. 0: none are read.
	KernelArgs int
	// Host is how closely threads are watched outside of CUDA.
	Host hostcontext.Mode
	// NVMLInterval is the interval of GPU samples; 0: no samples.
	NVMLInterval time.Duration
	// MaxBytes limits the size on disk of segments and finished file together. The recording ends
	// when it reaches the limit. 0: no limit; otherwise at least format.MinMaxBytes.
	MaxBytes int64
	// Ring keeps only the latest events: those within MaxBytes, and of the last RingFor (0: any
	// age).
	Ring    bool
	RingFor time.Duration
	// SegmentInterval is the time between rotations: a crash loses at most this much.
	SegmentInterval time.Duration
	// WaitForLibrary accepts processes that have not mapped libcuda yet.
	WaitForLibrary bool
	// Children also records present and future children of the processes.
	Children bool
	// All records every process on the machine that uses CUDA; Pids is then empty.
	All bool
	// KeepGetters keeps the probes of frequent functions without side effects
	// (bpf.ProbedFunction.Getter).
	KeepGetters bool
	// KeepReturns keeps the return probes of kernel launches, and those of NCCL with its groups, at any rate.
	KeepReturns bool
	// ModuleClasses adds the classes of PyTorch's modules to stacks. They make launches inside of modules more
	// expensive.
	ModuleClasses bool
	// MaxOverheadPct limits the time that probes cost the busiest thread, in percent of the
	// thread's time. Above the limit, kernel launches and allocator events are recorded for a share of the time only,
	// and fewer stacks are unwound. 0: no limit.
	MaxOverheadPct float64
	// EmptyProbes makes the BPF programs return at once, and leaves out return probes of launches. A
	// benchmark measures with it what the probes cost at least.
	EmptyProbes bool
	// Allocator selects the source of PyTorch allocator events. With library.AllocatorModeAuto they are recorded in
	// windows if they do not fit MaxOverheadPct, and the blocks are read from the memory of the processes meanwhile.
	// With Triggers, all events are recorded.
	Allocator library.AllocatorMode
	// NoEarlierBlocks leaves out the blocks that PyTorch's allocator had before the recording. Otherwise their
	// bookkeeping is read once from the memory of each process whose allocator is recorded.
	NoEarlierBlocks bool
	// BlocksEvery is the time between readings of the blocks of PyTorch's allocator from the memory of the processes.
	// 0: none. It needs no events of the allocator, so it works with library.AllocatorModeOff.
	BlocksEvery time.Duration
	// NoThreadStates leaves out snapshots of all threads of a process when it is silent, and at the end.
	NoThreadStates bool
	// Classes are the classes of calls to record, of format.RecordClasses; empty: all. Without
	// RecordAllocator in Classes, Allocator must be library.AllocatorModeOff.
	Classes []string
	// Warn receives a sentence about data that will be missing. Any goroutine may call it during
	// the recording. It may be nil.
	Warn func(text string)
	// Tap, if set, is called with all rows that are written, soon after their events. It must return quickly and
	// not keep the rows. One goroutine calls it.
	Tap func(format.Class, []format.Row)
	// Comm and Cgroup restrict All to processes with this name (15 characters, as in
	// /proc/PID/comm), and to processes in this cgroup v2 or below it. "": no restriction.
	Comm, Cgroup string
	// Triggers keep parts of a ring. nil: none.
	Triggers *Triggers
	// Reviews analyze the recording while it is written. nil: none.
	Reviews *Reviews
	// KeepSegments makes Finish leave the segments on disk instead of merging them into Output.
	KeepSegments bool
	// Version and CommandLine are written to the metadata.
	Version     string
	CommandLine []string

	// Only probes only these functions; empty: all. For tests, like the members below.
	Only []string

	// onEarlierBlocks is called when the blocks of a process were read, or refused. nil: nothing is called.
	onEarlierBlocks func(pid int)
	returns         sampling.ReturnPolicy // policy for return probes of launches
	collectives     sampling.CollectivePolicy
	governor        overhead.GovernorPolicy
	stackCacheSets  int              // limit of the stack cache, as probe.Options.StackCacheSets
	xids            *xid.SourcePaths // sources of Xids; nil: those of the system
	// clockShift is added to the wall clock as read at the start of the recording.
	clockShift time.Duration
}

// AllLaunches is the value of Options.KernelArgs that writes the arguments of all launches.
const AllLaunches = rowwriter.AllLaunches

// DefaultOptions returns the defaults of the command line. The caller sets Pids, Command or All.
func DefaultOptions() Options {
	return Options{
		BufferBytes:     32 << 20,
		Stacks:          probe.StacksAuto,
		Attach:          privilege.AttachAuto,
		HoldMax:         20 * time.Second,
		Children:        true,
		Allocator:       library.AllocatorModeAuto,
		Host:            hostcontext.DefaultMode,
		NVMLInterval:    100 * time.Millisecond,
		SegmentInterval: 3 * time.Second,
		MaxOverheadPct:  5,
		returns:         sampling.DefaultReturnPolicy,
		collectives:     sampling.DefaultCollectivePolicy,
		governor:        overhead.DefaultGovernorPolicy,
	}
}

// maySampleEvents reports whether events of PyTorch's allocator may be recorded in windows only. Triggers
// follow the memory by single events.
func (o *Options) maySampleEvents() bool {
	return o.Allocator == library.AllocatorModeAuto && o.MaxOverheadPct > 0 && o.Triggers == nil
}

// limits returns the size and age limits of the recording.
func (o *Options) limits() format.Limits {
	return format.Limits{MaxBytes: o.MaxBytes, Ring: o.Ring, KeepNs: int64(o.RingFor / time.Nanosecond)}
}

// getters returns the policy for getters: without launches, a lower call rate is tolerated.
func (o *Options) getters() sampling.GetterPolicy {
	if len(o.Classes) > 0 && !slices.Contains(o.Classes, format.RecordLaunch) {
		return sampling.GetterPolicyWithoutLaunches
	}
	return sampling.DefaultGetterPolicy
}

// targets returns the options of the set of target processes.
func (o *Options) targets(warn func(text string)) target.Options {
	t := target.Options{
		Pids: o.Pids, Children: o.Children, All: o.All, Comm: process.TruncateComm(o.Comm), Cgroup: o.Cgroup,
		WaitForLibrary: o.WaitForLibrary, Allocator: o.Allocator, Warn: warn,
	}
	if o.Command != nil {
		t.CommandPid = o.Command.Pid()
	}
	return t
}
