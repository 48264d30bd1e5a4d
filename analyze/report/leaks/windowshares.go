package leaks

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

// The growth of a size is shared among its sites by their sightings that live on. A block may be freed unseen, and its
// address given to a leaked block of the same size: it seems to live on. Two facts bound the part of such blocks:
//
//   - The balance: all sightings that seem to live on exceed the growth by them.
//   - The coverage: windows cover a part of each age of the sightings of a site. A site that frees its blocks at some age
//     shows as many ends, whatever becomes of the address later.
const (
	// minKeptSightings and minKeptSlices are the numbers of sightings that live on, and of parts of the time with such
	// sightings, below which a site has no verdict.
	minKeptSightings, minKeptSlices = 5, 3
	// unseenInNone is the mean of a count that is 0 with a probability of 5 %.
	unseenInNone = 3
	// maxMarginShare is the largest margin of a growth, as its part, with the verdict growing.
	maxMarginShare = 0.5
	// followNs is the time after the allocation of a sighting, ns, in which its end would become known.
	followNs = int64(2500 * time.Millisecond)
)

// growingSize is a class of sizes whose live bytes grow.
type growingSize struct {
	sizeClass
	members []sizeClass // the requested sizes
	stats.Trend
	checkpoints     int
	floors          []int64
	block           float64 // mean size of a block, bytes
	perNs, marginNs float64 // growth and its margin, bytes per ns
	level           float64 // bytes at the end
	fromNs, untilNs int64   // allocations of sightings that count, Unix ns
	sites           []siteGrowth
}

// siteGrowth is the part of a group in the growth of a size.
type siteGrowth struct {
	siteSightings
	group int
	// perNs is the growth and marginNs its margin, bytes per ns.
	perNs, marginNs float64
	hasStopped      bool // the sightings that live on are old
}

// siteSightings are the sightings of one group in some sizes.
type siteSightings struct {
	kept, ended             [maxTimeSlices]float64 // bytes by slice
	keptBlocks, endedBlocks int64
	covered                 [coverageBins]float64 // expected number of ends that windows show, if all are at this age
	// keptNs and endedNs are the bytes of sightings per ns of exposure.
	keptNs, endedNs float64
}

// add adds the sightings of a size in some slices.
func (d *siteSightings) add(r *recordedWindows, class sizeClass, list []sightingCount, first, last int32) {
	for _, n := range list {
		if n.slice < first || n.slice > last {
			continue
		}
		d.kept[n.slice] += float64(n.kept * class.bytes)
		d.ended[n.slice] += float64(n.ended * class.bytes)
		d.keptBlocks += n.kept
		d.endedBlocks += n.ended
		for bin, share := range r.coverageOf(int(n.slice)) {
			d.covered[bin] += share * float64(n.kept+n.ended)
		}
	}
}

// setRates sets the bytes per ns of exposure.
func (d *siteSightings) setRates(exposure float64) {
	for k := range d.kept {
		d.keptNs += d.kept[k] / exposure
		d.endedNs += d.ended[k] / exposure
	}
}

// hiddenShare returns a bound of the part of the sightings that ended unseen and seem to live on.
func (d *siteSightings) hiddenShare() float64 {
	ended := float64(d.endedBlocks)
	return min(1, (ended+2*math.Sqrt(ended)+1)/max(1, slices.Min(d.covered[:])))
}

// keptSince returns the bytes of the sightings that live on from a slice on.
func (d *siteSightings) keptSince(slice int32) (bytes float64) {
	for _, k := range d.kept[slice:] {
		bytes += k
	}
	return bytes
}

// keptSlices returns the number of slices with sightings that live on.
func (d *siteSightings) keptSlices() (n int) {
	for _, k := range d.kept {
		if k > 0 {
			n++
		}
	}
	return n
}

