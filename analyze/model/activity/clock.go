package activity

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A reader sees an operation after its start. So the difference between SeenNs and GPUTimeNs is the offset
// of the two clocks plus a delay, and the smallest differences show the offset. The clock takes an
// edge of the lower convex hull of the differences around each knot. While the drift is constant,
// this is the tightest line that is never below the offset.

const (
	bucketNs = 20_000_000    // one smallest difference is kept for each bucket
	shortNs  = 1_000_000     // length of a bucket in a short recording
	maxShort = 400           // number of buckets from which on they are longer
	knotNs   = 250_000_000   // distance of knots
	reachNs  = 1_000_000_000 // buckets up to this distance count for a knot
	// tightness bounds the smallest of n delays: at most tightness / n mean delays. The line
	// touches two points, each the smallest of a half. If delays are uniform up to a maximum, one
	// half in 20,000 exceeds 40.
	tightness = 40
)

// clockPoint is the smallest difference in a bucket.
type clockPoint struct{ gpuNs, differenceNs int64 }

// clockPoints collects the smallest differences of a channel.
type clockPoints struct {
	list   []clockPoint
	bucket int64
	longNs int64 // length of a bucket; 0: shortNs
}

func (p *clockPoints) add(gpuNs, differenceNs int64) {
	p.longNs = max(p.longNs, shortNs)
	if b := gpuNs / p.longNs; b == p.bucket && len(p.list) > 0 {
		if last := &p.list[len(p.list)-1]; differenceNs < last.differenceNs {
			*last = clockPoint{gpuNs, differenceNs}
		}
		return
	}
	if len(p.list) >= maxShort && p.longNs < bucketNs {
		longer := clockPoints{list: p.list[:0], longNs: min(2*p.longNs, bucketNs)}
		for _, point := range p.list {
			longer.add(point.gpuNs, point.differenceNs)
		}
		*p = longer
		p.add(gpuNs, differenceNs)
		return
	}
	p.bucket = gpuNs / p.longNs
	p.list = append(p.list, clockPoint{gpuNs, differenceNs})
}

// Clock converts times of a GPU's clock to times of the recording.
type Clock struct {
	knots []clockKnot
	last  int
}

// clockKnot is the offset at a time of the GPU's clock. The true offset is between
// offsetNs - residualNs and offsetNs.
type clockKnot struct {
	gpuNs, offsetNs, residualNs int64
}

// newClock fits a clock to points of one GPU, in any order. It returns nil without points.
func newClock(points []clockPoint) *Clock {
	if len(points) == 0 {
		return nil
	}
	slices.SortFunc(points, func(a, b clockPoint) int {
		return cmp.Or(cmp.Compare(a.gpuNs, b.gpuNs), cmp.Compare(a.differenceNs, b.differenceNs))
	})
	points = smallestOfBuckets(points)
	c := new(Clock)
	first, last := points[0].gpuNs-bucketNs, points[len(points)-1].gpuNs+bucketNs // samples of whole buckets
	at := func(ns int64) int { return sort.Search(len(points), func(i int) bool { return points[i].gpuNs >= ns }) }
	for ns := first; ; ns += knotNs {
		near := points[at(ns-reachNs):at(ns+reachNs)]
		// a gap in the samples needs no knots
		if len(near) == 0 {
			next := points[at(ns)].gpuNs
			ns += (next - ns) / knotNs * knotNs
			continue
		}
		c.knots = append(c.knots, fitKnot(ns, near))
		if ns >= last {
			return c
		}
	}
}

// smallestOfBuckets keeps the smallest difference of each bucket. Points are sorted by time. Rare samples
// of one channel must not hide the tight ones of another.
func smallestOfBuckets(points []clockPoint) []clockPoint {
	var all clockPoints
	all.list = points[:0]
	for _, p := range points {
		all.add(p.gpuNs, p.differenceNs)
	}
	return all.list
}

