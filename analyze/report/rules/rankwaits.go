package rules

import (
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
)

// rankWaits tells which waits on the host end when other ranks do something.
type rankWaits struct {
	s            *Survey
	isCollective map[int32]bool // by stack
	isAutograd   map[int32]bool
	// backwards has, by process, the time in which threads wait in a backward pass, and in which autograd waits for
	// other ranks.
	backwards map[int32]*backwardWaits
}

// backwardWaits are times of a process, ns.
type backwardWaits struct{ autogradNs, reducerNs int64 }

// leastReducerShare is the part of the time in backward passes from which on these wait for other ranks.
const leastReducerShare = 0.5

// newRankWaits reads the waits of all ranks. It returns errors of reading the recording.
func newRankWaits(s *Survey) (*rankWaits, error) {
	w := &rankWaits{
		s: s, isCollective: make(map[int32]bool), isAutograd: make(map[int32]bool),
		backwards: make(map[int32]*backwardWaits),
	}
	err := hosttime.EachGroup(s.t, func(rows *hosttime.Rows) error {
		for i := range rows.Waits {
			w.addWait(&rows.Waits[i])
		}
		return nil
	})
	return w, err
}

// readRankWaits sets Survey.rankWaits. It reads the recording only once.
func (s *Survey) readRankWaits() (err error) {
	if s.rankWaits == nil {
		s.rankWaits, err = newRankWaits(s)
	}
	return err
}

// addWait adds a wait of a rank.
func (w *rankWaits) addWait(h *hosttime.Wait) {
	if w.s.t.Facts.RankText(h.Pid) == "" {
		return
	}
	w.examine(h.Stack)
	b := w.backwards[h.Pid]
	if b == nil {
		b = new(backwardWaits)
		w.backwards[h.Pid] = b
	}
	switch {
	case w.isCollective[h.Stack]:
		b.reducerNs += h.ToNs - h.FromNs
	case w.isAutograd[h.Stack]:
		b.autogradNs += h.ToNs - h.FromNs
	}
}

// examine finds out what a stack waits for.
func (w *rankWaits) examine(stack int32) {
	if _, known := w.isCollective[stack]; known {
		return
	}
	frames := w.s.t.FramesOfStack(stack)
	w.isCollective[stack] = threadstate.CollectiveOf(frames, false) != ""
	w.isAutograd[stack] = threadstate.InAutograd(frames) && threadstate.HasPython(frames)
}

// isForRanks reports whether a wait of a process with a stack is for other ranks: it is in a collective, or in a
// backward pass that mostly waits in one.
func (w *rankWaits) isForRanks(pid, stack int32) bool {
	if b := w.backwards[pid]; b != nil {
		w.examine(stack)
		return w.isCollective[stack] ||
			w.isAutograd[stack] && float64(b.reducerNs) >= leastReducerShare*float64(b.autogradNs)
	}
	return false
}
