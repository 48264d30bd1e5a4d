package change

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

// Counts counts the launches of each process in equal parts of a window. It is not safe for concurrent use.
type Counts struct {
	window query.Window
	partNs int64
	byPid  map[int32][]float64
	pid    int32 // of the last launch
	parts  []float64
	part   int
	fromNs int64 // of the part of the last launch
}

// NewCounts returns counts in a number of parts of a window.
func NewCounts(w query.Window, parts int) *Counts {
	partNs := max(1, w.DurNs()/int64(parts)+1)
	return &Counts{window: w, partNs: partNs, byPid: make(map[int32][]float64), fromNs: math.MaxInt64}
}

// Add counts a launch in the window. It is fast if launches come nearly in order of time.
func (c *Counts) Add(pid int32, atNs int64) {
	if pid != c.pid || c.parts == nil {
		c.pid, c.parts = pid, c.byPid[pid]
		if c.parts == nil {
			c.parts = make([]float64, c.window.DurNs()/c.partNs+1)
			c.byPid[pid] = c.parts
		}
	}
	if d := atNs - c.fromNs; d < 0 || d >= c.partNs {
		c.part = int(max(0, min(atNs-c.window.FromNs, c.window.DurNs())) / c.partNs)
		c.fromNs = c.window.FromNs + int64(c.part)*c.partNs
	}
	c.parts[c.part]++
}

// AddLaunches adds the launches per second of each process. Parts in which less than half of the time was
// recorded are left out.
func (s *Search) AddLaunches(c *Counts) {
	d, order := describe(MetricLaunchRate)
	unrecorded := slices.Clone(s.t.Facts.Sampling.NoLaunches)
	for _, l := range s.t.Facts.Lost {
		unrecorded = append(unrecorded, query.Window{FromNs: l.StartNs, ToNs: l.StartNs + l.DurNs})
	}
	slices.SortFunc(unrecorded, func(a, b query.Window) int { return cmp.Compare(a.FromNs, b.FromNs) })
	for _, pid := range slices.Sorted(maps.Keys(c.byPid)) {
		subject := Subject{Device: -1, Pid: pid}
		span, _ := s.spans.of(subject)
		// The first and the last part are not whole.
		first, last := c.partAt(span.FromNs)+1, c.partAt(span.ToNs)-1
		if last <= first {
			continue
		}
		size := steadySize(c.byPid[pid][first : last+1])
		values, isEstimated := c.rates(c.byPid[pid], first, last, size, unrecorded)
		if added := s.addSums(&d, order, subject, values); added != nil {
			added.IsEstimated = isEstimated
		}
	}
}

// partAt returns the index of the part at a time. Times outside of the window have the first or the last part.
func (c *Counts) partAt(ns int64) int {
	return int(max(0, min(ns-c.window.FromNs, c.window.DurNs())) / c.partNs)
}

// rates returns launches per second, in runs of `size` parts.
func (c *Counts) rates(
	parts []float64, first, last, size int, unrecorded []query.Window,
) (values changepoint.Series, isEstimated bool) {
	for from := first; from+size-1 <= last; from += size {
		w := query.Window{FromNs: c.window.FromNs + int64(from)*c.partNs}
		w.ToNs = w.FromNs + int64(size)*c.partNs
		recordedNs := w.DurNs()
		if len(unrecorded) > 0 {
			recordedNs -= sampling.OverlapNs(unrecorded, w)
		}
		isEstimated = isEstimated || recordedNs < w.DurNs()
		if recordedNs*2 < w.DurNs() {
			continue
		}
		sum := 0.0
		for _, n := range parts[from : from+size] {
			sum += n
		}
		values.AtNs = append(values.AtNs, w.FromNs+w.DurNs()/2)
		values.Values = append(values.Values, sum/(float64(recordedNs)/1e9))
	}
	return values, isEstimated
}

// steadySize returns the number of parts, a power of two, that must be added so that the sums differ little
// from one to the next. A step that is longer than a part makes single parts differ.
func steadySize(parts []float64) int {
	const (
		fewest     = 32 // sums
		minMedian  = 20 // launches in a sum
		usualShare = 0.05
	)
	sums := slices.Clone(parts)
	size := 1
	for ; len(sums)/2 >= fewest; size *= 2 {
		sorted := slices.Sorted(slices.Values(sums))
		median := stats.Median(sorted)
		differences := make([]float64, 0, len(sums))
		for i := 1; i < len(sums); i++ {
			differences = append(differences, math.Abs(sums[i]-sums[i-1]))
		}
		slices.Sort(differences)
		if median >= minMedian && stats.Median(differences) <= usualShare*median {
			break
		}
		half := sums[:len(sums)/2]
		for i := range half {
			half[i] = sums[2*i] + sums[2*i+1]
		}
		sums = half
	}
	return size
}
