package waitgraph

import (
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
)

// The simulator runs ranks that call collectives, Send and Recv in a common order, with one fault at most. It
// has its own rules of what waits for what: hosts, streams in order, and operations that need all their ranks.

const second = int64(1_000_000_000)

type faultKind int

const (
	faultNone faultKind = iota
	faultDie
	faultHostHang
	faultSkip
	faultExtra
	faultChange
	faultSwap
	faultStuck
	faultKinds
)

// simCall is a call of a program: an operation, or a wait of the host for its stream if sync is true.
type simCall struct {
	communicator int // -1: Send or Recv
	signature    Signature
	stream       int64
	group        int // calls with the same group, not 0, run at the same time
	sync         bool

	number         int64
	startNs, endNs int64 // 0: did not happen
	covered        bool  // the host waited for it
}

type simInstance struct {
	need  int
	calls []*simCall
	ranks []int
	stuck bool
	durNs int64
	ended bool
}

type simJob struct {
	random        *rand.Rand
	ranks         int
	communicators [][]int
	programs      [][]*simCall
	at            []int   // next call of each host
	clock         []int64 // of each host
	blocking      bool
	gpuTimes      bool
	perStream     bool
	fault         faultKind
	culprit       int
	position      int
	instances     map[key]*simInstance
	deadNs        int64
	recorded      []bool
	pollsOnly     bool
}

// newSimJob makes a job of a seed.
func newSimJob(seed uint64, fault faultKind) *simJob {
	r := rand.New(rand.NewPCG(seed, 7))
	s := &simJob{random: r, ranks: 2 + r.IntN(9), fault: fault, instances: make(map[key]*simInstance)}
	s.blocking, s.gpuTimes, s.perStream = r.IntN(3) == 0, r.IntN(2) == 0, r.IntN(3) == 0
	s.pollsOnly = r.IntN(4) == 0
	if fault == faultSwap {
		s.perStream = false
	}
	all := make([]int, s.ranks)
	for i := range all {
		all[i] = i
	}
	s.communicators = [][]int{all}
	for range r.IntN(4) {
		sub := slices.Clone(all)
		r.Shuffle(len(sub), func(i, j int) { sub[i], sub[j] = sub[j], sub[i] })
		sub = sub[:2+r.IntN(s.ranks-1)]
		slices.Sort(sub)
		s.communicators = append(s.communicators, sub)
	}
	s.makePrograms()
	s.culprit = r.IntN(s.ranks)
	s.position = r.IntN(len(s.programs[s.culprit]))
	s.applyFault()
	s.recorded = make([]bool, s.ranks)
	partly := r.IntN(5) == 0
	for i := range s.recorded {
		s.recorded[i] = !partly || r.IntN(4) > 0
	}
	if !slices.Contains(s.recorded, true) {
		s.recorded[0] = true
	}
	return s
}

// makePrograms gives each rank the calls of a random common order.
func (s *simJob) makePrograms() {
	r := s.random
	s.programs = make([][]*simCall, s.ranks)
	stream := func(c int) int64 {
		if s.perStream {
			return int64(c + 1)
		}
		return 1
	}
	functions := []collective.Function{
		collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast,
	}
	group := 0
	for range 10 + r.IntN(60) {
		if r.IntN(5) == 0 { // a ring of Send and Recv in one group
			group++
			c := r.IntN(len(s.communicators))
			for i, rank := range s.communicators[c] {
				n := len(s.communicators[c])
				for _, x := range []Signature{
					{Function: collective.Send, Root: int32((i + 1) % n), Count: 64},
					{Function: collective.Recv, Root: int32((i + n - 1) % n), Count: 64},
				} {
					s.programs[rank] = append(s.programs[rank], &simCall{
						communicator: c, signature: x, stream: stream(c), group: group,
					})
				}
			}
			continue
		}
		c := r.IntN(len(s.communicators))
		x := Signature{Function: functions[r.IntN(len(functions))], Root: -1, Count: int64(1 + r.IntN(5))}
		if x.Function == collective.Broadcast {
			x.Root = int32(r.IntN(len(s.communicators[c])))
		}
		for _, rank := range s.communicators[c] {
			s.programs[rank] = append(s.programs[rank], &simCall{communicator: c, signature: x, stream: stream(c)})
		}
		for rank := range s.ranks {
			if r.IntN(6) == 0 {
				s.programs[rank] = append(s.programs[rank], &simCall{sync: true, stream: stream(c)})
			}
		}
	}
	for rank := range s.ranks {
		for _, c := range []int{0, 1, 2, 3} {
			s.programs[rank] = append(s.programs[rank], &simCall{sync: true, stream: stream(c)})
		}
	}
}

