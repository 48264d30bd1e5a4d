package sampling

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A recorder that was told to cost little (--max-overhead) records launches of kernels, or their
// stacks, for part of the time only, and says when. Reports count what is there and estimate the
// rest; what they cannot see they do not judge.

// Switches is when launches were not recorded, and when their stacks were not, in order and apart from each other.
type Switches struct {
	switches                    []samplingSwitch
	NoLaunches, NoStacks        []query.Window // the first ns without, the first ns with
	MaxOverheadPct, MeasuredPct float64
}

type samplingSwitch struct {
	atNs int64
	format.Sampling
}

// Add reads the note of a switch.
func (s *Switches) Add(r *format.Row) {
	n := samplingSwitch{atNs: r.StartNs}
	if json.Unmarshal([]byte(r.Message), &n.Sampling) == nil && n.Class == format.SampledLaunch {
		s.switches = append(s.switches, n)
		s.MaxOverheadPct, s.MeasuredPct = n.MaxOverheadPct, max(s.MeasuredPct, n.OverheadPct)
	}
}

// Finish makes times of the switches.
func (s *Switches) Finish() {
	slices.SortStableFunc(s.switches, func(a, b samplingSwitch) int { return cmp.Compare(a.atNs, b.atNs) })
	for i := range s.switches {
		n := &s.switches[i]
		times := &s.NoLaunches
		if n.What == format.SampledStacks {
			times = &s.NoStacks
		} else if n.What != format.SampledCalls {
			continue // of a later version
		}
		last := len(*times) - 1
		away := last >= 0 && (*times)[last].ToNs == math.MaxInt64
		switch {
		case !n.Recorded && !away:
			*times = append(*times, query.Window{FromNs: n.atNs, ToNs: math.MaxInt64})
		case n.Recorded && away:
			(*times)[last].ToNs = n.atNs
		}
	}
	s.switches = nil
}

// LengthIn is how much of a window the times cover.
func LengthIn(times []query.Window, w query.Window) (ns int64) {
	first := sort.Search(len(times), func(i int) bool { return times[i].ToNs > w.FromNs })
	for _, t := range times[first:] {
		if t.FromNs >= w.ToNs {
			break
		}
		ns += min(t.ToNs, w.ToNs) - max(t.FromNs, w.FromNs)
	}
	return ns
}

// Coverage is of how much of the recording launches, and stacks of launches, are recorded.
type Coverage struct {
	Sampled              bool
	LaunchesNs, StacksNs int64
	OfNs                 int64
	MaxPct, OverheadPct  float64
}

// Text is it in words, "" if everything was recorded.
func (l *Coverage) Text() string {
	switch {
	case !l.Sampled:
		return ""
	case l.LaunchesNs < l.OfNs:
		return fmt.Sprintf(
			"launches recorded %.1f of %.1f s (--max-overhead)",
			float64(l.LaunchesNs)/1e9,
			float64(l.OfNs)/1e9,
		)
	}
	return fmt.Sprintf("stacks of launches recorded %.1f of %.1f s "+
		"(--max-overhead)", float64(l.StacksNs)/1e9, float64(l.OfNs)/1e9)
}

// Note says what it means, "" if everything was recorded.
func (l *Coverage) Note() string {
	switch {
	case !l.Sampled:
		return ""
	case l.LaunchesNs < l.OfNs:
		return l.Text() + ": counts of kernel launches are of that time, those marked ~ are estimates for all of " +
			"it; launches of graphs and all other calls are complete"
	}
	return l.Text() + ": all launches are there, some without a stack"
}

// Thousandth is the unit of weights: sums of whole numbers do not depend on their order.
const Thousandth = 1000

// mostWeight bounds the weight of a launch: what a damaged file claims stays in the range of numbers.
const mostWeight = 1e6 * Thousandth

// Weights say for how many launches one of a moment stands, itself and those that were not recorded.
type Weights struct {
	fromNs  []int64
	weights []int64 // thousandths, from fromNs until the next
}

// Gap is a time without launches, and the times beside it whose launches are taken to be like those that it had.
type Gap struct {
	query.Window
	Left, Right           query.Window
	Others, NeighborCalls int64 // other calls in it, and in left and right
}

// NeighborRatio bounds how much longer the time on one side of a blind one is than that on the other:
// what a program did long ago, such as loading its data, says little.
const NeighborRatio = 2

// minNeighborCalls is how many other calls there must be beside a blind time for these to be a measure.
const minNeighborCalls = 30

// more is for how many launches of a blind time one beside it stands, in thousandths: as many as
// there were other calls in it for one beside it, since a program that records less runs faster;
// with few other calls, as much as it is longer.
func (b *Gap) more() int64 {
	inside, beside := float64(b.DurNs()), float64(b.Left.DurNs()+b.Right.DurNs())
	if b.NeighborCalls >= minNeighborCalls {
		inside, beside = float64(b.Others), float64(b.NeighborCalls)
	}
	if beside == 0 {
		return 0
	}
	return units.RoundInt(min(mostWeight, Thousandth*inside/beside))
}

func NewLaunchWeights(list []Gap) *Weights {
	if len(list) == 0 {
		return nil
	}
	type edge struct {
		atNs   int64
		weight int64
	}
	edges := []edge{{math.MinInt64, Thousandth}}
	for i := range list {
		b, more := &list[i], list[i].more()
		for _, side := range []query.Window{b.Left, b.Right} {
			edges = append(edges, edge{side.FromNs, more}, edge{side.ToNs, -more})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.atNs, b.atNs) })
	weights := new(Weights)
	sum := int64(0)
	for _, e := range edges {
		sum += e.weight
		weights.fromNs, weights.weights = append(weights.fromNs, e.atNs), append(weights.weights, sum)
	}
	return weights
}

// At is the weight of a launch of a moment, in thousandths.
func (w *Weights) At(ns int64) int64 {
	if w == nil {
		return Thousandth
	}
	return w.weights[sort.Search(len(w.fromNs), func(i int) bool { return w.fromNs[i] > ns })-1]
}

// Whole makes a number of launches of a sum of weights.
func Whole(thousandths int64) int64 { return (thousandths + Thousandth/2) / Thousandth }
