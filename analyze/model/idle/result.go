package idle

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/query"
)

// Options are options of Compute.
type Options struct {
	// MaxCalls is about the number of calls that are read, from the start of the window; 0 means all calls.
	MaxCalls int64
	Filter   *query.Filter // operations that do not pass are left out
	// MaxGaps is the number of longest gaps that are kept for each device; 0 means DefaultMaxGaps.
	MaxGaps int
}

// DefaultMaxGaps is the default of Options.MaxGaps.
const DefaultMaxGaps = 1000

// Result is the idle time of all devices of all processes.
type Result struct {
	Devices []*Device // by process and device
	// UntimedOperations counts the operations of streams without a channel, in the whole recording.
	UntimedOperations int64
	Activity          *activity.Activity
}

// Device is the idle time of a device between the first start and the last end of operations of one process,
// in the window. Operations of other processes on the same GPU do not count.
type Device struct {
	Pid, Device       int32
	Window            query.Window // from the first start to the last end
	MainStream        int32        // the stream with the most time of kernels, as an index of Result.Streams
	Operations        int64
	UnknownOperations int64 // operations without a known start
	// EstimatedOperations counts operations whose start no wait or pause confirms.
	EstimatedOperations int64
	// LateOperations counts operations that came too late for their place in the order. Their time counts as
	// possibly busy.
	LateOperations int64
	// LimitedNs is the probable time of operations whose duration has only bounds, of KernelNs.
	LimitedNs, KernelNs float64
	Causes              []*Cause // the longest probable time first
	// Host tells how the launching threads spent the gaps in which the host was late, the longest time first.
	// It is nil without rows of class host. HostNs is the probable length of these gaps.
	Host        []*hosttime.Entry
	HostNs      float64
	Gaps        []Gap // the longest first
	Time        Time  // of the whole window
	cells       []cell
	startDelays [Slices]delays
}

// Estimate is a length of time in ns: a probable value between two bounds.
type Estimate struct{ MinNs, ProbableNs, MaxNs float64 }

// add adds another length.
func (e *Estimate) add(o Estimate) {
	e.MinNs += o.MinNs
	e.ProbableNs += o.ProbableNs
	e.MaxNs += o.MaxNs
}

// Time sums up the states of a device in a span of time.
type Time struct {
	SpanNs       float64 // without UnrecordedNs
	UnrecordedNs float64 // calls may be missing, so nothing is known
	Idle         Estimate
	Copies       Estimate // only copies between host and device ran
	Collectives  Estimate // no other kernels than collectives ran
}

// Add adds the times of another span or device.
func (t *Time) Add(o Time) {
	t.SpanNs += o.SpanNs
	t.UnrecordedNs += o.UnrecordedNs
	t.Idle.add(o.Idle)
	t.Copies.add(o.Copies)
	t.Collectives.add(o.Collectives)
}

// IsRecorded reports whether the calls of any part of the time were recorded. If not, nothing is known.
func (t *Time) IsRecorded() bool { return t.SpanNs >= 1 }

// BusyPct returns the share of the time in which any operation ran, in percent.
func (t *Time) BusyPct() (low, probable, high float64) {
	share := func(idleNs float64) float64 { return max(0, min(100, 100*(1-idleNs/max(1, t.SpanNs)))) }
	return share(t.Idle.MaxNs), share(t.Idle.ProbableNs), share(t.Idle.MinNs)
}

// IsLimited reports that most durations have only bounds, or that most starts are not confirmed. The
// probable values are no estimates then.
func (d *Device) IsLimited() bool {
	return d.LimitedNs > d.KernelNs/2 || d.EstimatedOperations > d.Operations/2
}

// Reason is why the GPU did not run kernels.
type Reason uint8

// Kinds of Reason.
const (
	ReasonUnknown    Reason = iota
	ReasonOutside           // the host was outside of CUDA
	ReasonCall              // the host was in a call
	ReasonWait              // the host had waited for the GPU, and launched the next operation after that
	ReasonLaunch            // the host was launching
	ReasonEvent             // the stream waited for an event
	ReasonValue             // the stream waited for a value in memory
	ReasonHostFunc          // the stream waited for a function on the host
	ReasonBetween           // between operations in the queue
	ReasonCopy              // only copies ran
	ReasonCollective        // only collectives ran
	ReasonStream            // the main stream waited for another stream, which ran kernels
)

// IsIdle reports whether the GPU ran nothing at all.
func (r Reason) IsIdle() bool { return r < ReasonCopy }

// IsHost reports whether the host was late.
func (r Reason) IsHost() bool { return r >= ReasonOutside && r <= ReasonLaunch }

// Cause sums up the gaps with the same reason at the same line.
type Cause struct {
	Reason Reason
	Name   string // driver function, of ReasonCall and ReasonWait
	// Stack is the stack of the line. After is the stack of the call before, or of the operation that the
	// stream waited for; 0: unknown. Both are those of the longest gap.
	Stack, After int32
	// Stream is the stream that another one waited for, as an index of Result.Streams; -1: none.
	Stream int32
	// Kernel is the label of the kernel that a stream waited for, or that ran; -1: none.
	Label int32
	Gaps  int64
	Time  Estimate
	// LongestNs is the longest of the gaps, and LongestFromNs its start, Unix ns.
	LongestNs, LongestFromNs int64
}

// Gap is a span of time in which the GPU ran nothing, only copies or only collectives, or in which the
// main stream waited for another stream. Times are probable, in Unix ns.
type Gap struct {
	FromNs, ToNs int64
	MinNs, MaxNs int64 // bounds of the length
	Cause        Cause // without sums
	// Host is the longest part of what the launching thread did in the gap. It is empty if the host was not late,
	// and without rows of class host.
	Host      hosttime.Part
	Tid       int32 // thread of the call of the next operation
	NextStack int32 // stack of that call
	NextLabel int32 // label of the next operation; -1: none
	NextOp    activity.Op
	sum       *Cause // of all gaps with its cause
}

// LengthNs returns the probable length of the gap, in ns.
func (g *Gap) LengthNs() int64 { return g.ToNs - g.FromNs }
