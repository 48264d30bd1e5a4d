package analyze

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/format"
)

// A recorder that was told to cost little (--max-overhead) records launches of kernels, or their stacks, for part of the time only,
// and says when. Reports count what is there and estimate the rest; what they cannot see they do not judge.

// sampling is when launches were not recorded, and when their stacks were not, in order and apart from each other.
type sampling struct {
	switches               []samplingSwitch
	noLaunches, noStacks   []Window // the first ns without, the first ns with
	maxOverheadPct, sawPct float64
}

type samplingSwitch struct {
	atNs int64
	format.Sampling
}

// add reads the note of a switch.
func (s *sampling) add(r *format.Row) {
	n := samplingSwitch{atNs: r.StartNs}
	if json.Unmarshal([]byte(r.Message), &n.Sampling) == nil && n.Class == format.SampledLaunch {
		s.switches = append(s.switches, n)
		s.maxOverheadPct, s.sawPct = n.MaxOverheadPct, max(s.sawPct, n.OverheadPct)
	}
}

// finish makes times of the switches.
func (s *sampling) finish() {
	slices.SortStableFunc(s.switches, func(a, b samplingSwitch) int { return cmp.Compare(a.atNs, b.atNs) })
	for i := range s.switches {
		n := &s.switches[i]
		times := &s.noLaunches
		if n.What == format.SampledStacks {
			times = &s.noStacks
		} else if n.What != format.SampledCalls {
			continue // of a later version
		}
		last := len(*times) - 1
		away := last >= 0 && (*times)[last].ToNs == math.MaxInt64
		switch {
		case !n.Recorded && !away:
			*times = append(*times, Window{n.atNs, math.MaxInt64})
		case n.Recorded && away:
			(*times)[last].ToNs = n.atNs
		}
	}
	s.switches = nil
}

// lengthIn is how much of a window the times cover.
func lengthIn(times []Window, w Window) (ns int64) {
	first := sort.Search(len(times), func(i int) bool { return times[i].ToNs > w.FromNs })
	for _, t := range times[first:] {
		if t.FromNs >= w.ToNs {
			break
		}
		ns += min(t.ToNs, w.ToNs) - max(t.FromNs, w.FromNs)
	}
	return ns
}

// blindNs is for how much of a time launches were not recorded.
func (t *Timeline) blindNs(fromNs, toNs int64) int64 {
	return lengthIn(t.facts.sampling.noLaunches, Window{fromNs, toNs})
}

// launchSampling is of how much of the recording launches, and stacks of launches, are recorded.
type launchSampling struct {
	sampled              bool
	launchesNs, stacksNs int64
	ofNs                 int64
	maxPct, overheadPct  float64
}

func (t *Timeline) launchSampling() launchSampling {
	s, w := &t.facts.sampling, t.Recording()
	l := launchSampling{sampled: len(s.noLaunches)+len(s.noStacks) > 0, ofNs: w.DurNs(), maxPct: s.maxOverheadPct, overheadPct: s.sawPct}
	l.launchesNs, l.stacksNs = l.ofNs-lengthIn(s.noLaunches, w), l.ofNs-lengthIn(s.noStacks, w)
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
	estimatedLaunches = Column{"estimated_launches", "~LAUNCHES", UnitCount, "estimate: launches if those of times without are like those just before and after; only where --max-overhead left some out. Too low by as much as recording them slowed the program down"}
	estimatedCalls    = Column{"estimated_calls", "~CALLS", UnitCount, "estimate: calls with the launches that --max-overhead left out, if those are like the ones just before and after. Too low by as much as recording them slowed the program down"}
)

// estimateOf is an estimate as a total.
func estimateOf(c Column, title string, thousandths int64) Fact {
	c.Title = title
	return Fact{c, whole(thousandths)}
}

func (l *launchSampling) facts() []Fact {
	if !l.sampled {
		return nil
	}
	return fill(samplingColumns, l.launchesNs, l.stacksNs, l.maxPct, l.overheadPct)
}

