package hosttime

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// Cause is how a thread spent a part of its time.
type Cause uint8

// Kinds of Cause.
const (
	CauseUnknown   Cause = iota // not recorded: waits without a row, lost rows, too few samples
	CauseCPU                    // ran on a processor
	CauseDriver                 // ran in a call of the CUDA driver: it submitted work, or polled for its end
	CauseLoader                 // waited for the workers of a data loader
	CauseGC                     // collected garbage
	CauseGIL                    // waited for Python's global interpreter lock
	CauseRunQueue               // waited for a processor
	CauseThrottled              // waited for the CPU limit of its cgroup
	CauseFile                   // waited for a file or a disk
	CauseLock                   // waited for a lock, a condition or the import of a module
	CauseNetwork                // waited for the network
	CausePipe                   // waited for a pipe, or for one of several descriptors
	CauseSleep                  // slept for a time that the program chose
	CauseChild                  // waited for the end of a child process
	CauseCUDA                   // waited for the GPU in a call of the driver
	CauseStopped                // was stopped by a signal or a debugger
	CauseQueue                  // waited for a queue that another process fills
	CauseWait                   // waited for an unknown reason
)

// Causes is the number of kinds of Cause.
const Causes = int(CauseWait) + 1

var causeTexts = [Causes]string{
	"unknown",
	"ran on the CPU",
	"ran in the CUDA driver",
	"waited for the DataLoader",
	"collected garbage",
	"waited for the GIL",
	"waited for a CPU",
	"was throttled by its CPU limit",
	"waited for a file",
	"waited for a lock",
	"waited for the network",
	"waited for a pipe",
	"slept",
	"waited for a child process",
	"waited for the GPU",
	"was stopped",
	"waited for another process's queue",
	"waited, reason unknown",
}

// String returns the cause as a predicate of "the host".
func (c Cause) String() string { return causeTexts[min(int(c), Causes-1)] }

// IsKnown reports whether the cause says what the thread did.
func (c Cause) IsKnown() bool { return c != CauseUnknown && c != CauseWait }

// IsRunning reports whether the thread was on a processor and did not collect garbage.
func (c Cause) IsRunning() bool { return c == CauseCPU || c == CauseDriver }

// isQueued reports whether the thread could have run, but had no processor.
func (c Cause) isQueued() bool { return c == CauseRunQueue || c == CauseThrottled }

// reasonCauses has the causes of waits by WaitFact.Reason.
var reasonCauses = map[string]Cause{
	format.ReasonSleep: CauseSleep, format.ReasonGIL: CauseGIL, format.ReasonLock: CauseLock,
	format.ReasonCondition: CauseLock, format.ReasonImportLock: CauseLock, format.ReasonPipe: CausePipe,
	format.ReasonNetwork: CauseNetwork, format.ReasonFile: CauseFile, format.ReasonPageFault: CauseFile,
	format.ReasonPoll: CausePipe, format.ReasonChild: CauseChild, format.ReasonCUDA: CauseCUDA,
	format.ReasonStopped: CauseStopped, format.ReasonRunQueue: CauseRunQueue, format.ReasonThrottled: CauseThrottled,
}

// Place is where a thread was, and for what it waited.
type Place struct {
	Cause Cause
	// Stack is the stack of the line; 0: unknown.
	Stack int32
	// InLoader reports that the data loader called the program's data set in this thread.
	InLoader bool
	// Owner is the thread that held the lock, the process that was waited for, or what ran instead. Zero: unknown.
	Owner origin.Thread
	// OwnerName is the name of that thread. Target is the path of the file, the address of the socket, or the path
	// of the cgroup with the CPU limit.
	OwnerName, Target string
	// Waker is the thread that ended the wait, and WakerName its name. What it did meanwhile is not known. Zero: none.
	Waker     origin.Thread
	WakerName string
	// Chain says how the thread depends on another one, which did what the other members say.
	Chain Chain
}

// Chain is the way from a thread that waits to the thread at the end of a chain of wakers. The zero value means
// that there is none: the thread itself did it.
type Chain struct {
	// End is the thread at the end, and EndName its name; "": unknown.
	End     origin.Thread
	EndName string
	// Links is the number of wakers on the way, End with them.
	Links int8
	// Cause and Stack are those of the thread's own wait. Stack 0: unknown.
	Cause Cause
	Stack int32
	// InLoader reports that a thread on the way waits for, or works in, a data loader.
	InLoader bool
}

// IsOther reports whether another thread did it.
func (c *Chain) IsOther() bool { return c.Links > 0 }

// Part is a part of a span.
type Part struct {
	Place
	Ns int64
	// CertainNs is the part of Ns whose cause is measured. The rest is estimated: lines of CPU time come from
	// samples.
	CertainNs int64
	// BeyondNs is estimated time of garbage collections that counts in the span although it lies outside. It is not
	// in Ns.
	BeyondNs int64
	// Samples is the number of CPU samples behind a part of CPU time.
	Samples int32
}

// Parts are the parts of a span. They add up to it.
type Parts []Part

// add adds time to the part of a place.
func (p *Parts) add(at Place, ns, certainNs int64, samples int32) {
	if ns <= 0 && samples == 0 {
		return
	}
	for i := range *p {
		if o := &(*p)[i]; o.Place == at {
			o.Ns, o.CertainNs, o.Samples = o.Ns+ns, o.CertainNs+certainNs, o.Samples+samples
			return
		}
	}
	*p = append(*p, Part{Place: at, Ns: ns, CertainNs: certainNs, Samples: samples})
}

// addBeyond adds time outside of the span to the part of a place.
func (p Parts) addBeyond(at Place, ns int64) {
	for i := range p {
		if p[i].Place == at {
			p[i].BeyondNs += ns
			return
		}
	}
}

// sort puts the longest part first.
func (p Parts) sort() {
	slices.SortStableFunc(p, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Stack, b.Stack))
	})
}

// Ns returns the time with a cause.
func (p Parts) Ns(c Cause) (ns int64) {
	for i := range p {
		if p[i].Cause == c {
			ns += p[i].Ns
		}
	}
	return ns
}
