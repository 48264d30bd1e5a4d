package hang

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxUsualLinks bounds the threads on the way to the one that a thread waits for.
const maxUsualLinks = 8

// describeWakers returns for which thread a thread waits, as the wakers of its earlier waits in the same place say, and
// what that thread does now; "" if nothing is known. The present wait has not ended, so this is likely, not certain.
func (s *Scan) describeWakers(t *threadstate.Thread) string {
	var text string
	seen := []origin.Thread{{Pid: t.Pid, Tid: t.Tid}}
	for waitsForThread(t) && len(seen) <= maxUsualLinks {
		usual, err := hosttime.FindUsualWaker(s.T, seen[len(seen)-1], t.Stack)
		if err != nil || usual.Tid == 0 || slices.Contains(seen, usual.Thread) {
			break
		}
		text = fmt.Sprintf("thread %s ended %d of %s", s.nameOfThread(&usual), usual.Ended,
			units.CountWithNoun(usual.Waits, "earlier wait"))
		if len(seen) > 1 {
			text += " of the thread before it"
		} else {
			text += " there"
		}
		seen = append(seen, usual.Thread)
		var snapshot *threadstate.Snapshot
		if snapshot, t = s.stateOf(usual.Thread); t == nil {
			break
		}
		text += ", and now " + snapshot.Why(t)
		if site := t.Site(); site != "" {
			text += ", at " + site
		}
	}
	if n := len(seen) - 2; n > 0 {
		text += fmt.Sprintf(" (%s on the way)", units.CountWithNoun(int64(n), "thread"))
	}
	return text
}

// waitsForThread reports whether another thread may have to end the wait of a thread.
func waitsForThread(t *threadstate.Thread) bool {
	switch t.Wait.Reason {
	case format.ReasonSleep, format.ReasonGIL, format.ReasonFile, format.ReasonPageFault, format.ReasonCUDA,
		format.ReasonStopped, format.ReasonRunQueue, format.ReasonThrottled:
		return false
	}
	return t.State == format.StateSleeping
}

// stateOf returns the last state of a thread, and its snapshot; nil if there is none.
func (s *Scan) stateOf(th origin.Thread) (*threadstate.Snapshot, *threadstate.Thread) {
	snapshots := s.snapshots[th.Pid]
	if len(snapshots) == 0 {
		return nil, nil
	}
	last := &snapshots[len(snapshots)-1]
	i := slices.IndexFunc(last.Threads, func(t threadstate.Thread) bool { return t.Tid == th.Tid })
	if i < 0 {
		return nil, nil
	}
	return last, &last.Threads[i]
}

// nameOfThread names a thread that ended waits.
func (s *Scan) nameOfThread(w *hosttime.UsualWaker) string {
	text := fmt.Sprint(w.Tid)
	if w.Name != "" {
		text += " " + w.Name
	}
	if len(s.T.Facts.Processes) > 1 {
		text += fmt.Sprintf(" of process %d", w.Pid)
	}
	return text
}
