package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// longGapNs is the shortest idle interval that is compared.
const longGapNs = 50_000

// gapList has idle intervals of at least longGapNs in a span of time.
type gapList struct {
	name   string
	spanNs float64
	idlePc float64 // share of all idle time, in percent
	list   []activity.Interval
}

// compareIdle compares the idle intervals of the GPU.
func compareIdle(out io.Writer, t *timeline.Timeline, r *reference) error {
	const all = 1 << 20
	result, err := idle.Compute(t, idle.Options{Filter: new(query.Filter), MaxGaps: all})
	if err != nil || len(r.operations) == 0 {
		return err
	}
	cupti := r.idleIntervals()
	cupti.print(out)
	for _, d := range result.Devices {
		g := gapList{
			name:   "gpurec",
			spanNs: d.Time.SpanNs,
			idlePc: 100 * d.Time.Idle.ProbableNs / max(1, d.Time.SpanNs),
		}
		for i := range d.Gaps {
			if gap := &d.Gaps[i]; gap.Cause.Reason.IsIdle() && gap.LengthNs() >= longGapNs {
				g.list = append(g.list, activity.Interval{LoNs: gap.FromNs, HiNs: gap.ToNs})
			}
		}
		slices.SortFunc(g.list, func(a, b activity.Interval) int { return cmp.Compare(a.LoNs, b.LoNs) })
		g.print(out)
		fmt.Fprintf(out, "  idle between %.2f%% and %.2f%%\n", 100*d.Time.Idle.MinNs/max(1, d.Time.SpanNs),
			100*d.Time.Idle.MaxNs/max(1, d.Time.SpanNs))
		compareAtOneTime(out, cupti.list, g.list, r, d.Window)
	}
	return nil
}

// compareAtOneTime prints how much of the idle time both have, if they saw the same time.
func compareAtOneTime(out io.Writer, cupti, gpurec []activity.Interval, r *reference, w query.Window) {
	from, to := max(w.FromNs, r.fromNs), min(w.ToNs, r.toNs)
	if from >= to {
		fmt.Fprintln(out, "  no idle time at the same time: only lengths are compared")
		return
	}
	a, b := clip(cupti, from, to), clip(gpurec, from, to)
	shared := overlapNs(a, b)
	fmt.Fprintf(out, "  %.2f%% of CUPTI's idle time is idle for gpurec, %.2f%% of gpurec's for CUPTI\n",
		100*shared/max(1, sumNs(a)), 100*shared/max(1, sumNs(b)))
}

// idleIntervals returns the times in which no operation of the reference ran.
func (r *reference) idleIntervals() gapList {
	g := gapList{name: "CUPTI"}
	doneNs, idleNs := r.operations[0].endNs, int64(0)
	for i := range r.operations {
		w := &r.operations[i]
		if between := w.startNs - doneNs; between > 0 {
			idleNs += between
			if between >= longGapNs {
				g.list = append(g.list, activity.Interval{LoNs: doneNs, HiNs: w.startNs})
			}
		}
		doneNs = max(doneNs, w.endNs)
	}
	g.spanNs = float64(doneNs - r.operations[0].startNs)
	g.idlePc = 100 * float64(idleNs) / max(1, g.spanNs)
	return g
}

// print prints the share, the number and the lengths of the intervals.
func (g *gapList) print(out io.Writer) {
	fmt.Fprintf(
		out,
		"%-6s idle %.2f%% of %.2f s; intervals of %d us or more: %.2f%%, %.1f per second",
		g.name,
		g.idlePc,
		g.spanNs/1e9,
		longGapNs/1000,
		100*sumNs(g.list)/max(1, g.spanNs),
		float64(len(g.list))/max(1, g.spanNs)*1e9,
	)
	if n := len(g.list); n > 0 {
		lengths := make([]int64, n)
		for i, gap := range g.list {
			lengths[i] = gap.WidthNs()
		}
		slices.Sort(lengths)
		fmt.Fprintf(
			out,
			", median %d us, p90 %d us, longest %d us",
			lengths[n/2]/1000,
			lengths[n-1-n/10]/1000,
			lengths[n-1]/1000,
		)
	}
	fmt.Fprintln(out)
}

func sumNs(list []activity.Interval) (ns float64) {
	for _, i := range list {
		ns += float64(i.WidthNs())
	}
	return ns
}

// clip returns the parts of intervals between two times.
func clip(list []activity.Interval, from, to int64) (clipped []activity.Interval) {
	for _, i := range list {
		if i.LoNs, i.HiNs = max(i.LoNs, from), min(i.HiNs, to); i.HiNs > i.LoNs {
			clipped = append(clipped, i)
		}
	}
	return clipped
}

// overlapNs returns how long sorted intervals of both lists overlap.
func overlapNs(a, b []activity.Interval) (ns float64) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		ns += float64(max(0, min(a[i].HiNs, b[k].HiNs)-max(a[i].LoNs, b[k].LoNs)))
		if a[i].HiNs < b[k].HiNs {
			i++
		} else {
			k++
		}
	}
	return ns
}
