package rules

import (
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
)

// rankWaits finds the waits on the host that end when other ranks do something.
type rankWaits struct {
	stacks *threadstate.StackWaits
	// ranks has the times in which threads of ranks wait, by process. It is empty without ranks.
	ranks map[int32]*backwardWaits
}

// backwardWaits are times in which threads of a process wait, ns.
type backwardWaits struct {
	backwardNs   int64 // threads of Python, for the end of a backward pass
	collectiveNs int64 // all threads, in collectives
}

// leastCollectiveShare is the part of the time in backward passes from which on these wait for other ranks.
const leastCollectiveShare = 0.5

// readRankWaits sets Survey.rankWaits. It reads the recording only once, and only if it has ranks.
func (s *Survey) readRankWaits() error {
	if s.rankWaits != nil {
		return nil
	}
	s.rankWaits = &rankWaits{
		stacks: threadstate.NewStackWaits(&s.t.Stacks), ranks: make(map[int32]*backwardWaits),
	}
	for pid := range s.t.Facts.Processes {
		if s.t.Facts.RankText(pid) != "" {
			s.rankWaits.ranks[pid] = new(backwardWaits)
		}
	}
	if len(s.rankWaits.ranks) == 0 {
		return nil
	}
	return hosttime.EachGroup(s.t, func(rows *hosttime.Rows) error {
		for i := range rows.Waits {
			s.rankWaits.addWait(&rows.Waits[i])
		}
		return nil
	})
}

// addWait adds a wait of a rank.
func (w *rankWaits) addWait(h *hosttime.Wait) {
	switch r := w.ranks[h.Pid]; {
	case r == nil:
	case w.stacks.Collective(h.Stack) != "":
		r.collectiveNs += h.ToNs - h.FromNs
	case w.stacks.InBackward(h.Stack):
		r.backwardNs += h.ToNs - h.FromNs
	}
}

// isForRanks reports whether a wait of a process with a stack is for other ranks: it is in a collective, or in a
// backward pass that mostly waits in one.
func (w *rankWaits) isForRanks(pid, stack int32) bool {
	r := w.ranks[pid]
	if r == nil {
		return false
	}
	return w.stacks.Collective(stack) != "" || w.stacks.InBackward(stack) &&
		float64(r.collectiveNs) >= leastCollectiveShare*float64(r.backwardNs)
}
