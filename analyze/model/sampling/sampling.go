package sampling

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// With --max-overhead the recorder turns kernel launches, or their stacks, off for part of the
// time, and records when. Reports count the recorded launches and estimate the rest. They give no
// verdict on times without launches. It does the same with the events of caching allocators. Then readings of their
// blocks show what the events missed.

// SamplingSwitches lists the times in which launches, their stacks or allocator events were not recorded. Windows
// are in order of time and do not overlap.
type SamplingSwitches struct {
	switches []samplingSwitch
	// windows in Unix ns; ToNs is the first ns with data again
	NoLaunches, NoStacks []query.Window
	// NoAllocator are the times without the events of caching allocators.
	NoAllocator                 []query.Window
	MaxOverheadPct, MeasuredPct float64 // the overhead limit and the highest measured overhead
}

type samplingSwitch struct {
	atNs int64
	format.Sampling
}

// AddNote reads a note that says that recording was switched on or off.
func (s *SamplingSwitches) AddNote(r *format.Row) {
	n := samplingSwitch{atNs: r.StartNs}
	if json.Unmarshal([]byte(r.Message), &n.Sampling) == nil && n.timesIn(s) != nil {
		s.switches = append(s.switches, n)
		s.MaxOverheadPct, s.MeasuredPct = n.MaxOverheadPct, max(s.MeasuredPct, n.OverheadPct)
	}
}

// timesIn returns the times to which the switch belongs, or nil for a class or part that a later version of gpurec wrote.
func (n *samplingSwitch) timesIn(s *SamplingSwitches) *[]query.Window {
	switch [2]string{n.Class, n.What} {
	case [2]string{format.SampledLaunch, format.SampledCalls}:
		return &s.NoLaunches
	case [2]string{format.SampledLaunch, format.SampledStacks}:
		return &s.NoStacks
	case [2]string{format.SampledAllocator, format.SampledCalls}:
		return &s.NoAllocator
	}
	return nil
}

// ComputeWindows computes NoLaunches, NoStacks and NoAllocator. Call it after the last AddNote.
func (s *SamplingSwitches) ComputeWindows() {
	s.NoLaunches, s.NoStacks, s.NoAllocator = nil, nil, nil
	slices.SortStableFunc(s.switches, func(a, b samplingSwitch) int { return cmp.Compare(a.atNs, b.atNs) })
	for i := range s.switches {
		n := &s.switches[i]
		times := n.timesIn(s)
		last := len(*times) - 1
		away := last >= 0 && (*times)[last].ToNs == math.MaxInt64
		switch {
		case !n.Recorded && !away:
			*times = append(*times, query.Window{FromNs: n.atNs, ToNs: math.MaxInt64})
		case n.Recorded && away:
			(*times)[last].ToNs = n.atNs
		}
	}
}

// OverlapNs returns how much of the window w the times cover, in ns.
func OverlapNs(times []query.Window, w query.Window) (ns int64) {
	first := sort.Search(len(times), func(i int) bool { return times[i].ToNs > w.FromNs })
	for _, t := range times[first:] {
		if t.FromNs >= w.ToNs {
			break
		}
		ns += min(t.ToNs, w.ToNs) - max(t.FromNs, w.FromNs)
	}
	return ns
}

// SamplingCoverage is the time for which launches, and their stacks, were recorded.
type SamplingCoverage struct {
	Sampled              bool
	LaunchesNs, StacksNs int64   // time in which launches, and their stacks, were recorded, ns
	OfNs                 int64   // length of the whole window, ns
	MaxPct, OverheadPct  float64 // limit and measured overhead of the busiest thread
}

// FormatCoverage describes the coverage in words. It returns "" if everything was recorded.
func (c *SamplingCoverage) FormatCoverage() string {
	switch {
	case !c.Sampled:
		return ""
	case c.LaunchesNs < c.OfNs:
		return fmt.Sprintf(
			"launches recorded %.1f of %.1f s (--max-overhead)",
			float64(c.LaunchesNs)/1e9,
			float64(c.OfNs)/1e9,
		)
	}
	return fmt.Sprintf("stacks of launches recorded %.1f of %.1f s "+
		"(--max-overhead)", float64(c.StacksNs)/1e9, float64(c.OfNs)/1e9)
}

// FormatNote explains the consequences for a report. It returns "" if everything was recorded.
func (c *SamplingCoverage) FormatNote() string {
	switch {
	case !c.Sampled:
		return ""
	case c.LaunchesNs < c.OfNs:
		return c.FormatCoverage() + ". Counts of kernel launches cover that time only. Counts marked ~ are estimates " +
			"for the whole window. Graph launches and all other calls are complete"
	}
	return c.FormatCoverage() + ". All launches are recorded, some without a stack"
}

// LaunchWeightUnit is the weight of a single launch. Weights are integers, so that sums do not depend on the
// order of launches.
const LaunchWeightUnit = 1000

