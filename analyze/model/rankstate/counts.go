package rankstate

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
)

// CountsKind is the verdict of NCCL's counters on ranks that wait.
type CountsKind uint8

// Kinds of CountsVerdict, in the order in which they count.
const (
	// CountsSilent: no counters were read, or no rank is known to wait.
	CountsSilent CountsKind = iota
	// CountsDifferent: ranks launched different operations.
	CountsDifferent
	// CountsNotJoined: a recorded rank is not in the communicator of all ranks.
	CountsNotJoined
	// CountsAbsent: a rank of the communicator was not recorded.
	CountsAbsent
	// CountsUneven: ranks launched different numbers of operations, and those with fewer wait for their GPUs, too.
	CountsUneven
	// CountsEqual: all ranks launched the same number of each operation.
	CountsEqual
)

// CountsVerdict is the verdict of NCCL's counters on ranks that wait.
type CountsVerdict struct {
	Kind CountsKind
	// Census is the comparison that says it. It is nil if Kind is CountsSilent.
	Census *Census
	// Ranks are the suspects: indexes in State.Ranks, ascending. It is empty if no side has fewer ranks.
	Ranks []int
	// Waiting are the other ranks of the communicator that wait, ascending.
	Waiting []int
}

// solve computes the verdict of the operations. Operations that follow from counters count only if the ranks behind do
// not wait for their GPUs: such a rank does not come late, it has left out a call, or its GPU stands still.
func (r *Reader) solve() {
	s := r.state
	for range len(s.Census) + 1 {
		s.Verdict = waitgraph.Solve(s.Graph)
		i := slices.IndexFunc(s.Verdict.Faults, r.isUneven)
		if i < 0 {
			return
		}
		at := s.Verdict.Faults[i].Waits[0].Communicator
		for k := range s.Census {
			s.Census[k].IsUneven = s.Census[k].IsUneven || s.Census[k].Communicator == at
		}
		r.removeLaunched(at)
	}
}

// isUneven reports whether a fault follows from counters only, although its culprits wait for their GPUs.
func (r *Reader) isUneven(f waitgraph.Fault) bool {
	if f.Kind != waitgraph.Missing || len(f.Waits) == 0 {
		return false
	}
	at := f.Waits[0].Communicator
	isByCensus := slices.ContainsFunc(r.state.Census, func(c Census) bool { return c.Communicator == at })
	return isByCensus && !slices.ContainsFunc(f.Ranks, func(rank int) bool { return !r.state.Ranks[rank].IsInCall })
}

// removeLaunched removes the operations that addLaunched added on a communicator.
func (r *Reader) removeLaunched(communicator int) {
	for rank := range r.state.Ranks {
		g, calls := &r.state.Graph.Ranks[rank], &r.state.Ranks[rank].Calls
		for i := len(g.Operations) - 1; i >= 0; i-- {
			if (*calls)[i].ByCensus && g.Operations[i].Communicator == communicator {
				g.Operations, *calls = slices.Delete(g.Operations, i, i+1), slices.Delete(*calls, i, i+1)
			}
		}
		for i := range g.Operations {
			g.Operations[i].Ref = i
		}
	}
}

// judgeCounts returns what the counters say of a job whose operations show no fault. The communicator with the most
// ranks comes first.
func (r *Reader) judgeCounts() CountsVerdict {
	var list []CountsVerdict
	for i := range r.state.Census {
		list = append(list, r.judgeCensus(&r.state.Census[i]))
	}
	slices.SortStableFunc(list, func(a, b CountsVerdict) int {
		return r.state.Communicators[b.Census.Communicator].Size - r.state.Communicators[a.Census.Communicator].Size
	})
	for kind := CountsDifferent; kind <= CountsEqual; kind++ {
		i := slices.IndexFunc(list, func(v CountsVerdict) bool { return v.Kind == kind })
		if i >= 0 && (len(list[i].Waiting) > 0 || kind == CountsDifferent) {
			return list[i]
		}
	}
	return CountsVerdict{}
}

// judgeCensus returns what the counters of one communicator say.
func (r *Reader) judgeCensus(c *Census) CountsVerdict {
	v := CountsVerdict{Kind: CountsEqual, Census: c}
	size := r.state.Communicators[c.Communicator].Size
	switch few := min(len(c.Ranks), len(c.Others)); {
	case c.Kind == census.Different:
		v.Kind, v.Ranks = CountsDifferent, r.indexesOf(c.Ranks)
	case len(c.Sides) < size && (size == r.state.WorldSize || len(r.state.Absent) > 0):
		if v.Ranks = r.notJoined(c); len(r.state.Absent) > 0 {
			v.Kind, v.Ranks = CountsAbsent, nil
		} else if len(v.Ranks) > 0 {
			v.Kind = CountsNotJoined
		}
	case c.IsUneven:
		v.Kind = CountsUneven
		for _, side := range [][]int{c.Ranks, c.Others} {
			if len(side) == few && len(c.Ranks) != len(c.Others) {
				v.Ranks = r.indexesOf(side)
			}
		}
	}
	for i := range c.Sides {
		for _, rank := range r.indexesOf([]int{c.Sides[i].Rank}) {
			if r.state.Ranks[rank].IsInCall && !slices.Contains(v.Ranks, rank) {
				v.Waiting = append(v.Waiting, rank)
			}
		}
	}
	return v
}

// indexesOf returns the indexes in State.Ranks of ranks of the job, ascending.
func (r *Reader) indexesOf(ranks []int) (indexes []int) {
	for i := range r.state.Ranks {
		if slices.Contains(ranks, r.state.Ranks[i].Member.Rank) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// notJoined returns the recorded ranks that are not known to be in a communicator of all ranks, and wait for no GPU.
func (r *Reader) notJoined(c *Census) (indexes []int) {
	for i := range r.state.Ranks {
		rank := r.state.Ranks[i].Member.Rank
		isElsewhere := r.state.Graph.Ranks[i].Host == waitgraph.HostElsewhere
		if isElsewhere && !slices.ContainsFunc(c.Sides, func(s census.Side) bool { return s.Rank == rank }) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}
