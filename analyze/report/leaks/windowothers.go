package leaks

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/stats"
)

// Sizes whose live bytes do not rise steadily, because of other groups or since they fall.

// addOtherSizes adds the growth of a group in sizes that do not grow steadily, because of other groups. It follows from
// the sightings that live on, if windows would have shown the ends of others.
func (s *Scan) addOtherSizes(i int) {
	for _, key := range s.groups[i].sightings.allocators() {
		s.addOtherSizesOf(i, key)
	}
}

func (s *Scan) addOtherSizesOf(i int, key caching.AllocatorKey) {
	r, total := &s.windows.recorded, &s.inWindows.groups[i]
	untilNs := r.ToNs - min(followNs, r.DurNs()/4)
	add := func(fromNs int64) (d siteSightings, e exposure) {
		e = s.windows.exposureOf(key, int32(r.sliceOf(fromNs)), int32(r.sliceOf(untilNs))-1)
		for class, list := range s.groups[i].sightings {
			if class.allocator() == key && !s.inWindows.isGrowing[class] {
				d.add(r, class, list, e.first, e.last)
			}
		}
		d.setRates(&e)
		return d, e
	}
	all, e := add(r.FromNs)
	if all.keptBlocks < minKeptSightings {
		return
	}
	series := s.windows.seriesOf(&all, &e, untilNs)
	rise := stats.NewRise(series, s.windows.seriesBlock(&all, &e))
	if !rise.Steady {
		return
	}
	step := s.windows.checkpoints.StepNs()
	d, e := add(s.windows.checkpoints.WarmNs + int64(step*float64(len(series)-rise.Steps)))
	if d.hiddenShare() > maxMarginShare {
		if total.perNs > 0 {
			total.marginNs += d.keptNs
		}
		return
	}
	_, margin := e.rateIn(&d.kept, e.first, e.last, d.block())
	margin += d.keptNs * d.hiddenShare()
	if perNs, ok := s.riseOfRanges(i, key, rise.Steps); ok && perNs < d.keptNs/4 {
		return // most of the blocks replace others
	}
	total.add(d.keptNs, margin, float64(series[len(series)-1]), &d, rise.Trend, len(series))
}

// minKnownSteps is the number of floors from which on they show whether blocks become more.
const minKnownSteps = 5

// riseOfRanges returns by how much the blocks of the ranges of sizes of a group became more in the last steps, bytes per ns.
// Later than the last time at which they were exact, the floors show nothing. It returns false if too few are left.
func (s *Scan) riseOfRanges(i int, key caching.AllocatorKey, steps int) (perNs float64, ok bool) {
	ranges := make(map[sizeClass]bool)
	for class := range s.groups[i].sightings {
		if class.allocator() == key {
			ranges[class.sizeRange()] = true
		}
	}
	known := max(0, s.windows.checkpoints.CountBefore(s.windows.levels[key].exactNs)-1)
	for class := range ranges {
		floors := s.windows.floorsOf(class)
		floors = floors[:min(len(floors), known)]
		if n := min(steps, len(floors)); n >= minKnownSteps {
			rise := floors[len(floors)-1] - floors[len(floors)-n]
			perNs += float64(rise) / float64(n-1) / s.windows.checkpoints.StepNs()
			ok = true
		}
	}
	return perNs, ok
}

// endedBySize returns the bytes of the sightings of all groups that ended, by size.
func (s *Scan) endedBySize() map[sizeClass]float64 {
	ended := make(map[sizeClass]float64)
	for i := range s.groups {
		for class, list := range s.groups[i].sightings {
			ended[class] += endedBytes(class, list)
		}
	}
	return ended
}

func endedBytes(class sizeClass, list []sightingCount) (bytes float64) {
	for _, n := range list {
		bytes += float64(n.ended * class.bytes)
	}
	return bytes
}

// fallOf returns by how much the blocks of a group became fewer in sizes that do not grow, bytes per ns. ended are the
// sightings that ended, by size: those of the group have a part of the fall.
func (s *Scan) fallOf(i int, ended map[sizeClass]float64) (perNs float64) {
	for class, list := range s.groups[i].sightings {
		if ended[class] > 0 {
			perNs += s.fallOfSize(class, s.inWindows.groups[i].Steps) * endedBytes(class, list) / ended[class]
		}
	}
	return perNs
}

// fallOfSize returns by how much the blocks of a size became fewer in the last steps, bytes per ns; 0: it grows.
func (s *Scan) fallOfSize(class sizeClass, steps int) (perNs float64) {
	floors := s.windows.floorsOf(class)
	if s.inWindows.isGrowing[class] || steps < 2 || len(floors) < steps {
		return 0
	}
	tail := floors[len(floors)-steps:]
	if stats.NewTrend(tail).Tau >= 0 {
		return 0
	}
	return max(0, float64(tail[0]-tail[steps-1])/float64(steps)/s.windows.checkpoints.StepNs())
}

// fallOfSizes returns by how much the blocks of all sizes that do not grow became fewer in the last steps, bytes per ns.
func (s *Scan) fallOfSizes(steps int) (perNs float64) {
	for class := range s.windows.floors {
		if !class.isRange {
			perNs += s.fallOfSize(class, steps)
		}
	}
	return perNs
}
