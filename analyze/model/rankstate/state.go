package rankstate

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// State has the ranks of a job at its end, and why they stand still. Times are Unix ns on the clock of host 0.
type State struct {
	Ranks         []Rank
	Communicators []Communicator
	Graph         *waitgraph.Job
	Verdict       *waitgraph.Verdict
	// FirstDeath is the rank that ended first and made the others end, if all have ended. nil: there is none.
	FirstDeath *FirstDeath
	// Guessed says that Verdict assumes that hosts that wait for their GPU wait for their last operation.
	Guessed bool
	EndNs   int64
	// Census compares the counters of NCCL on communicators without a recorded call. Counted is their verdict on a hang
	// whose cause the operations do not show.
	Census  []Census
	Counted CountsVerdict
	// WorldSize is the number of ranks of the job, 0 if unknown. Absent are the ranks that were not recorded,
	// ascending.
	WorldSize int
	Absent    []int
	// AbsentHosts are the hosts of Absent by rank, where the environments of other ranks say it.
	AbsentHosts map[int]string
	// Lost is the number of lost calls of the recordings.
	Lost int64
	// Truncated is the number of recordings whose end is missing, Recordings that of all.
	Truncated, Recordings int
	// ClockErrorNs is the largest error between clocks of two hosts, UnknownClock if one has no bound.
	ClockErrorNs int64
	// ClockProblem says why clocks have no bound although they were compared, "" if nothing is wrong.
	ClockProblem string
}

// Communicator is a communicator of the job. It has the index of waitgraph.Job.Communicators.
type Communicator struct {
	ID      int64
	Size    int
	Name    string
	Members []int // as in waitgraph.Communicator
	// Init says that it is not a communicator but the call that makes one.
	Init bool
	// MadeBy is the function of that call if all ranks of the communicator make it, such as ncclCommSplit: then ID is
	// that of the parent. "": the call makes the communicator by a unique id.
	MadeBy string
	// Numbering is the least exact one of the members, one of the format.Numbering names.
	Numbering string
}

// Rank is a process of the job.
type Rank struct {
	Member job.Member
	Host   string
	Index  int // in State.Ranks
	// Calls have the index of waitgraph.Rank.Operations.
	Calls []Call
	// DeadNs is the time of its end, 0 if it is alive. Fate says how it ended, such as its Xid.
	DeadNs int64
	Fate   string
	// ExitSignal is the signal that ended it, ExitCode its exit status if none did. 0 and nil: unknown.
	ExitSignal int
	ExitCode   *int
	// Does says what its host does, Site the line of the program, Since since when, Unix ns. They are "" and 0 if
	// nothing says so.
	Does, Site string
	SinceNs    int64
	// IsInCall says that its host is in a call of CUDA or NCCL. A server without requests may wait in another
	// collective, such as one of gloo.
	IsInCall bool
	// LastCallNs is the start of its last recorded call of any kind, Unix ns.
	LastCallNs int64
	// Stack is the number of the stack of Does in its recording.
	Stack int32
}

// Call is an operation of a rank.
type Call struct {
	collective.Operation
	Site string
	// ByCensus says that the operation follows from counters of NCCL. Arguments and stack are unknown, and StartNs is
	// the first reading.
	ByCensus bool
}

// UnknownClock is the ClockErrorNs if nothing bounds the difference between two clocks.
const UnknownClock = int64(1) << 60

// Reader adds recordings to a State.
type Reader struct {
	job    *job.Job
	opt    query.Options
	clocks func(a, b int) job.Offset
	state  *State
	longNs int64
	keys   map[communicatorKey]int
	unique map[int64]int  // communicators by format.CommunicatorFact.UniqueID
	sides  []map[int]side // by communicator and rank in it
	// weak are the operations that a host may wait for: (rank, operation).
	weak [][2]int
}

// side describes a rank in a communicator.
type side struct {
	rank    int // in State.Ranks
	entered int64
	exact   bool
	numbers string
	census  *format.CommunicatorCensus // nil: not read
}

// communicatorKey identifies a communicator in all recordings. owner and ptr matter only without an identity.
type communicatorKey struct {
	id    int64
	size  int32
	owner int
	ptr   int64
	init  bool
}

// NewReader returns a Reader of a job. clocks bounds the difference between the clocks of two hosts.
func NewReader(j *job.Job, opt query.Options, longNs int64, clocks func(a, b int) job.Offset) *Reader {
	return &Reader{
		job:    j,
		opt:    opt,
		clocks: clocks,
		longNs: longNs,
		keys:   make(map[communicatorKey]int),
		unique: make(map[int64]int),
		state:  &State{Graph: &waitgraph.Job{LongNs: longNs}},
	}
}

// Add reads the ranks of recording i. The recording may be closed afterwards.
func (r *Reader) Add(t *timeline.Timeline, i int) error {
	last, err := collective.ReadLast(t, r.opt)
	if err != nil {
		return err
	}
	a := &addition{Reader: r, t: t, last: last, index: i, ranks: make(map[int32]int)}
	return a.run()
}

// Finish computes the verdict.
func (r *Reader) Finish() *State {
	s := r.state
	s.Graph.EndNs = s.EndNs
	s.Graph.ClockErrorNs = func(a, b int) int64 { return r.clockError(s.Ranks[a].Member.Host, s.Ranks[b].Member.Host) }
	r.readCensuses()
	r.joinCommunicators()
	r.findAbsent()
	for i := range s.Ranks {
		s.ClockErrorNs = max(s.ClockErrorNs, r.clockError(0, s.Ranks[i].Member.Host))
	}
	r.solve()
	if len(s.Verdict.Faults) == 0 && len(r.weak) > 0 {
		for _, w := range r.weak {
			o := &s.Graph.Ranks[w[0]].Operations[w[1]]
			if o.Progress == waitgraph.Launched {
				o.Progress = waitgraph.Unfinished
			}
		}
		s.Verdict, s.Guessed = waitgraph.Solve(s.Graph), true
	}
	if len(s.Verdict.Faults) == 0 {
		s.Counted, s.FirstDeath = r.judgeCounts(), s.findFirstDeath()
	}
	return s
}