// maxLaunchWeight bounds the weight of a launch, so that sums do not overflow for damaged files.
const maxLaunchWeight = 1e6 * LaunchWeightUnit

// LaunchWeights give, for each point in time, how many launches a recorded launch represents:
// itself and a share of those that were not recorded.
type LaunchWeights struct {
	fromNs  []int64
	weights []int64 // launch weights in thousandths, each valid from fromNs to the next entry
}

// SamplingGap is a time without recorded launches, and the neighboring times whose launches serve
// as its estimate.
type SamplingGap struct {
	query.Window
	Left, Right             query.Window
	WorkCalls, NeighborWork int64 // calls that IsWork selects, in the gap and in Left and Right
}

// neighborNs returns the length of the neighboring times, ns.
func (g *SamplingGap) neighborNs() int64 { return g.Left.DurNs() + g.Right.DurNs() }

// MaxNeighborRatio bounds how much longer one neighboring time of a gap may be than the other.
// Launches long before the gap, such as during data loading, say little about it.
const MaxNeighborRatio = 2

// minNeighborWork is the number of work calls in the neighboring times of a gap that an estimate by
// these calls needs. minWork is their number in the neighboring times of all gaps. It is smaller, because
// without them an estimate is too low by as much as probes slow a program down.
const minNeighborWork, minWork = 30, 10

// IsWork reports whether a recorded call shows how much work a program did in a sampling gap: memory
// calls, copies, waits, events, graph launches and collectives. Other calls are made in bursts when a
// program loads modules or builds graphs, and probes of frequent getters are removed meanwhile.
func IsWork(kind, function string) bool {
	switch kind {
	case format.KindLaunch:
		return catalog.BaseFunctionName(function) == "cuGraphLaunch"
	case format.KindAPI:
		name := catalog.BaseFunctionName(function)
		return strings.HasPrefix(name, "cuEventRecord") || name == "cuStreamWaitEvent"
	}
	return true
}

// extraLaunchWeight returns how many unrecorded launches of the gap each launch in the neighboring
// times represents, in thousandths. It scales by the number of work calls, because a program with
// less recording runs faster. With few work calls it scales by time and speedup.
func (g *SamplingGap) extraLaunchWeight(speedup float64) int64 {
	inside, outside := speedup*float64(g.DurNs()), float64(g.neighborNs())
	if g.NeighborWork >= minNeighborWork {
		inside, outside = float64(g.WorkCalls), float64(g.NeighborWork)
	}
	if outside == 0 {
		return 0
	}
	return units.RoundInt(min(maxLaunchWeight, LaunchWeightUnit*inside/outside))
}

// computeSpeedup returns how many times as fast as in their neighboring times a program does its work
// in the gaps. It returns 1 if it makes too few work calls. A time between two gaps counts for both.
func computeSpeedup(list []SamplingGap) float64 {
	var inside, outside, insideNs, outsideNs float64
	for i := range list {
		b := &list[i]
		inside, outside = inside+float64(b.WorkCalls), outside+float64(b.NeighborWork)
		insideNs, outsideNs = insideNs+float64(b.DurNs()), outsideNs+float64(b.neighborNs())
	}
	if min(inside, outside) < minWork {
		return 1
	}
	return inside / insideNs * outsideNs / outside
}

// NewLaunchWeights returns the weights of launches for the gaps in list. It returns nil, which
// weighs every launch as 1, if there are none.
func NewLaunchWeights(list []SamplingGap) *LaunchWeights {
	if len(list) == 0 {
		return nil
	}
	type edge struct {
		atNs   int64
		weight int64
	}
	edges := []edge{{math.MinInt64, LaunchWeightUnit}}
	speedup := computeSpeedup(list)
	for i := range list {
		b, more := &list[i], list[i].extraLaunchWeight(speedup)
		for _, side := range []query.Window{b.Left, b.Right} {
			edges = append(edges, edge{side.FromNs, more}, edge{side.ToNs, -more})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.atNs, b.atNs) })
	weights := new(LaunchWeights)
	sum := int64(0)
	for _, e := range edges {
		sum += e.weight
		weights.fromNs, weights.weights = append(weights.fromNs, e.atNs), append(weights.weights, sum)
	}
	return weights
}

// WeightAt returns the weight of a launch at ns (Unix ns), in thousandths. A nil *Weights gives
// 1000.
func (w *LaunchWeights) WeightAt(ns int64) int64 {
	if w == nil {
		return LaunchWeightUnit
	}
	return w.weights[sort.Search(len(w.fromNs), func(i int) bool { return w.fromNs[i] > ns })-1]
}

// RoundToLaunches converts a sum of weights in thousandths to a number of launches, rounded.
func RoundToLaunches(thousandths int64) int64 {
	return (thousandths + LaunchWeightUnit/2) / LaunchWeightUnit
}