// text is it in words, "" if everything was recorded.
func (l *launchSampling) text() string {
	switch {
	case !l.sampled:
		return ""
	case l.launchesNs < l.ofNs:
		return fmt.Sprintf("launches recorded %.1f of %.1f s (--max-overhead)", float64(l.launchesNs)/1e9, float64(l.ofNs)/1e9)
	}
	return fmt.Sprintf("stacks of launches recorded %.1f of %.1f s (--max-overhead)", float64(l.stacksNs)/1e9, float64(l.ofNs)/1e9)
}

// note says what it means, "" if everything was recorded.
func (l *launchSampling) note() string {
	switch {
	case !l.sampled:
		return ""
	case l.launchesNs < l.ofNs:
		return l.text() + ": counts of kernel launches are of that time, those marked ~ are estimates for all of it; launches of graphs and all other calls are complete"
	}
	return l.text() + ": all launches are there, some without a stack"
}

// thousandth is the unit of weights: sums of whole numbers do not depend on their order.
const thousandth = 1000

// mostWeight bounds the weight of a launch: what a damaged file claims stays in the range of numbers.
const mostWeight = 1e6 * thousandth

// launchWeights say for how many launches one of a moment stands, itself and those that were not recorded.
type launchWeights struct {
	fromNs  []int64
	weights []int64 // thousandths, from fromNs until the next
}

// launchWeights returns the weights of a window, nil if all launches in it are recorded. Launches of a time without are taken to be
// like those just before and after it, as far to both sides as it is long.
func (t *Timeline) launchWeights(w Window) *launchWeights {
	times := t.facts.sampling.noLaunches
	var inside []Window
	for _, m := range times {
		if m.FromNs < w.ToNs && m.ToNs > w.FromNs {
			inside = append(inside, Window{max(m.FromNs, w.FromNs), min(m.ToNs, w.ToNs)})
		}
	}
	if len(inside) == 0 {
		return nil
	}
	type edge struct {
		atNs   int64
		weight int64
	}
	edges := []edge{{math.MinInt64, thousandth}}
	for i, m := range inside {
		left, right := Window{w.FromNs, m.FromNs}, Window{m.ToNs, w.ToNs}
		if i > 0 {
			left.FromNs = inside[i-1].ToNs
		}
		if i+1 < len(inside) {
			right.ToNs = inside[i+1].FromNs
		}
		left.FromNs = max(left.FromNs, m.FromNs-m.DurNs())
		right.ToNs = min(right.ToNs, endOf(m.ToNs, m.DurNs()))
		like := left.DurNs() + right.DurNs()
		if like == 0 {
			continue
		}
		more := roundInt(min(mostWeight, thousandth*float64(m.DurNs())/float64(like)))
		for _, side := range []Window{left, right} {
			edges = append(edges, edge{side.FromNs, more}, edge{side.ToNs, -more})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.atNs, b.atNs) })
	weights := new(launchWeights)
	sum := int64(0)
	for _, e := range edges {
		sum += e.weight
		weights.fromNs, weights.weights = append(weights.fromNs, e.atNs), append(weights.weights, sum)
	}
	return weights
}

// at is the weight of a launch of a moment, in thousandths.
func (w *launchWeights) at(ns int64) int64 {
	if w == nil {
		return thousandth
	}
	return w.weights[sort.Search(len(w.fromNs), func(i int) bool { return w.fromNs[i] > ns })-1]
}

// whole makes a number of launches of a sum of weights.
func whole(thousandths int64) int64 { return (thousandths + thousandth/2) / thousandth }

// moveLast gives the last column of a table another place; its rows are in order by then.
func (t *Table) moveLast(c Column, to int) {
	t.Columns = slices.Insert(slices.Clone(t.Columns), to, c)
	for i := range t.Rows {
		cells := t.Rows[i].Cells
		last := len(cells) - 1
		t.Rows[i].Cells = slices.Insert(cells[:last:last], to, cells[last])
	}
}