// applyFault changes the program of the culprit.
func (s *simJob) applyFault() {
	program := s.programs[s.culprit]
	collectiveFrom := func(p int) int {
		for i := range program {
			if c := program[(p+i)%len(program)]; !c.sync && c.group == 0 {
				return (p + i) % len(program)
			}
		}
		return -1
	}
	switch s.fault {
	case faultSkip, faultExtra, faultChange, faultStuck:
		if s.position = collectiveFrom(s.position); s.position < 0 {
			s.fault = faultNone
			return
		}
	}
	switch s.fault {
	case faultSkip:
		s.programs[s.culprit] = slices.Delete(program, s.position, s.position+1)
	case faultExtra:
		extra := *program[s.position]
		extra.signature = Signature{Function: collective.Reduce, Count: 3}
		s.programs[s.culprit] = slices.Insert(program, s.position, &extra)
	case faultChange:
		program[s.position].signature.Count += 100
	case faultSwap:
		for i := range len(program) - 1 {
			p := (s.position + i) % (len(program) - 1)
			a, b := program[p], program[p+1]
			if !a.sync && !b.sync && a.group == 0 && b.group == 0 && a.communicator != b.communicator {
				program[p], program[p+1] = b, a
				return
			}
		}
		s.fault = faultNone
	}
}

// execute runs the job until nothing moves.
func (s *simJob) execute() {
	s.at, s.clock = make([]int, s.ranks), make([]int64, s.ranks)
	numbers := make([]map[key]int64, s.ranks)
	queues := make([]map[int64][]*simCall, s.ranks)
	for i := range s.ranks {
		numbers[i], queues[i] = make(map[key]int64), make(map[int64][]*simCall)
		s.clock[i] = 1000*second + int64(s.random.IntN(1_000_000))
	}
	for moved := true; moved; {
		moved = false
		for rank := range s.ranks {
			for s.stepHost(rank, numbers[rank], queues[rank]) {
				moved = true
			}
		}
		for _, n := range s.instances {
			moved = s.tryEnd(n, queues) || moved
		}
	}
}

// stepHost makes a host do its next call, if it can.
func (s *simJob) stepHost(rank int, numbers map[key]int64, queues map[int64][]*simCall) bool {
	if s.at[rank] == len(s.programs[rank]) {
		return false
	}
	if rank == s.culprit && s.at[rank] == s.position && (s.fault == faultDie || s.fault == faultHostHang) {
		if s.fault == faultDie {
			s.deadNs = s.clock[rank] + 1
		}
		return false
	}
	c := s.programs[rank][s.at[rank]]
	if c.sync {
		for _, o := range queues[c.stream] {
			if o.endNs == 0 {
				return false
			}
			s.clock[rank] = max(s.clock[rank], o.endNs)
		}
		for _, o := range queues[c.stream] {
			o.covered = true
		}
		s.at[rank]++
		return true
	}
	if s.blocking {
		for _, list := range queues {
			for _, o := range list {
				if o.endNs == 0 && (o.group == 0 || o.group != c.group) {
					return false
				}
				if o.endNs != 0 {
					o.covered = true
					s.clock[rank] = max(s.clock[rank], o.endNs)
				}
			}
		}
	}
	s.clock[rank] += int64(s.random.IntN(5_000_000)) + 1000
	c.startNs = s.clock[rank]
	k := key{communicator: c.communicator, sender: -1, receiver: -1}
	need := len(s.communicators[c.communicator])
	if c.signature.isPeerToPeer() {
		me := int32(slices.Index(s.communicators[c.communicator], rank))
		k.sender, k.receiver = me, c.signature.Root
		if c.signature.Function == collective.Recv {
			k.sender, k.receiver = c.signature.Root, me
		}
		need = 2
	}
	series := k
	series.owner = int(c.signature.Function)
	if !c.signature.isPeerToPeer() {
		series.owner = 0
	}
	numbers[series]++
	c.number = numbers[series]
	k.number = c.number
	n := s.instances[k]
	if n == nil {
		n = &simInstance{need: need, durNs: 1 + int64(s.random.IntN(2_000_000))}
		s.instances[k] = n
	}
	n.calls, n.ranks = append(n.calls, c), append(n.ranks, rank)
	n.stuck = n.stuck || s.fault == faultStuck && rank == s.culprit && s.at[rank] == s.position
	queues[c.stream] = append(queues[c.stream], c)
	s.at[rank]++
	return true
}

// tryEnd ends an instance if all its calls are at the front of their streams, and equal.
func (s *simJob) tryEnd(n *simInstance, queues []map[int64][]*simCall) bool {
	if n.ended || n.stuck || len(n.calls) < n.need {
		return false
	}
	start := int64(0)
	for i, c := range n.calls {
		if !n.calls[0].signature.matches(c.signature) {
			return false
		}
		start = max(start, c.startNs)
		for _, o := range queues[n.ranks[i]][c.stream] {
			if o == c {
				break
			}
			if o.endNs == 0 && (o.group == 0 || o.group != c.group) {
				return false
			}
			start = max(start, o.endNs)
		}
	}
	for _, c := range n.calls {
		c.endNs = start + n.durNs
	}
	n.ended = true
	return true
}
