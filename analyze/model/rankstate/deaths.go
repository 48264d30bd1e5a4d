package rankstate

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/waitgraph"
)

// FirstDeath is the rank of a job that ended first. A launcher such as torchrun ends the other ranks soon after, so they
// do not wait long.
type FirstDeath struct {
	Rank   int   // index in State.Ranks
	Others []int // the ranks that ended later, in that order
	// LeadNs is the time until the next rank ended.
	LeadNs int64
	// Communicator has operations that other ranks called and Rank did not, as an index of State.Communicators: it had
	// called the first Called operations, another rank Furthest. -1: there is none.
	Communicator     int
	Called, Furthest int64
	// IsKnown says that the end of Rank is known to be abnormal. Otherwise only the order of the ends accuses it.
	IsKnown bool
}

// Limits of a first death.
const (
	longestEndNs = 60_000_000_000 // from the first end to the last one
	leastLeadNs  = 10_000_000     // if how the rank ended is unknown
)

// findFirstDeath returns the rank that ended before the others and is the reason of their ends, nil if there is none: a rank
// is alive, the ranks ended as they should, or were asked to end.
func (s *State) findFirstDeath() *FirstDeath {
	dead := make([]int, 0, len(s.Ranks))
	for i := range s.Ranks {
		if s.Ranks[i].DeadNs == 0 {
			return nil
		}
		dead = append(dead, i)
	}
	if len(dead) < 2 {
		return nil
	}
	slices.SortStableFunc(dead, func(a, b int) int { return cmp.Compare(s.Ranks[a].DeadNs, s.Ranks[b].DeadNs) })
	first, next, last := &s.Ranks[dead[0]], &s.Ranks[dead[1]], &s.Ranks[dead[len(dead)-1]]
	d := &FirstDeath{Rank: dead[0], Others: dead[1:], LeadNs: next.DeadNs - first.DeadNs, Communicator: -1}
	d.IsKnown = first.isAbnormal()
	s.compareCalls(d)
	clockError := int64(0)
	for _, other := range d.Others {
		clockError = max(clockError, s.Graph.ClockErrorNs(d.Rank, other))
	}
	isUnknown := first.ExitSignal == 0 && first.ExitCode == nil
	switch {
	case last.DeadNs-first.DeadNs > longestEndNs, d.LeadNs <= clockError:
		return nil
	case d.IsKnown && (d.Communicator >= 0 || !next.endedLike(first)):
		return d
	case isUnknown && d.Communicator >= 0 && d.LeadNs >= leastLeadNs:
		return d
	}
	return nil
}

// compareCalls finds the communicator on which the rank that died is furthest behind another rank.
func (s *State) compareCalls(d *FirstDeath) {
	for i := range s.Graph.Communicators {
		c := &s.Graph.Communicators[i]
		mine := slices.Index(c.Members, d.Rank)
		if mine < 0 || c.Relative {
			continue
		}
		called, furthest := c.Entered[mine], int64(0)
		for rank, member := range c.Members {
			if member != waitgraph.NotRecorded && c.Entered[rank] != math.MaxInt64 {
				furthest = max(furthest, c.Entered[rank])
			}
		}
		if called != math.MaxInt64 && furthest-called > d.Furthest-d.Called {
			d.Communicator, d.Called, d.Furthest = i, called, furthest
		}
	}
}

// isAbnormal reports whether a rank is known to have ended by itself and not as it should: by a signal of the kernel or
// SIGKILL, or with an exit status that is no success.
func (r *Rank) isAbnormal() bool {
	const bySignal = 128 // a shell's exit status of a program that a signal ended
	if r.ExitCode != nil {
		return *r.ExitCode != 0 && !isRequest(*r.ExitCode-bySignal)
	}
	return r.ExitSignal != 0 && !isRequest(r.ExitSignal)
}

// isRequest reports whether a signal of Linux asks a program to end.
func isRequest(signal int) bool {
	const hangup, interrupt, terminate = 1, 2, 15
	return signal == hangup || signal == interrupt || signal == terminate
}

// endedLike reports whether two ranks are known to have ended in the same way.
func (r *Rank) endedLike(o *Rank) bool {
	if r.ExitCode != nil && o.ExitCode != nil {
		return *r.ExitCode == *o.ExitCode
	}
	return r.ExitSignal != 0 && r.ExitSignal == o.ExitSignal
}
