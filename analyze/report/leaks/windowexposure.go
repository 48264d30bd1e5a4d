package leaks

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

// maxTimeSlices is the largest number of parts of a recording for which sightings are counted.
const maxTimeSlices = 128

// recordedWindows are the times in which allocator events were recorded.
type recordedWindows struct {
	query.Window
	list   []query.Window // in order of time
	minAge int64          // age that a block must reach in its window, ns
	// exposure is the time of each slice in which an allocated block can reach minAge in its window, ns.
	exposure [maxTimeSlices]int64
}

// newRecordedWindows returns the windows between gaps.
func newRecordedWindows(gaps []query.Window, all query.Window) (r recordedWindows) {
	r.Window = all
	fromNs := all.FromNs
	for _, g := range append(slices.Clone(gaps), query.Window{FromNs: all.ToNs, ToNs: all.ToNs}) {
		if w := (query.Window{FromNs: max(fromNs, all.FromNs), ToNs: min(g.FromNs, all.ToNs)}); w.ToNs > w.FromNs {
			r.list = append(r.list, w)
		}
		fromNs = g.ToNs
	}
	lengths := make([]int64, len(r.list))
	for i, w := range r.list {
		lengths[i] = w.DurNs()
	}
	if slices.Sort(lengths); len(lengths) > 0 {
		// The windows in which the program allocates much are short.
		r.minAge = min(stats.Median(lengths)/4, lengths[len(lengths)/10]/2)
	}
	for _, w := range r.list {
		r.exposure[r.sliceOf(w.FromNs)] += max(0, w.DurNs()-r.minAge)
	}
	return r
}

// sliceOf returns the number of the slice that has a time, Unix ns.
func (r *recordedWindows) sliceOf(atNs int64) int {
	return int(float64(atNs-r.FromNs) / float64(max(1, r.DurNs())) * (maxTimeSlices - 1))
}

// recordedPct returns the part of the time in windows, in percent.
func (r *recordedWindows) recordedPct() float64 {
	return 100 * float64(r.recordedNs(r.FromNs, r.ToNs)) / float64(max(1, r.DurNs()))
}

// sliceNs returns the length of a slice, ns.
func (r *recordedWindows) sliceNs() float64 { return float64(r.DurNs()) / (maxTimeSlices - 1) }

// windowOf returns the window in which a block was allocated, if the block can reach minAge in it.
func (r *recordedWindows) windowOf(allocNs int64) (w query.Window, ok bool) {
	i := sort.Search(len(r.list), func(i int) bool { return r.list[i].ToNs > allocNs })
	if i == len(r.list) || r.list[i].FromNs > allocNs || allocNs > r.list[i].ToNs-r.minAge {
		return w, false
	}
	return r.list[i], true
}

// The recorder ends a window when it has cost its share of the limit. So windows in a pause of a step are long, and those
// in which the program allocates are short: what windows show is not what the time in them suggests. The allocator's own
// counters have the number of all allocations. So the part of the allocations that windows saw, not of the time, is the
// part of a site's blocks that they saw.

// allocCounts counts the allocations of an allocator by slice of the time.
type allocCounts struct {
	all  [maxTimeSlices]int64 // with those that were not recorded
	seen [maxTimeSlices]int64 // recorded, at a time from which a block can reach minAge in its window
	// unrecorded is the number of allocations without an event. If it is 0, the counters were not read.
	unrecorded int64
}

// countAllocs counts the allocations of a change.
func (w *windowScan) countAllocs(n *allocCounts, c *caching.AllocatorChange) {
	if c.AtNs < w.window.FromNs {
		return
	}
	switch c.Op {
	case caching.OpBlockAllocated:
		n.all[w.recorded.sliceOf(c.AtNs)]++
		if in, ok := w.recorded.windowOf(c.AtNs); ok {
			n.seen[w.recorded.sliceOf(in.FromNs)]++
		}
	case caching.OpTotalsRead:
		n.all[w.recorded.sliceOf(c.AtNs)] += c.Own.UnseenAllocs
		n.unrecorded += c.Own.UnseenAllocs
	}
}

// exposure is the time for which windows saw what an allocator did, by slice: its part in the time of the slices is that
// of the recorded allocations in all.
type exposure struct {
	ns          [maxTimeSlices]float64
	totalNs     float64 // at least 1
	first, last int32   // slices that count
}

