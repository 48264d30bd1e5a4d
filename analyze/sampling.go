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
	estimatedLaunches = Column{"estimated_launches", "~LAUNCHES", UnitCount, "estimate, only where --max-overhead left some out: launches if in the times without there were as many for every other call as just before and after (where there are fewer than 30 other calls: as many a second)"}
	estimatedCalls    = Column{"estimated_calls", "~CALLS", UnitCount, "estimate: calls with the launches that --max-overhead left out, if in the times without there were as many for every other call as just before and after (where there are fewer than 30 other calls: as many a second)"}
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

// blind is a time without launches, and the times beside it whose launches are taken to be like those that it had.
type blind struct {
	Window
	left, right       Window
	others, likeOther int64 // other calls in it, and in left and right
}

// besideRatio bounds how much longer the time on one side of a blind one is than that on the other: what a program did long ago, such
// as loading its data, says little.
const besideRatio = 2

// fewOthers is how many other calls there must be beside a blind time for these to be a measure.
const fewOthers = 30

// blinds are the times of a window without launches.
func (t *Timeline) blinds(w Window) (list []blind) {
	for _, m := range t.facts.sampling.noLaunches {
		if m.FromNs < w.ToNs && m.ToNs > w.FromNs {
			list = append(list, blind{Window: Window{max(m.FromNs, w.FromNs), min(m.ToNs, w.ToNs)}})
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
			left, right = min(left, besideRatio*right), min(right, besideRatio*left)
		}
		b.left, b.right = Window{b.FromNs - left, b.FromNs}, Window{b.ToNs, b.ToNs + right}
	}
	return list
}

// more is for how many launches of a blind time one beside it stands, in thousandths: as many as there were other calls in it for one
// beside it, since a program that records less runs faster; with few other calls, as much as it is longer.
func (b *blind) more() int64 {
	inside, beside := float64(b.DurNs()), float64(b.left.DurNs()+b.right.DurNs())
	if b.likeOther >= fewOthers {
		inside, beside = float64(b.others), float64(b.likeOther)
	}
	if beside == 0 {
		return 0
	}
	return roundInt(min(mostWeight, thousandth*inside/beside))
}

// countOthers counts calls that are no launches of kernels, and events of allocators, in blind times and beside them.
func (t *Timeline) countOthers(list []blind) {
	var bounds []int64
	for i := range list {
		b := &list[i]
		bounds = append(bounds, b.left.FromNs, b.FromNs, b.ToNs, b.right.ToNs)
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
				if kind.At(i) != format.KindLaunch || baseName(name.At(i)) == "cuGraphLaunch" {
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
	in := func(w Window) int64 { return before(w.ToNs) - before(w.FromNs) }
	for i := range list {
		b := &list[i]
		b.others, b.likeOther = in(b.Window), in(b.left)+in(b.right)
	}
}

// launchWeights returns the weights of a window, nil if all launches in it are recorded. Launches of a time without are taken to be
// like those just before and after it.
func (t *Timeline) launchWeights(w Window) *launchWeights {
	if known, ok := t.weights[w]; ok {
		return known
	}
	weights := newLaunchWeights(t.countedBlinds(w))
	if t.weights == nil {
		t.weights = make(map[Window]*launchWeights)
	}
	t.weights[w] = weights
	return weights
}

func (t *Timeline) countedBlinds(w Window) []blind {
	list := t.blinds(w)
	if len(list) > 0 {
		t.countOthers(list)
	}
	return list
}

func newLaunchWeights(list []blind) *launchWeights {
	if len(list) == 0 {
		return nil
	}
	type edge struct {
		atNs   int64
		weight int64
	}
	edges := []edge{{math.MinInt64, thousandth}}
	for i := range list {
		b, more := &list[i], list[i].more()
		for _, side := range []Window{b.left, b.right} {
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
