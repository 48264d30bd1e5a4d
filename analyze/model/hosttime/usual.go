package hosttime

import (
	"cmp"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// UsualWaker is the thread that ended most waits of another thread in one place.
type UsualWaker struct {
	origin.Thread        // zero: none is known
	Name          string // of the thread
	Ended, Waits  int64  // waits that it ended, and waits there in all
}

// leastUsualShare is the share of the waits that a usual waker has ended at least.
const leastUsualShare = 0.5

// FindUsualWaker returns the thread that ended most waits of a thread with a stack, if it ended at least half of them.
// So it is likely to be the one that a wait there waits for. It reads class host, and returns errors of reading.
func FindUsualWaker(t *timeline.Timeline, th origin.Thread, stack int32) (most UsualWaker, err error) {
	if !HasWakers(t) || stack == 0 {
		return most, nil
	}
	ended, names, waits := make(map[origin.Thread]int64), make(map[origin.Thread]string), int64(0)
	err = EachGroup(t, func(rows *Rows) error {
		for i := range rows.Waits {
			w := &rows.Waits[i]
			if w.Thread != th || w.Stack != stack || w.IsOpen || w.State == format.StateRunnable {
				continue
			}
			waits++
			if by := w.Fact.EndedBy; by == format.EndedByThread || by == format.EndedBySender {
				ended[w.Waker]++
				names[w.Waker] = w.Fact.Waker
			}
		}
		return nil
	})
	for waker, n := range ended {
		if n > most.Ended || n == most.Ended && cmp.Compare(waker.Tid, most.Tid) < 0 {
			most = UsualWaker{Thread: waker, Name: names[waker], Ended: n, Waits: waits}
		}
	}
	if float64(most.Ended) < leastUsualShare*float64(waits) {
		return UsualWaker{}, err
	}
	return most, err
}