// exposureOf returns the exposure of an allocator in the slices from first to last.
func (w *windowScan) exposureOf(key caching.AllocatorKey, first, last int32) (e exposure) {
	e.first, e.last = first, last
	n, perAlloc := w.allocs[key], 0.0
	if n != nil && n.unrecorded > 0 {
		var all int64
		for k := first; k <= last; k++ {
			all += n.all[k]
		}
		perAlloc = w.recorded.sliceNs() * float64(last-first+1) / float64(max(1, all))
	}
	for k := first; k <= last; k++ {
		if e.ns[k] = float64(w.recorded.exposure[k]); perAlloc > 0 {
			e.ns[k] = float64(n.seen[k]) * perAlloc
		}
		e.totalNs += e.ns[k]
	}
	e.totalNs = max(1, e.totalNs)
	return e
}

// allocator returns the allocator of a class.
func (c sizeClass) allocator() caching.AllocatorKey {
	return caching.AllocatorKey{Pid: c.pid, Device: c.device}
}

// allocators returns the allocators of the sightings of a group.
func (s sightings) allocators() (keys []caching.AllocatorKey) {
	for class := range s {
		if key := class.allocator(); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b caching.AllocatorKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return keys
}

// rateIn returns the bytes per ns of exposure of sightings that live on, in slices from first to last, and the half width
// of its 95 % interval. kept are their bytes by slice. block is the mean size of a block. The number of
// blocks varies at least as much as in a Poisson process.
func (e *exposure) rateIn(kept *[maxTimeSlices]float64, first, last int32, block float64) (perNs, margin float64) {
	sum, totalNs, n, found := 0.0, 1.0, 0.0, 0.0
	for k := first; k <= last; k++ {
		sum += kept[k]
		totalNs += e.ns[k]
		if e.ns[k] > 0 {
			n++
		}
		if kept[k] > 0 {
			found++
		}
	}
	variance := 0.0
	for k := first; k <= last; k++ {
		off := kept[k] - sum/totalNs*e.ns[k]
		variance += off * off
	}
	blocks := sum / max(1, block)
	margin = (1.96*math.Sqrt(blocks+1) + 2) * block
	if found > 1 {
		margin = max(margin, marginQuantile(found)*math.Sqrt(variance*n/(n-1)))
	} else if found > 0 {
		margin = max(margin, unseenInNone*sum)
	}
	return sum / totalNs, margin / totalNs
}

// marginQuantile returns the number of standard errors in the half width of a 95 % interval, if the error is estimated from
// n values. It is close to, and not below, the quantile of Student's distribution.
func marginQuantile(n float64) float64 {
	free := max(1, n-1)
	return 1.96 + 2.6/free + 4.2/(free*free)
}

// coverageBins is the number of ages for which the coverage is measured: minAge, and its multiples by powers of two.
const coverageBins = 7

// coverageOf returns the part of the times at which the blocks of a slice reach certain ages that is in windows.
func (r *recordedWindows) coverageOf(slice int) (bins [coverageBins]float64) {
	n := 0.0
	for _, w := range r.list {
		if r.sliceOf(w.FromNs) != slice || w.DurNs() < r.minAge {
			continue
		}
		n++
		at := w.FromNs + (w.DurNs()-r.minAge)/2
		for i := range bins {
			from, to := at+r.minAge<<i, at+r.minAge<<(i+1)
			bins[i] += float64(r.recordedNs(from, to)) / float64(to-from)
		}
	}
	for i := range bins {
		bins[i] /= max(1, n)
	}
	return bins
}

// recordedNs returns how much of the time between two times is in windows, ns.
func (r *recordedWindows) recordedNs(fromNs, toNs int64) (ns int64) {
	i, _ := slices.BinarySearchFunc(
		r.list,
		fromNs,
		func(w query.Window, ns int64) int { return cmp.Compare(w.ToNs, ns) },
	)
	for ; i < len(r.list) && r.list[i].FromNs < toNs; i++ {
		ns += max(0, min(toNs, r.list[i].ToNs)-max(fromNs, r.list[i].FromNs))
	}
	return ns
}
