package analyze

import (
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// blindNs is for how much of a time launches were not recorded.
func (t *Timeline) blindNs(fromNs, toNs int64) int64 {
	return sampling.LengthIn(t.facts.sampling.NoLaunches, query.Window{FromNs: fromNs, ToNs: toNs})
}

func (t *Timeline) launchSampling() sampling.Coverage {
	s, w := &t.facts.sampling, t.Recording()
	l := sampling.Coverage{Sampled: len(s.NoLaunches)+len(s.NoStacks) > 0, OfNs: w.DurNs(), MaxPct: s.MaxOverheadPct, OverheadPct: s.SawPct}
	l.LaunchesNs, l.StacksNs = l.OfNs-sampling.LengthIn(s.NoLaunches, w), l.OfNs-sampling.LengthIn(s.NoStacks, w)
	return l
}

// samplingColumns are part of the quality of recordings in which launches were sampled.
var samplingColumns = []Column{
	{"launches_recorded_ns", "", UnitNs, "time of the recording in which launches of kernels were recorded; in this and the three below absent, unless --max-overhead made the recorder leave some out. Launches of graphs and all other calls are always recorded"},
	{"launch_stacks_recorded_ns", "", UnitNs, "time in which stacks of these launches were recorded too"},
	{"max_overhead_pct", "", UnitPercent, "the limit: share of its time that probes may cost the busiest thread"},
	{"overhead_seen_pct", "", UnitPercent, "most that they cost by the recorder's measurement, at a switch"},
}

// estimatedLaunches and estimatedCalls are columns and totals of recordings in which launches were sampled.
var (
	estimatedLaunches = Column{"estimated_launches", "~LAUNCHES", UnitCount, "estimate, only where --max-overhead left some out: launches if in the times without there were as many for every other call as just before and after (where there are fewer than 30 other calls: as many a second)"}
	estimatedCalls    = Column{"estimated_calls", "~CALLS", UnitCount, "estimate: calls with the launches that --max-overhead left out, if in the times without there were as many for every other call as just before and after (where there are fewer than 30 other calls: as many a second)"}
)

// estimateOf is an estimate as a total.
func estimateOf(c Column, title string, thousandths int64) Fact {
	c.Title = title
	return Fact{c, sampling.Whole(thousandths)}
}

func launchSamplingFacts(l *sampling.Coverage) []Fact {
	if !l.Sampled {
		return nil
	}
	return fill(samplingColumns, l.LaunchesNs, l.StacksNs, l.MaxPct, l.OverheadPct)
}

// blinds are the times of a window without launches.
func (t *Timeline) blinds(w query.Window) (list []sampling.Gap) {
	for _, m := range t.facts.sampling.NoLaunches {
		if m.FromNs < w.ToNs && m.ToNs > w.FromNs {
			list = append(list, sampling.Gap{Window: query.Window{FromNs: max(m.FromNs, w.FromNs), ToNs: min(m.ToNs, w.ToNs)}})
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
			left, right = min(left, sampling.BesideRatio*right), min(right, sampling.BesideRatio*left)
		}
		b.Left, b.Right = query.Window{FromNs: b.FromNs - left, ToNs: b.FromNs}, query.Window{FromNs: b.ToNs, ToNs: b.ToNs + right}
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
	for _, spans := range [][]span{t.memory, t.calls, t.allocations} {
		for _, s := range spans {
			start, kind, name = s.group.Int64("start_ns", start), s.group.StringsInto("kind", kind), s.group.StringsInto("name", name)
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
		b.Others, b.LikeOther = in(b.Window), in(b.Left)+in(b.Right)
	}
}

// sampling.Weights returns the weights of a window, nil if all launches in it are recorded. Launches of a time without are taken to be
// like those just before and after it.
func (t *Timeline) launchWeights(w query.Window) *sampling.Weights {
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

// moveLast gives the last column of a table another place; its rows are in order by then.
func (t *Table) moveLast(c Column, to int) {
	t.Columns = slices.Insert(slices.Clone(t.Columns), to, c)
	for i := range t.Rows {
		cells := t.Rows[i].Cells
		last := len(cells) - 1
		t.Rows[i].Cells = slices.Insert(cells[:last:last], to, cells[last])
	}
}
