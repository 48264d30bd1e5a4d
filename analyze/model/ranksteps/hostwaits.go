package ranksteps

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// readCollectiveWaits adds the times in which the hosts of ranks wait for other ranks outside of the driver, as with
// gloo. Waits of several threads at once count once. It needs rows of host waits.
func readCollectiveWaits(t *timeline.Timeline, byPid map[int32]*rank) error {
	waits := make(map[int32][]interval)
	err := eachCollectiveWait(t, func(w *hosttime.Wait, _ string) {
		if byPid[w.Pid] != nil && len(waits[w.Pid]) < maxHostCalls {
			waits[w.Pid] = append(waits[w.Pid], interval{w.FromNs, w.ToNs})
		}
	})
	for pid, list := range waits {
		byPid[pid].addCollectiveWaits(list)
	}
	return err
}

// eachCollectiveWait calls yield with the waits of threads in collectives outside of the driver, and the names of these.
func eachCollectiveWait(t *timeline.Timeline, yield func(w *hosttime.Wait, collective string)) error {
	stacks := threadstate.NewStackWaits(&t.Stacks)
	return hosttime.EachGroup(t, func(rows *hosttime.Rows) error {
		for i := range rows.Waits {
			w := &rows.Waits[i]
			if name := stacks.Collective(w.Stack); name != "" && w.Fact.CUDACall == "" {
				yield(w, name)
			}
		}
		return nil
	})
}

// addCollectiveWaits adds the union of waits to the calls of a rank.
func (r *rank) addCollectiveWaits(list []interval) {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.fromNs, b.fromNs) })
	untilNs := int64(0)
	for _, w := range list {
		if from := max(w.fromNs, untilNs); w.toNs > from {
			r.calls = append(r.calls, hostCall{startNs: from, durNs: w.toNs - from, kind: callCollective})
			untilNs = w.toNs
		}
	}
}
