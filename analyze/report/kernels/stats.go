package kernels

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
)

// LaunchStats has the statistics of a group of launches.
type LaunchStats struct {
	Launches int64 // launches that neither failed nor were captured
	Sized    int64 // part of Launches with a known size
	Tiny     int64 // part of Launches with fewer than TinyLaunchThreads threads
	Threads  int64 // total number of threads of sized launches

	captured, errors int64
	scaled           int64 // Launches in thousandths, including an estimate of unrecorded launches
	graphKernels     int64 // number of kernels that graph launches ran
	timed, hostNs    int64 // launches with a known duration, and the sum of their durations (ns)
}

// Merge adds the statistics of o to s.
func (s *LaunchStats) Merge(o *LaunchStats) {
	s.Launches += o.Launches
	s.scaled += o.scaled
	s.captured += o.captured
	s.errors += o.errors
	s.Sized += o.Sized
	s.Tiny += o.Tiny
	s.Threads = units.EndOfRange(s.Threads, o.Threads)
	s.graphKernels += o.graphKernels
	s.timed += o.timed
	s.hostNs = units.EndOfRange(s.hostNs, o.hostNs)
}

// HostTotalNs returns the sum of known launch durations on the host, ns, an int64. It returns nil
// if no duration is known.
func (s *LaunchStats) HostTotalNs() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs
}

// hostAverageNs returns the average launch duration on the host, ns. It returns nil if no duration
// is known.
func (s *LaunchStats) hostAverageNs() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs / s.timed
}

// estimatedHostNs returns the estimated launch durations of all launches, ns: the average times
// their number.
func (s *LaunchStats) estimatedHostNs() any {
	if s.timed == 0 {
		return nil
	}
	all := sampling.RoundToLaunches(s.scaled) + s.captured + s.errors
	return units.RoundInt(float64(s.hostNs) / float64(s.timed) * float64(all))
}

// StatsEntry returns the statistics of a key. It adds an empty entry to the map if the key is new.
func StatsEntry[K comparable](of map[K]*LaunchStats, key K) *LaunchStats {
	s := of[key]
	if s == nil {
		s = new(LaunchStats)
		of[key] = s
	}
	return s
}

// launchGroup has the statistics of the launches of one table row.
type launchGroup struct {
	LaunchStats
	sites  map[int32]int64 // launches by call site
	vias   map[int32]int64 // launches by line for which an autograd thread launched
	shapes map[launchShape]bool
	gpu    activity.TimeSum // empty without GPU times
}

// sumLaunchesBy groups the launches by a part of their key, which of returns.
func sumLaunchesBy[K comparable](sc *Scan, of func(launchKey) K) map[K]*launchGroup {
	groups := make(map[K]*launchGroup)
	for key, s := range sc.Counts {
		g := groups[of(key)]
		if g == nil {
			g = &launchGroup{
				sites:  make(map[int32]int64),
				vias:   make(map[int32]int64),
				shapes: make(map[launchShape]bool),
			}
			groups[of(key)] = g
		}
		g.Merge(s)
		g.sites[key.Site] += s.Launches + s.captured + s.errors
		if key.via != 0 {
			g.vias[key.via-1] += s.Launches + s.captured + s.errors
		}
		g.shapes[key.launchShape] = true
		if sc.times != nil {
			g.gpu.Add(sc.kernelEstimate(&key), s.ranLaunches())
		}
	}
	return groups
}

// mainSiteText returns the call site of most launches of the group, and the number of other call
// sites, as text.
func (sc *Scan) mainSiteText(g *launchGroup) string { return sc.mostFrequentText(g.sites) }

// mainViaText is mainSiteText for the lines for which autograd threads launched. It returns nil if there are none.
func (sc *Scan) mainViaText(g *launchGroup) any {
	if len(g.vias) == 0 {
		return nil
	}
	return sc.mostFrequentText(g.vias)
}

// mostFrequentText returns the name with the highest count, and the number of other names.
func (sc *Scan) mostFrequentText(counts map[int32]int64) string {
	best := int32(-1)
	for name, n := range counts {
		if best < 0 || n > counts[best] || n == counts[best] && sc.Names.List[name] < sc.Names.List[best] {
			best = name
		}
	}
	if len(counts) == 1 {
		return sc.Names.List[best]
	}
	return fmt.Sprintf("%s and %d more", sc.Names.List[best], len(counts)-1)
}

// sumByKernel returns the statistics of launches by kernel.
func (sc *Scan) sumByKernel() map[int32]*launchGroup {
	return sumLaunchesBy(sc, func(k launchKey) int32 { return k.Kernel })
}

// shortKernelNames returns a unique short name for each kernel.
func (sc *Scan) shortKernelNames() map[int32]string {
	byName := make(map[string]*calls.CallStats)
	for key := range sc.Counts {
		byName[sc.Names.List[key.Kernel]] = nil
	}
	short := make(map[int32]string)
	for full, s := range calls.ShortenKernelNames(byName) {
		if full == "" {
			s = catalog.UnknownKernelName
		}
		short[sc.Names.Ids[full]] = s
	}
	return short
}

// sumKernelLaunches returns the statistics of all kernel launches, without graph launches.
func (sc *Scan) sumKernelLaunches() (sum LaunchStats) {
	for _, s := range sc.Counts {
		sum.Merge(s)
	}
	return sum
}

// firstKeys returns the keys of the groups with the most GPU time, then the most launches: top keys, and
// further keys with as much as the last one. A top of 0 means all keys.
func firstKeys[K comparable](groups map[K]*launchGroup, top int) []K {
	compare := func(a, b K) int {
		x, y := groups[a], groups[b]
		return cmp.Or(cmp.Compare(y.gpu.TotalNs(), x.gpu.TotalNs()), cmp.Compare(y.Launches, x.Launches))
	}
	keys := slices.SortedFunc(maps.Keys(groups), compare)
	if top <= 0 || len(keys) <= top {
		return keys
	}
	last := keys[top-1]
	for top < len(keys) && compare(keys[top], last) == 0 {
		top++
	}
	return keys[:top]
}

// perSecond returns n divided by the length of the window in seconds, or nil if the window is
// empty.
func (sc *Scan) perSecond(n int64) any {
	if sc.Window.DurNs() == 0 {
		return nil
	}
	return float64(n) / (float64(sc.Window.DurNs()) / 1e9)
}
