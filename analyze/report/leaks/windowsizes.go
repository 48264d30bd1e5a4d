package leaks

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
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
	exposure        exposure
}

// slices returns the first and the last slice with sightings that count.
func (g *growingSize) slices(r *recordedWindows) (first, last int32) {
	return int32(r.sliceOf(g.fromNs)), int32(r.sliceOf(g.untilNs)) - 1
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
	slices.SortFunc(list, compareSizes)
	return list
}

func compareSizes(a, b growingSize) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device), cmp.Compare(a.pool, b.pool),
		cmp.Compare(a.stream, b.stream), cmp.Compare(a.bytes, b.bytes), cmp.Compare(len(a.members), len(b.members)),
		cmp.Compare(a.perNs, b.perNs))
}

// minSightingsOfSize is the number of sightings that live on below which a size is shared together with others.
const minSightingsOfSize = 20

// joinThinSizes joins the growing sizes of a stream if windows saw few of their blocks: a site may leak blocks of many sizes.
func (s *Scan) joinThinSizes(list []growingSize) []growingSize {
	kept := make(map[sizeClass]int64)
	for i := range s.groups {
		for class, slices := range s.groups[i].sightings {
			for _, n := range slices {
				kept[class] += n.kept
			}
		}
	}
	thin := make(map[sizeClass][]growingSize)
	var joined []growingSize
	for _, g := range list {
		seen := int64(0)
		for _, class := range g.members {
			seen += kept[class]
		}
		if seen >= minSightingsOfSize {
			joined = append(joined, g)
			continue
		}
		all := sizeClass{pid: g.pid, device: g.device, pool: g.pool, stream: g.stream, isRange: true}
		thin[all] = append(thin[all], g)
	}
	for all, sizes := range thin {
		if g, ok := s.windows.joinSizes(all, sizes); ok {
			sizes = []growingSize{g}
		}
		joined = append(joined, sizes...)
	}
	slices.SortFunc(joined, compareSizes)
	return joined
}

// joinSizes returns the growth of several sizes together. It returns false if it does not rise as that of a leak.
func (w *windowScan) joinSizes(all sizeClass, sizes []growingSize) (growingSize, bool) {
	if len(sizes) < 2 {
		return growingSize{}, false
	}
	var members []sizeClass
	var blocks, bytes float64
	floors := make([]int64, len(sizes[0].floors))
	for i := range sizes {
		g := &sizes[i]
		members = append(members, g.members...)
		bytes += g.perNs
		blocks += g.perNs / g.block
		all.bytes = max(all.bytes, g.bytes)
		for k, floor := range g.floors {
			floors[k] += floor
		}
	}
	g, ok := w.measureSize(all, floors, bytes/blocks)
	g.members = members
	return g, ok
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

// riseMargin returns the margin of the slope of a rise, per step. block is the mean size of its blocks. Blocks may come in
// bursts, such as once in a slow step of the program: then the rise is known up to a burst.
func riseMargin(rise stats.Trend, floors []int64, block float64) float64 {
	blocks := max(1, rise.Slope*float64(rise.Steps)/block)
	random := math.Hypot(stats.SlopeMargin(floors), randomRiseMargin*rise.Slope/math.Sqrt(blocks))
	return random + float64(largestBurst(floors))/float64(rise.Steps)
}

// largestBurst returns the largest difference between an increase of a series and the one before.
func largestBurst(series []int64) (burst int64) {
	for i := 2; i < len(series); i++ {
		change := series[i] - 2*series[i-1] + series[i-2]
		burst = max(burst, change, -change)
	}
	return burst
}

// cutFirstHalf reduces the rise of a size to its second half. It returns false, and changes nothing, if that does not
// rise.
func (w *windowScan) cutFirstHalf(g *growingSize) bool {
	series := g.floors[len(g.floors)-g.Steps/2:]
	late, ok := w.measureSize(g.sizeClass, series, g.block)
	if !ok {
		return false
	}
	late.members, late.checkpoints, late.floors = g.members, g.checkpoints, g.floors
	late.fromNs += int64(w.checkpoints.StepNs() * float64(len(g.floors)-len(series)))
	*g = late
	return true
}
