package rankstate

import (
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/format"
)

// Census compares the counters of NCCL on a communicator. The recordings have no call of its ranks, and the counters
// did not change.
type Census struct {
	census.Comparison // its ranks are those of the job
	Communicator      int
	Sides             []census.Side // Rank is that of the job
	// SinceNs is the time since which no counter has changed, Unix ns on the clock of host 0. They may be older.
	SinceNs int64
	// IsUneven says that the counters differ, and that the ranks behind wait for their GPUs.
	IsUneven bool
}

// readCensuses compares the counters of each communicator, and adds the operations that follow from them.
func (r *Reader) readCensuses() {
	called := make(map[int]bool)
	for i := range r.state.Graph.Ranks {
		for k := range r.state.Graph.Ranks[i].Operations {
			called[r.state.Graph.Ranks[i].Operations[k].Communicator] = true
		}
	}
	for i := range r.state.Communicators {
		if c := &r.state.Communicators[i]; called[i] || c.Init || c.ID == 0 {
			continue
		}
		found, ok := r.censusOf(i)
		if !ok {
			continue
		}
		r.state.Census = append(r.state.Census, found)
		if found.Kind == census.Behind {
			r.addLaunched(&found)
		}
	}
}

// censusOf compares the counters of a communicator. ok is false if a recorded rank has none, or they changed.
func (r *Reader) censusOf(i int) (found Census, ok bool) {
	found.Communicator, found.SinceNs = i, math.MinInt64
	for _, at := range slices.Sorted(maps.Keys(r.sides[i])) {
		s := r.sides[i][at]
		rank := &r.state.Ranks[s.rank].Member
		if s.census == nil || rank.Rank < 0 || s.census.AtNs-s.census.SinceNs < r.longNs {
			return found, false
		}
		found.SinceNs = max(found.SinceNs, s.census.SinceNs-r.shift(rank.Host))
		found.Sides = append(found.Sides, census.Side{Rank: rank.Rank, Counts: s.census.Counts})
	}
	if len(found.Sides) < 2 {
		return found, false
	}
	found.Comparison = census.Compare(found.Sides)
	return found, true
}

// addLaunched adds an operation to each rank that is ahead: the first that the ranks behind have not launched. It cannot
// have ended without them.
func (r *Reader) addLaunched(c *Census) {
	number := c.First.Launched() + 1
	function := collective.FunctionOf("nccl" + c.Function())
	for _, at := range slices.Sorted(maps.Keys(r.sides[c.Communicator])) {
		rank := r.sides[c.Communicator][at].rank
		if !slices.Contains(c.Others, r.state.Ranks[rank].Member.Rank) {
			continue
		}
		g, since := &r.state.Graph.Ranks[rank], c.SinceNs
		switch {
		case g.Host == waitgraph.HostUnknown:
			g.Host = waitgraph.HostWaits // it makes no call, and its last operation has not ended
		case g.Host == waitgraph.HostWaits && r.state.Ranks[rank].SinceNs > 0:
			since = min(since, r.state.Ranks[rank].SinceNs)
		}
		g.Operations = append(g.Operations, waitgraph.Operation{
			Signature:    waitgraph.Signature{Function: function, Root: format.NoRoot},
			Communicator: c.Communicator, Number: number, Order: math.MaxInt64 - 1,
			Stream: math.MinInt64 + 1 + int64(c.Communicator), StartNs: since, Progress: waitgraph.Unfinished,
			Ref: len(g.Operations),
		})
		r.state.Ranks[rank].Calls = append(r.state.Ranks[rank].Calls, Call{
			Operation: collective.Operation{
				StartNs: since, Sequence: number, Function: function, Root: format.NoRoot,
			},
			ByCensus: true,
		})
	}
}
