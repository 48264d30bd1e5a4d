package timeline

import (
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// UnrecordedLaunchNs returns how long, in ns, launches were not recorded between two times.
func (t *Timeline) UnrecordedLaunchNs(fromNs, toNs int64) int64 {
	return sampling.OverlapNs(t.Facts.Sampling.NoLaunches, query.Window{FromNs: fromNs, ToNs: toNs})
}

// UnrecordedAllocatorNs returns how long, in ns, the events of caching allocators were not recorded between two times.
func (t *Timeline) UnrecordedAllocatorNs(fromNs, toNs int64) int64 {
	return sampling.OverlapNs(t.Facts.Sampling.NoAllocator, query.Window{FromNs: fromNs, ToNs: toNs})
}

// IsAllocatorSampled reports whether the events of caching allocators were recorded for part of the time only.
func (t *Timeline) IsAllocatorSampled() bool { return len(t.Facts.Sampling.NoAllocator) > 0 }

// AllocatorCoverage returns for how much of the recording the events of caching allocators were recorded. It has no
// numbers of calls.
func (t *Timeline) AllocatorCoverage() sampling.AllocatorCoverage {
	s, w := &t.Facts.Sampling, t.RecordingWindow()
	return sampling.AllocatorCoverage{
		Sampled: t.IsAllocatorSampled(), RecordedNs: w.DurNs() - sampling.OverlapNs(s.NoAllocator, w), OfNs: w.DurNs(),
		MaxPct: s.MaxOverheadPct, OverheadPct: s.MeasuredPct,
	}
}

// SamplingCoverage returns for how much of the recording launches and their stacks were recorded.
func (t *Timeline) SamplingCoverage() sampling.SamplingCoverage {
	s, w := &t.Facts.Sampling, t.RecordingWindow()
	l := sampling.SamplingCoverage{
		Sampled:     len(s.NoLaunches)+len(s.NoStacks) > 0,
		OfNs:        w.DurNs(),
		MaxPct:      s.MaxOverheadPct,
		OverheadPct: s.MeasuredPct,
	}
	l.LaunchesNs, l.StacksNs = l.OfNs-sampling.OverlapNs(s.NoLaunches, w), l.OfNs-sampling.OverlapNs(s.NoStacks, w)
	return l
}

// findSamplingGaps returns the times of a window without recorded launches, and their neighboring
// times.
func (t *Timeline) findSamplingGaps(w query.Window) (list []sampling.SamplingGap) {
	for _, m := range t.Facts.Sampling.NoLaunches {
		if m.FromNs < w.ToNs && m.ToNs > w.FromNs {
			list = append(
				list,
				sampling.SamplingGap{Window: query.Window{FromNs: max(m.FromNs, w.FromNs), ToNs: min(m.ToNs, w.ToNs)}},
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
			left, right = min(left, sampling.MaxNeighborRatio*right), min(right, sampling.MaxNeighborRatio*left)
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

// countWorkCalls counts the work calls and the allocator events in each gap and its neighboring
// times.
func (t *Timeline) countWorkCalls(list []sampling.SamplingGap) {
	var bounds []int64
	for i := range list {
		b := &list[i]
		bounds = append(bounds, b.Left.FromNs, b.FromNs, b.ToNs, b.Right.ToNs)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	counts := make([]int64, len(bounds)+1) // calls between the previous bound and each bound
	var start []int64
	var kind, name format.Strings
	for _, spans := range [][]Span{t.Memory, t.Calls, t.Allocations} {
		for _, s := range spans {
			start = s.Group.Int64("start_ns", start)
			kind, name = s.Group.StringsInto("kind", kind), s.Group.StringsInto("name", name)
			for i, ns := range start {
				if sampling.IsWork(kind.At(i), name.At(i)) {
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
		b.WorkCalls, b.NeighborWork = in(b.Window), in(b.Left)+in(b.Right)
	}
}

// LaunchWeights returns the weights of launches in a window. It returns nil if all launches were
// recorded. Launches in a gap are assumed to be like those just before and after it.
func (t *Timeline) LaunchWeights(w query.Window) *sampling.LaunchWeights {
	if known, ok := t.weights[w]; ok {
		return known
	}
	weights := sampling.NewLaunchWeights(t.findCountedGaps(w))
	if t.weights == nil {
		t.weights = make(map[query.Window]*sampling.LaunchWeights)
	}
	t.weights[w] = weights
	return weights
}

func (t *Timeline) findCountedGaps(w query.Window) []sampling.SamplingGap {
	list := t.findSamplingGaps(w)
	if len(list) > 0 {
		t.countWorkCalls(list)
	}
	return list
}
