//go:build linux && cgo

package record

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/record/simtest"
)

// numberedCall is a call whose operation began after the recorder had found its channel.
type numberedCall struct {
	startNs   int64
	hasNumber bool
	truth     *simtest.Operation
}

// numberShare counts operations, and those with a number.
type numberShare struct{ numbered, of int64 }

func (s *numberShare) add(c *numberedCall) {
	s.of++
	if c.hasNumber {
		s.numbered++
	}
}

// pct returns the share of the operations that have a number, in percent. Without operations it is 0.
func (s *numberShare) pct() float64 { return 100 * float64(s.numbered) / float64(max(1, s.of)) }

// numberShares are the shares of operations with a number.
type numberShares struct {
	all     numberShare
	between numberShare // operations between two recorded launches
	// provable are operations between two times at which their channel was empty, with all launches from the first to
	// the second one recorded. Where launches are missing, only there calls and counter can prove a number.
	provable numberShare
}

// numbered returns the shares of operations with a number.
func (review *operationReview) numbered() (shares numberShares) {
	windows, empty := review.launchWindows(), review.emptyTimes()
	for i := range review.seenCalls {
		c := &review.seenCalls[i]
		shares.all.add(c)
		k := sort.Search(len(windows), func(k int) bool { return windows[k].HiNs >= c.startNs })
		if k == len(windows) || windows[k].LoNs > c.startNs {
			continue
		}
		shares.between.add(c)
		before, after := enclosing(empty[ledgerChannel{c.truth.Pid, c.truth.Channel}], c.truth)
		if before+review.ledgerToNs >= windows[k].LoNs && after < math.MaxInt64 &&
			after+review.ledgerToNs <= windows[k].HiNs {
			shares.provable.add(c)
		}
	}
	return shares
}

// launchWindows returns the times in which launches were recorded, Unix ns.
func (review *operationReview) launchWindows() (windows []activity.Interval) {
	const apartNs = 50_000_000 // no program pauses as long
	slices.Sort(review.launchNs)
	for _, ns := range review.launchNs {
		if n := len(windows); n > 0 && ns-windows[n-1].HiNs <= apartNs {
			windows[n-1].HiNs = ns
		} else {
			windows = append(windows, activity.Interval{LoNs: ns, HiNs: ns})
		}
	}
	return windows
}

// emptyTimes returns the times in which a channel of the ledger had no operation, in its order of time.
func (review *operationReview) emptyTimes() map[ledgerChannel][]activity.Interval {
	channels := make(map[ledgerChannel][]*simtest.Operation)
	for i := range review.run.ledger.Operations {
		w := &review.run.ledger.Operations[i]
		key := ledgerChannel{w.Pid, w.Channel}
		channels[key] = append(channels[key], w)
	}
	toLedger := review.offsetNs - review.ledgerToNs // from CLOCK_MONOTONIC
	empty := make(map[ledgerChannel][]activity.Interval)
	for key, operations := range channels {
		slices.SortFunc(operations, func(a, b *simtest.Operation) int { return cmp.Compare(a.Counter, b.Counter) })
		endNs := int64(0)
		for _, w := range operations {
			if callNs := w.CallNs + toLedger; callNs > endNs {
				empty[key] = append(empty[key], activity.Interval{LoNs: endNs, HiNs: callNs})
			}
			endNs = max(endNs, w.EndNs)
		}
		empty[key] = append(empty[key], activity.Interval{LoNs: endNs, HiNs: math.MaxInt64 - 1})
	}
	return empty
}

// enclosing returns the end of the last empty time before an operation, and the start of the first one after it.
func enclosing(empty []activity.Interval, w *simtest.Operation) (before, after int64) {
	i := sort.Search(len(empty), func(i int) bool { return empty[i].HiNs > w.StartNs })
	if i == 0 || i == len(empty) {
		return math.MinInt64 / 2, math.MaxInt64
	}
	return empty[i-1].HiNs, empty[i].LoNs
}