// findGrowingSizes returns the classes whose live bytes grow. A range of sizes grows without its sizes that grow.
func (w *windowScan) findGrowingSizes() (list []growingSize) {
	byRange := make(map[sizeClass][]sizeClass)
	for class := range w.floors {
		if !class.isRange {
			byRange[class.sizeRange()] = append(byRange[class.sizeRange()], class)
		}
	}
	for whole, sizes := range byRange {
		slices.SortFunc(sizes, func(a, b sizeClass) int { return cmp.Compare(a.bytes, b.bytes) })
		rest := slices.Clone(w.floorsOf(whole))
		var others []sizeClass
		for _, size := range sizes {
			floors := w.floorsOf(size)
			if g, ok := w.measureSize(size, floors, float64(size.bytes)); ok {
				g.members = []sizeClass{size}
				list = append(list, g)
				for i, floor := range floors {
					rest[i] -= floor
				}
			} else {
				others = append(others, size)
			}
		}
		if len(others) > 1 {
			if g, ok := w.measureSize(whole, rest, 0.75*float64(whole.bytes)); ok {
				g.members = others
				list = append(list, g)
			}
		}
	}
	slices.SortFunc(list, func(a, b growingSize) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device), cmp.Compare(a.pool, b.pool),
			cmp.Compare(a.stream, b.stream), cmp.Compare(a.bytes, b.bytes))
	})
	return list
}

// measureSize measures the growth of a class with floors. block is the mean size of its blocks. It returns false if the
// floors do not rise as those of a leak: see Scan.measureGrowth.
func (w *windowScan) measureSize(class sizeClass, floors []int64, block float64) (g growingSize, ok bool) {
	rise := stats.NewRise(floors, block)
	step := w.checkpoints.StepNs()
	if !rise.Steady || step <= 0 {
		return g, false
	}
	tail := floors[len(floors)-rise.Steps:]
	g = growingSize{
		sizeClass:   class,
		Trend:       rise.Trend,
		checkpoints: len(floors),
		floors:      floors,
		block:       block,
		perNs:       rise.Slope / step,
		marginNs:    riseMargin(rise.Trend, tail, block) / step,
		level:       float64(floors[len(floors)-1]),
	}
	g.fromNs = w.checkpoints.WarmNs + int64(step*float64(len(floors)-rise.Steps))
	if rise.Steps == len(floors) {
		g.fromNs = w.window.FromNs
	}
	g.untilNs = w.endOf(class.pid)
	g.untilNs -= min(followNs, (g.untilNs-g.fromNs)/4)
	return g, stats.ExceedsNoise(g.perNs, step*float64(rise.Steps), g.level, stats.MinLeakGrowthBytes/8)
}

// randomRiseMargin is the margin of the slope of a series that rises by random events, as part of the slope and for one
// event. It falls with the square root of their number.
const randomRiseMargin = 1.5

// riseMargin returns the margin of the slope of a rise, per step. block is the mean size of its blocks.
func riseMargin(rise stats.Trend, floors []int64, block float64) float64 {
	blocks := max(1, rise.Slope*float64(rise.Steps)/block)
	return math.Hypot(stats.SlopeMargin(floors), randomRiseMargin*rise.Slope/math.Sqrt(blocks))
}

// collect adds the sightings of all groups to a growing size.
func (s *Scan) collect(g *growingSize) {
	r := &s.windows.recorded
	first, last := g.slices(r)
	exposure := r.exposureIn(first, last)
	for i := range s.groups {
		site := siteGrowth{group: i}
		for _, class := range g.members {
			site.add(r, class, s.groups[i].sightings[class], first, last)
		}
		if site.keptBlocks+site.endedBlocks > 0 {
			site.setRates(exposure)
			g.sites = append(g.sites, site)
		}
	}
}

// slices returns the first and the last slice with sightings that count.
func (g *growingSize) slices(r *recordedWindows) (first, last int32) {
	return int32(r.sliceOf(g.fromNs)), int32(r.sliceOf(g.untilNs)) - 1
}

// exposureIn returns the exposure of some slices, ns. It is at least 1.
func (r *recordedWindows) exposureIn(first, last int32) (ns float64) {
	for i := first; i <= last; i++ {
		ns += float64(r.exposure[i])
	}
	return max(1, ns)
}