// clockError returns the error of a difference between times of two hosts, ns.
func (r *Reader) clockError(a, b int) int64 {
	if a == b {
		return 0
	}
	o := r.clocks(a, b)
	if o.Source == "unknown" {
		return UnknownClock
	}
	return (o.HighNs - o.LowNs + 1) / 2
}

// shift returns the time to subtract from times of a host to get times of host 0, ns.
func (r *Reader) shift(host int) int64 {
	if host == 0 {
		return 0
	}
	if o := r.clocks(0, host); o.Source != "unknown" {
		return o.LowNs + (o.HighNs-o.LowNs)/2
	}
	return 0
}

// joinCommunicators fills the communicators of the graph from what the recordings said.
func (r *Reader) joinCommunicators() {
	for i := range r.state.Communicators {
		c := &r.state.Communicators[i]
		g := waitgraph.Communicator{ID: c.ID}
		size := c.Size
		for rank := range r.sides[i] {
			size = max(size, rank+1)
		}
		g.Entered = make([]int64, size)
		for range size {
			g.Members = append(g.Members, waitgraph.NotRecorded)
		}
		g.Relative, g.RelativePeers = c.ID == 0 || c.Size == 0, c.ID == 0 || c.Size == 0
		for rank, s := range r.sides[i] {
			g.Members[rank], g.Entered[rank] = s.rank, s.entered
			g.Relative = g.Relative || !s.exact
			c.Numbering = leastExact(c.Numbering, s.numbers)
			g.RelativePeers = g.RelativePeers || s.numbers != numberingFromStart
		}
		if c.Init {
			r.addCallersToCome(c, &g)
		}
		c.Members = g.Members
		r.state.Graph.Communicators = append(r.state.Graph.Communicators, g)
	}
}

// leastExact returns the numbering that says less.
func leastExact(a, b string) string {
	order := []string{"", format.NumberingExact, format.NumberingCounter, format.NumberingRelative}
	return order[max(slices.Index(order, a), slices.Index(order, b), 0)]
}

// addCallersToCome adds to a communicator that is being made the ranks that have not called its init, if it is
// that of the whole job, or the ranks of the parent.
func (r *Reader) addCallersToCome(c *Communicator, g *waitgraph.Communicator) {
	if parent, ok := r.keys[communicatorKey{id: c.ID, size: int32(c.Size), owner: -1}]; ok && c.MadeBy != "" {
		for rank, s := range r.sides[parent] {
			if g.Members[rank] == waitgraph.NotRecorded {
				g.Members[rank] = s.rank
			}
		}
		return
	}
	if c.Size != r.worldSize() {
		return
	}
	for i := range r.state.Ranks {
		rank := r.state.Ranks[i].Member.Rank
		if rank >= 0 && rank < len(g.Members) && g.Members[rank] == waitgraph.NotRecorded {
			g.Members[rank] = i
		}
	}
}

// worldSize returns the number of ranks of the job, 0 if unknown.
func (r *Reader) worldSize() int {
	size := 0
	for i := range r.state.Ranks {
		size = max(size, r.state.Ranks[i].Member.WorldSize)
	}
	return size
}

// findAbsent sets the ranks of the job that were not recorded.
func (r *Reader) findAbsent() {
	s := r.state
	s.WorldSize = r.worldSize()
	known := make(map[int]bool)
	for i := range s.Ranks {
		known[s.Ranks[i].Member.Rank] = true
	}
	for rank := range min(s.WorldSize, maxWorldSize) {
		if !known[rank] && !known[job.UnknownRank] {
			s.Absent = append(s.Absent, rank)
		}
	}
	s.AbsentHosts = make(map[int]string)
	for _, rank := range s.Absent {
		if host := r.hostOfRank(rank); host != "" {
			s.AbsentHosts[rank] = host
		}
	}
}

// hostOfRank returns the host of a rank that was not recorded, "" if it is unknown. The ranks of a host follow each other
// if two recorded ones do, or if all ranks of the job are on one host.
func (r *Reader) hostOfRank(rank int) string {
	first := make(map[int]int) // the first rank by host, -1: the ranks do not follow each other
	count := make(map[int]int)
	for i := range r.state.Ranks {
		m := &r.state.Ranks[i].Member
		id := &m.Identity
		if m.Rank < 0 || id.LocalRank == nil || id.LocalWorldSize == nil {
			continue
		}
		from := m.Rank - *id.LocalRank
		if known, ok := first[m.Host]; ok && known != from {
			from = -1
		}
		first[m.Host] = from
		count[m.Host]++
		isAlone := *id.LocalWorldSize == r.state.WorldSize
		if from >= 0 && (isAlone || count[m.Host] > 1) && rank >= from && rank < from+*id.LocalWorldSize {
			return r.state.Ranks[i].Host
		}
	}
	return ""
}

// maxWorldSize bounds the size of communicators and of the job: larger sizes count as unknown.
const maxWorldSize = 1 << 18

// LabelsOf returns the labels of ranks, in the order of the job.
func (s *State) LabelsOf(ranks []int) []string {
	list := slices.Clone(ranks)
	slices.SortFunc(list, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.Ranks[a].Member.Rank, s.Ranks[b].Member.Rank), cmp.Compare(a, b))
	})
	var labels []string
	for _, rank := range list {
		labels = append(labels, s.Ranks[rank].Member.Label)
	}
	return labels
}
