package waitgraph

// Kind is the kind of a fault.
type Kind uint8

// Kinds of faults, in the order in which Solve returns them.
const (
	Died        Kind = iota // ranks died and others wait for them
	Mismatch                // ranks call different operations with the same number
	Missing                 // ranks have not called the operation that others wait for, and wait for no other
	Cycle                   // ranks wait for each other
	Stuck                   // all ranks called the operation, and it does not end
	Unrecorded              // the ranks wait for ranks that were not recorded
	UnknownPeer             // the operations of a communicator cannot be matched between its ranks
)

// Fault is a reason why ranks stand still.
type Fault struct {
	Kind Kind
	// Ranks are the culprits, ascending: the dead, the missing, the suspects of a mismatch, the members of a
	// cycle, or the ranks of a stuck operation. Empty: the evidence does not say who.
	Ranks []int
	// Waits are the operations that wait because of it, in the order of the time since which they wait. The
	// operation of a mismatch is the first.
	Waits []Wait
	// Waiting is the number of ranks that wait, without the culprits.
	Waiting int
	// Order compares the deaths of Ranks with the first wait.
	Order DeathOrder
	// LeadNs is the time from the death to the first wait, negative if the wait was first.
	LeadNs int64
	// Sides are the different calls of a mismatch. The suspect call is the first. Shift compares the later calls of
	// the suspects with those of the others.
	Sides []Side
	Shift Shift
	// Guessed says that the verdict assumes what nothing shows: of a cycle, that the operations of a rank run one
	// after the other; of missing ranks, that their hosts do not wait for an operation that all ranks called.
	Guessed bool
}

// Wait is an operation that does not end.
type Wait struct {
	Communicator int
	Number       int64
	Sender       int32 // ranks in the communicator of Send and Recv, -1 for collectives
	Receiver     int32
	SinceNs      int64 // Unix ns: the last of its ranks that called it did so then
	// Called are the ranks that called it, NotCalled those that did not, Behind those that did but must first
	// end another one, and Unknown the number of ranks that were not recorded.
	Called, NotCalled, Behind []int
	Unknown                   int
}

// DeathOrder says whether a death was before the waits.
type DeathOrder uint8

// Values of DeathOrder.
const (
	NoDeath      DeathOrder = iota
	DeathFirst              // certainly before the first wait
	DeathWithin             // the clocks do not tell
	DeathShortly            // after the first wait, by less than Job.LongNs: the others were ahead
)

// Side is the call of some ranks in a mismatch.
type Side struct {
	Signature Signature
	Ranks     []int // ascending
	// Operation is the index in Rank.Operations of the first of Ranks.
	Operation int
}

// Shift says how the calls of suspects continue.
type Shift uint8

// Values of Shift.
const (
	NoShift     Shift = iota
	ExtraCall         // the suspects' next calls equal the others' calls from here on
	SkippedCall       // the others' next calls equal the suspects' calls from here on
)

// Verdict is the result of Solve.
type Verdict struct {
	Faults []Fault // ordered by Kind, then by the number of waiting ranks, the most first
	// Standing is the number of ranks without a new operation for Job.LongNs.
	Standing int
	// Waits are all operations that do not end.
	Waits []Wait
	// Heads are the operations that each rank waits in, by rank: indexes in Rank.Operations, ascending.
	Heads [][]int
}
