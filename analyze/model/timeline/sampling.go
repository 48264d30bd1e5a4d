package timeline

import (
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// GapNs is for how much of a time launches were not recorded.
func (t *Timeline) GapNs(fromNs, toNs int64) int64 {
	return sampling.LengthIn(t.Facts.Sampling.NoLaunches, query.Window{FromNs: fromNs, ToNs: toNs})
}

func (t *Timeline) Coverage() sampling.Coverage {
	s, w := &t.Facts.Sampling, t.Recording()
	l := sampling.Coverage{
		Sampled:     len(s.NoLaunches)+len(s.NoStacks) > 0,
		OfNs:        w.DurNs(),
		MaxPct:      s.MaxOverheadPct,
		OverheadPct: s.MeasuredPct,
	}
	l.LaunchesNs, l.StacksNs = l.OfNs-sampling.LengthIn(s.NoLaunches, w), l.OfNs-sampling.LengthIn(s.NoStacks, w)
	return l
}

// blinds are the times of a window without launches.
func (t *Timeline) blinds(w query.Window) (list []sampling.Gap) {
	for _, m := range t.Facts.Sampling.NoLaunches {
		if m.FromNs < w.ToNs && m.ToNs > w.FromNs {
			list = append(
				list,
				sampling.Gap{Window: query.Window{FromNs: max(m.FromNs, w.FromNs), ToNs: min(m.ToNs, w.ToNs)}},
			)
		}
	}
	for i := range list {
		b := &list[i]
		fromNs, toNs := w.FromNs, w.ToNs
		if i > 0 {
			fromNs = list[i-1].ToNs
		}
		if i+1 < len(list) {
			toNs = list[i+1].FromNs
		}
		left, right := min(b.FromNs-fromNs, b.DurNs()), min(toNs-b.ToNs, b.DurNs())
		if left > 0 && right > 0 {
			left, right = min(left, sampling.NeighborRatio*right), min(right, sampling.NeighborRatio*left)
		}
		b.Left, b.Right = query.Window{
			FromNs: b.FromNs - left,
			ToNs:   b.FromNs,
		}, query.Window{
			FromNs: b.ToNs,
			ToNs:   b.ToNs + right,
		}
	}
	return list
}

// countOthers counts calls that are no launches of kernels, and events of allocators, in blind times and beside them.
func (t *Timeline) countOthers(list []sampling.Gap) {
	var bounds []int64
	for i := range list {
		b := &list[i]
		bounds = append(bounds, b.Left.FromNs, b.FromNs, b.ToNs, b.Right.ToNs)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	counts := make([]int64, len(bounds)+1) // calls before the bound
	var start []int64
	var kind, name format.Strings
	for _, spans := range [][]Span{t.Memory, t.Calls, t.Allocations} {
		for _, s := range spans {
			start, kind, name = s.Group.Int64(
				"start_ns",
				start,
			), s.Group.StringsInto(
				"kind",
				kind,
			), s.Group.StringsInto(
				"name",
				name,
			)
			for i, ns := range start {
				if kind.At(i) != format.KindLaunch || catalog.BaseName(name.At(i)) == "cuGraphLaunch" {
					counts[sort.Search(len(bounds), func(k int) bool { return bounds[k] > ns })]++
				}
			}
		}
	}
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	before := func(ns int64) int64 {
		at, _ := slices.BinarySearch(bounds, ns)
		return counts[at]
	}
	in := func(w query.Window) int64 { return before(w.ToNs) - before(w.FromNs) }
	for i := range list {
		b := &list[i]
		b.Others, b.NeighborCalls = in(b.Window), in(b.Left)+in(b.Right)
	}
}

// LaunchWeights returns the weights of a window, nil if all launches in it are recorded. Launches
// of a time without are taken to be like those just before and after it.
func (t *Timeline) LaunchWeights(w query.Window) *sampling.Weights {
	if known, ok := t.weights[w]; ok {
		return known
	}
	weights := sampling.NewLaunchWeights(t.countedBlinds(w))
	if t.weights == nil {
		t.weights = make(map[query.Window]*sampling.Weights)
	}
	t.weights[w] = weights
	return weights
}

func (t *Timeline) countedBlinds(w query.Window) []sampling.Gap {
	list := t.blinds(w)
	if len(list) > 0 {
		t.countOthers(list)
	}
	return list
}
