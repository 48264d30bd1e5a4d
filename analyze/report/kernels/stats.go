package kernels

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
)

// LaunchStats is what was counted of launches.
type LaunchStats struct {
	Launches, captured, errors int64 // launches: that ran, as far as is known
	Sized, Tiny, Threads       int64 // of launches: whose size is known, that are tiny; threads of all of them
	scaled                     int64 // launches in thousandths, with those that were not recorded
	graphKernels               int64
	timed, hostNs              int64 // time in those whose duration is known
}

func (s *LaunchStats) Merge(o *LaunchStats) {
	s.Launches += o.Launches
	s.scaled += o.scaled
	s.captured += o.captured
	s.errors += o.errors
	s.Sized += o.Sized
	s.Tiny += o.Tiny
	s.Threads = units.EndOf(s.Threads, o.Threads)
	s.graphKernels += o.graphKernels
	s.timed += o.timed
	s.hostNs = units.EndOf(s.hostNs, o.hostNs)
}

// Total and avg are nil where no duration is known.
func (s *LaunchStats) Total() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs
}

func (s *LaunchStats) avg() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs / s.timed
}

// estimated is what total would be if the other launches had taken as long.
func (s *LaunchStats) estimated() any {
	if s.timed == 0 {
		return nil
	}
	return units.RoundInt(float64(s.hostNs) / float64(s.timed) * float64(sampling.Whole(s.scaled)+s.captured+s.errors))
}

func Entry[K comparable](of map[K]*LaunchStats, key K) *LaunchStats {
	s := of[key]
	if s == nil {
		s = new(LaunchStats)
		of[key] = s
	}
	return s
}

// launchGroup are launches that are told together.
type launchGroup struct {
	LaunchStats
	sites  map[int32]int64
	shapes map[launchShape]bool
}

// summed adds up counts that have a key in common, and names for each the place that most of the launches come from.
func summed[K comparable](sc *Scan, of func(launchKey) K) map[K]*launchGroup {
	groups := make(map[K]*launchGroup)
	for key, s := range sc.Counts {
		g := groups[of(key)]
		if g == nil {
			g = &launchGroup{sites: make(map[int32]int64), shapes: make(map[launchShape]bool)}
			groups[of(key)] = g
		}
		g.Merge(s)
		g.sites[key.Site] += s.Launches + s.captured + s.errors
		g.shapes[key.launchShape] = true
	}
	return groups
}

// site is the place that most of the launches come from, and how many others there are.
func (sc *Scan) site(g *launchGroup) string {
	best := int32(-1)
	for site, n := range g.sites {
		if best < 0 || n > g.sites[best] || n == g.sites[best] && sc.Names.List[site] < sc.Names.List[best] {
			best = site
		}
	}
	if len(g.sites) == 1 {
		return sc.Names.List[best]
	}
	return fmt.Sprintf("%s and %d more", sc.Names.List[best], len(g.sites)-1)
}

// kernels sums launches up by kernel.
func (sc *Scan) kernels() map[int32]*launchGroup {
	return summed(sc, func(k launchKey) int32 { return k.Kernel })
}

// shortNames gives each kernel a short name of its own.
func (sc *Scan) shortNames() map[int32]string {
	byName := make(map[string]*calls.Stats)
	for key := range sc.Counts {
		byName[sc.Names.List[key.Kernel]] = nil
	}
	short := make(map[int32]string)
	for full, s := range calls.ShortKernels(byName) {
		if full == "" {
			s = catalog.UnknownKernel
		}
		short[sc.Names.Ids[full]] = s
	}
	return short
}

// sum adds up kernels; graphs are not in it, but in their table.
func (sc *Scan) sum() (sum LaunchStats) {
	for _, s := range sc.Counts {
		sum.Merge(s)
	}
	return sum
}

// perSecond is a rate over the window, nil if that has no length.
func (sc *Scan) perSecond(n int64) any {
	if sc.Window.DurNs() == 0 {
		return nil
	}
	return float64(n) / (float64(sc.Window.DurNs()) / 1e9)
}