// share shares the growth of a size among its sites.
func (s *Scan) share(g *growingSize) {
	g.sites = nil
	s.collect(g)
	kept := 0.0
	for i := range g.sites {
		kept += g.sites[i].keptNs
	}
	if kept == 0 {
		return
	}
	first, last := g.slices(&s.windows.recorded)
	keptError := s.windows.recorded.keptError(g.keptBySlice(), first, last)
	noise := 2 * math.Hypot(keptError, g.marginNs/2)
	excess := max(0, kept-g.perNs-noise)
	odds := g.oddsOfSeeming()
	weights, sum := make([]float64, len(g.sites)), 0.0
	for i := range g.sites {
		weights[i] = max(0, g.sites[i].keptNs-odds*g.sites[i].endedNs)
		sum += weights[i]
	}
	if sum == 0 {
		return
	}
	seen := g.perNs
	if kept+noise < g.perNs {
		seen = kept
	}
	missing := max(0, g.perNs+g.marginNs-kept+2*keptError)
	for i := range g.sites {
		site := &g.sites[i]
		part := weights[i] / sum
		site.perNs = part * seen
		sampling := 2 * seen * g.shareError(i, weights, odds)
		unseen := min(missing, unseenInNone/float64(max(1, site.keptSlices()))*site.perNs)
		doubt := min(excess, max(site.perNs, site.keptNs)*site.hiddenShare(), g.growthOfOthers(i))
		site.marginNs = doubt + math.Sqrt(sampling*sampling+unseen*unseen+part*part*g.marginNs*g.marginNs)
	}
}

// growthOfOthers returns the most that other sites than site i may grow by, bytes per ns, if at most two of them leak.
func (g *growingSize) growthOfOthers(i int) float64 {
	var first, second float64
	for k := range g.sites {
		if n := &g.sites[k]; k != i && n.keptBlocks > 0 {
			most := n.keptNs * (1 + 2/math.Sqrt(float64(n.keptBlocks)))
			first, second = max(first, most), max(second, min(first, most))
		}
	}
	return first + second
}

// oddsOfSeeming returns the number of ended sightings that seem to live on, for each that is known to have ended. With
// it, the sightings that lived on explain the growth.
func (g *growingSize) oddsOfSeeming() float64 {
	left := func(odds float64) (sum float64) {
		for i := range g.sites {
			sum += max(0, g.sites[i].keptNs-odds*g.sites[i].endedNs)
		}
		return sum
	}
	low, high := 0.0, 100.0
	if left(low) <= g.perNs {
		return 0
	}
	for range 50 {
		if middle := (low + high) / 2; left(middle) > g.perNs {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// keptBySlice returns the bytes of the sightings of all sites that live on.
func (g *growingSize) keptBySlice() []float64 {
	slice := make([]float64, maxTimeSlices)
	for i := range g.sites {
		for k, kept := range g.sites[i].kept {
			slice[k] += kept
		}
	}
	return slice
}

// keptError returns the standard error of the bytes per ns of exposure of sightings that live on. kept are their bytes by
// slice. Slices from first to last count.
func (r *recordedWindows) keptError(kept []float64, first, last int32) float64 {
	var sum, variance, n float64
	exposure := r.exposureIn(first, last)
	for _, bytes := range kept {
		sum += bytes
	}
	for k := first; k <= last; k++ {
		if r.exposure[k] > 0 {
			off := kept[k] - sum/exposure*float64(r.exposure[k])
			variance += off * off
			n++
		}
	}
	if n < 2 {
		return sum / exposure
	}
	return math.Sqrt(variance*n/(n-1)) / exposure
}

// shareError returns the standard error of the share of site i in all sightings that live on. odds are those of
// oddsOfSeeming. Sites without a share do not count.
func (g *growingSize) shareError(i int, weights []float64, odds float64) float64 {
	var sum, total, variance, n float64
	for _, weight := range weights {
		total += weight
	}
	for k := range maxTimeSlices {
		all := 0.0
		for j := range g.sites {
			if weights[j] > 0 {
				all += g.sites[j].kept[k] - odds*g.sites[j].ended[k]
			}
		}
		off := g.sites[i].kept[k] - odds*g.sites[i].ended[k] - weights[i]/total*all
		variance += off * off
		sum += all
		if all != 0 {
			n++
		}
	}
	if n < 2 || sum <= 0 || weights[i] == 0 {
		return 1
	}
	return math.Sqrt(variance*n/(n-1)) / sum
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
