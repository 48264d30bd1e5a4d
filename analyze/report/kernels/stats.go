package kernels

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
)

// LaunchStats sums up launches.
type LaunchStats struct {
	Launches int64 // that ran, as far as is known: neither failed nor captured
	Sized    int64 // of Launches, those of known size
	Tiny     int64 // of Launches, those of less than TinyThreads threads
	Threads  int64 // of all sized launches together

	captured, errors int64
	scaled           int64 // Launches in thousandths, with those that were not recorded
	graphKernels     int64 // kernels that launches of graphs ran
	timed, hostNs    int64 // launches of known duration, and the time spent in them
}

// Merge adds the launches of o.
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

// Total returns the time spent in launches of known duration, ns; nil if there are none.
func (s *LaunchStats) Total() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs
}

// avg returns the average time of a launch, ns; nil if no duration is known.
func (s *LaunchStats) avg() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs / s.timed
}

// estimated returns what Total would be if the other launches had taken as long on average.
func (s *LaunchStats) estimated() any {
	if s.timed == 0 {
		return nil
	}
	all := sampling.Whole(s.scaled) + s.captured + s.errors
	return units.RoundInt(float64(s.hostNs) / float64(s.timed) * float64(all))
}

// Entry returns the statistics of a key, which it adds to the map if it is new.
func Entry[K comparable](of map[K]*LaunchStats, key K) *LaunchStats {
	s := of[key]
	if s == nil {
		s = new(LaunchStats)
		of[key] = s
	}
	return s
}

// launchGroup sums up the launches of a row.
type launchGroup struct {
	LaunchStats
	sites  map[int32]int64 // launches by call site
	shapes map[launchShape]bool
}

// summed groups the launches by a part of their key.
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

// site returns the call site of most of the launches, and the number of other sites.
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

// kernels sums up the launches by kernel.
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

// sum adds up the launches of all kernels. Launches of graphs are not in it.
func (sc *Scan) sum() (sum LaunchStats) {
	for _, s := range sc.Counts {
		sum.Merge(s)
	}
	return sum
}

// mostLaunched returns the keys of the top groups by launches, and of those with as many launches as
// the last of them; all keys if top is 0.
func mostLaunched[K comparable](groups map[K]*launchGroup, top int) []K {
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b K) int {
		return cmp.Compare(groups[b].Launches, groups[a].Launches)
	})
	if top <= 0 || len(keys) <= top {
		return keys
	}
	least := groups[keys[top-1]].Launches
	for top < len(keys) && groups[keys[top]].Launches == least {
		top++
	}
	return keys[:top]
}

// perSecond returns n by the seconds of the window, nil if the window is empty.
func (sc *Scan) perSecond(n int64) any {
	if sc.Window.DurNs() == 0 {
		return nil
	}
	return float64(n) / (float64(sc.Window.DurNs()) / 1e9)
}