// fitKnot fits the offset at gpuNs to the points around it, which are sorted by time. It takes the
// edge of the hull below the middle of the points.
func fitKnot(gpuNs int64, near []clockPoint) clockKnot {
	middle := int64(0)
	for _, p := range near {
		middle += (p.gpuNs - near[0].gpuNs) / int64(len(near))
	}
	hull := lowerHull(near)
	edge := sort.Search(len(hull), func(i int) bool { return hull[i].gpuNs > near[0].gpuNs+middle })
	edge = min(max(edge, 1), max(1, len(hull)-1))
	from, to, slope := hull[edge-1], hull[edge-1], 0.0
	if len(hull) > 1 {
		to = hull[edge]
		slope = float64(to.differenceNs-from.differenceNs) / float64(max(1, to.gpuNs-from.gpuNs))
		slope = max(-maxDriftPPM*1e-6, min(maxDriftPPM*1e-6, slope))
	}
	height := heightOfLine(from.gpuNs, slope, near)
	lineAt := func(ns int64) float64 { return height + slope*float64(ns-from.gpuNs) }
	sum := 0.0
	for _, p := range near {
		sum += float64(p.differenceNs) - lineAt(p.gpuNs)
	}
	n := float64(len(near))
	delay := 100 + tightness*sum/(n*max(1, n-2))
	if len(near) < 5 {
		delay += 1e6 // the reader may have been late each time
	}
	knot := clockKnot{gpuNs, int64(math.Ceil(lineAt(gpuNs))), int64(math.Ceil(transportNs + delay))}
	outside := float64(max(from.gpuNs-gpuNs, gpuNs-to.gpuNs, 0))
	if outside == 0 {
		return knot
	}
	// Outside its edge, the line can be below or above the offset. One end of the edge may be late by the transport
	// and a delay, and the other not. So the slope is wrong by at most their sum over the length of the edge. It is
	// also wrong by at most twice the bound of the drift, because both slopes are within that bound.
	slack := outside * min(2*maxDriftPPM*1e-6, (transportNs+delay)/float64(max(1, to.gpuNs-from.gpuNs)))
	leastNs := knot.offsetNs - knot.residualNs - int64(math.Ceil(slack))
	knot.offsetNs = max(highestOffset(gpuNs, near), leastNs)
	knot.residualNs = knot.offsetNs - leastNs
	return knot
}

// heightOfLine returns the height at gpuNs of the highest line that is above none of the points. With the slope of an
// edge, it is that edge.
func heightOfLine(gpuNs int64, slope float64, points []clockPoint) float64 {
	height := math.Inf(1)
	for _, p := range points {
		height = min(height, float64(p.differenceNs)-slope*float64(p.gpuNs-gpuNs))
	}
	return height
}

// highestOffset returns a bound of the offset at gpuNs that holds for all delays: the offset is below each
// difference, and drifts by at most maxDriftPPM until there.
func highestOffset(gpuNs int64, near []clockPoint) int64 {
	highest := int64(math.MaxInt64)
	for _, p := range near {
		distanceNs := max(p.gpuNs-gpuNs, gpuNs-p.gpuNs)
		highest = min(highest, p.differenceNs+int64(math.Ceil(float64(distanceNs)*maxDriftPPM*1e-6)))
	}
	return highest
}

// lowerHull returns the lower convex hull of points that are sorted by time.
func lowerHull(points []clockPoint) []clockPoint {
	var hull []clockPoint
	for _, p := range points {
		for len(hull) > 0 && hull[len(hull)-1].gpuNs == p.gpuNs && hull[len(hull)-1].differenceNs > p.differenceNs {
			hull = hull[:len(hull)-1]
		}
		if len(hull) > 0 && hull[len(hull)-1].gpuNs == p.gpuNs {
			continue
		}
		for len(hull) > 1 {
			a, b := hull[len(hull)-2], hull[len(hull)-1]
			ab := float64(b.differenceNs-a.differenceNs) * float64(p.gpuNs-a.gpuNs)
			if ab < float64(p.differenceNs-a.differenceNs)*float64(b.gpuNs-a.gpuNs) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, p)
	}
	return hull
}

// Convert returns the interval of the recording's clock that contains a time of the GPU's clock.
func (c *Clock) Convert(gpuNs int64) Interval {
	k := c.last
	if k >= len(c.knots) || c.knots[k].gpuNs > gpuNs || k+1 < len(c.knots) && c.knots[k+1].gpuNs <= gpuNs {
		k = max(0, sort.Search(len(c.knots), func(i int) bool { return c.knots[i].gpuNs > gpuNs })-1)
		c.last = k
	}
	a := c.knots[k]
	offset, residual := a.offsetNs, a.residualNs
	if k+1 < len(c.knots) {
		b := c.knots[k+1]
		share := float64(gpuNs-a.gpuNs) / float64(b.gpuNs-a.gpuNs)
		share = max(0, min(1, share))
		offset += int64(share * float64(b.offsetNs-a.offsetNs))
		residual = max(residual, b.residualNs)
	}
	return Interval{LoNs: gpuNs + offset - residual, HiNs: gpuNs + offset + resolutionNs}
}

// ResidualNs returns the median width of the intervals of Convert over the recording, in ns.
func (c *Clock) ResidualNs() int64 {
	var list []int64
	for _, k := range c.knots {
		list = append(list, k.residualNs)
	}
	slices.Sort(list)
	return list[len(list)/2]
}
