package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
)

// compareTimes compares the ends of operations that both have. Operations of a stream come in one order in both.
func compareTimes(out io.Writer, result *activity.Result, operations []activity.Operation, r *reference) {
	streams := make(map[int32][]*activity.Operation)
	for i := range operations {
		w := &operations[i]
		if w.Call.StartNs >= r.fromNs && w.Call.StartNs < r.toNs && w.Call.Op != activity.OpRecordEvent {
			streams[w.Stream] = append(streams[w.Stream], w)
		}
	}
	cupti := make(map[int][]*referenceOperation)
	for i := range r.operations {
		w := &r.operations[i]
		cupti[w.stream] = append(cupti[w.stream], w)
	}
	if len(streams) == 0 {
		fmt.Fprintln(out, "no operations at the same time: ends are not compared")
		return
	}
	for stream, list := range streams {
		slices.SortStableFunc(
			list,
			func(a, b *activity.Operation) int { return cmp.Compare(a.Call.StartNs, b.Call.StartNs) },
		)
		var best alignment
		for number, other := range cupti {
			a := align(result, list, other)
			a.stream = number
			if a.matches > best.matches || a.matches == best.matches && a.medianOffNs() < best.medianOffNs() {
				best = a
			}
		}
		s := &result.Streams[stream]
		fmt.Fprintf(out, "stream %#x: %d operations, %d of them matched with stream %d of CUPTI\n",
			s.Handle, len(list), best.matches, best.stream)
		best.print(out)
	}
}

// alignment is a pair of equal sequences of operations.
type alignment struct {
	stream     int
	matches    int
	operations []*activity.Operation
	others     []*referenceOperation
}

// medianOffNs returns the median difference of starts, ns. It separates streams with equal operations.
func (a *alignment) medianOffNs() int64 {
	var off []int64
	for i, w := range a.operations {
		if w.StartQuality != activity.Unknown {
			ns := w.StartNs() - a.others[i].startNs
			off = append(off, max(ns, -ns))
		}
	}
	if len(off) == 0 {
		return math.MaxInt64
	}
	slices.Sort(off)
	return off[len(off)/2]
}

// align pairs the operations of a stream with those of CUPTI. Where the two differ, it continues at the next
// place with equal operations.
func align(result *activity.Result, operations []*activity.Operation, others []*referenceOperation) (a alignment) {
	const ahead, inRow = 2000, 12
	i, k := 0, 0
	for i < len(operations) && k < len(others) {
		if isSame(result, operations[i], others[k]) {
			a.operations, a.others = append(a.operations, operations[i]), append(a.others, others[k])
			a.matches++
			i, k = i+1, k+1
			continue
		}
		di, dk, ok := nextEqual(ahead, inRow, func(di, dk int) bool {
			return i+di < len(operations) && k+dk < len(others) && isSame(result, operations[i+di], others[k+dk])
		})
		if !ok {
			return a
		}
		i, k = i+di, k+dk
	}
	return a
}

// nextEqual returns the smallest steps after which inRow operations are equal.
func nextEqual(ahead, inRow int, same func(di, dk int) bool) (di, dk int, ok bool) {
	for sum := 1; sum < ahead; sum++ {
		for di := range sum + 1 {
			dk := sum - di
			n := 0
			for n < inRow && same(di+n, dk+n) {
				n++
			}
			if n == inRow {
				return di, dk, true
			}
		}
	}
	return 0, 0, false
}

// isSame reports whether an operation and one of CUPTI have the same kind, kernel and grid.
func isSame(result *activity.Result, w *activity.Operation, o *referenceOperation) bool {
	switch w.Call.Op {
	case activity.OpKernel:
		return o.what == 'k' && w.Call.Label >= 0 && result.Labels[w.Call.Label].Grid == o.key.grid &&
			result.Labels[w.Call.Label].Kernel == o.key.kernel
	case activity.OpGraph:
		return o.what == 'g'
	case activity.OpFill:
		return o.what == 's'
	}
	return o.what == 'c'
}

// print prints the errors of ends by their quality, and how many intervals hold CUPTI's time.
func (a *alignment) print(out io.Writer) {
	for _, q := range []struct {
		quality activity.Quality
		name    string
	}{{activity.Measured, "measured"}, {activity.Bounded, "bounded"}, {activity.Estimated, "estimated"}} {
		var off []int64
		ends, starts, durations := 0, 0, 0
		const slackNs = 3000
		for i, w := range a.operations {
			if w.EndQuality != q.quality {
				continue
			}
			o := a.others[i]
			off = append(off, w.EndNs()-o.endNs)
			ends += count(contains(w.End, o.endNs, slackNs))
			starts += count(contains(w.Start, o.startNs, slackNs))
			durations += count(contains(w.Duration, o.endNs-o.startNs, slackNs))
		}
		if len(off) == 0 {
			continue
		}
		slices.Sort(off)
		size := slices.Clone(off)
		for i := range size {
			size[i] = max(size[i], -size[i])
		}
		slices.Sort(size)
		n := len(off)
		fmt.Fprintf(
			out,
			"  %-9s %7d ends: error p5 %d, median %d, p95 %d ns, p95 of its size %d, p99 %d ns; "+
				"CUPTI's end in the interval ± 3 us: %.2f%%, start %.2f%%, duration %.2f%%\n",
			q.name,
			n,
			off[n/20],
			off[n/2],
			off[n-1-n/20],
			size[n-1-n/20],
			size[n-1-n/100],
			100*float64(ends)/float64(n),
			100*float64(starts)/float64(n),
			100*float64(durations)/float64(n),
		)
	}
}

func contains(i activity.Interval, ns, slackNs int64) bool {
	return i.LoNs-slackNs <= ns && ns <= i.HiNs+slackNs
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
