package rules

import (
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
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

// newRankWaits returns the waits of all processes that are ranks.
func newRankWaits(t *timeline.Timeline) *rankWaits {
	w := &rankWaits{stacks: threadstate.NewStackWaits(&t.Stacks), ranks: make(map[int32]*backwardWaits)}
	for pid := range t.Facts.Processes {
		if t.Facts.RankText(pid) != "" {
			w.ranks[pid] = new(backwardWaits)
		}
	}
	return w
}

// addRows adds the waits of rows of class host. It always returns nil.
func (w *rankWaits) addRows(rows *hosttime.Rows) error {
	for i := range rows.Waits {
		w.addWait(&rows.Waits[i])
	}
	return nil
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
