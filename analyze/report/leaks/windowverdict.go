package leaks

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// windowGrowth is the growth of a group by the blocks that windows saw.
type windowGrowth struct {
	perNs, marginNs float64 // bytes per ns; the margin is the half width of the 95 % interval
	level           float64 // bytes at the end
	kept            int64   // sightings that live on
	slices          int     // parts of the time with such sightings
	stats.Trend             // of the size with most of the growth
	checkpoints     int
	largestNs       float64 // growth of that size
	isReplaced      bool    // the blocks replace those of other sizes of the group
	recordedPct     float64 // part of the time with allocator events
}

// add adds the growth in some sizes.
func (w *windowGrowth) add(perNs, marginNs, level float64, d *siteSightings, t stats.Trend, checkpoints int) {
	w.perNs += perNs
	w.marginNs = math.Hypot(w.marginNs, marginNs)
	w.level += level
	w.kept += d.keptBlocks
	w.slices = max(w.slices, d.keptSlices())
	if perNs > w.largestNs {
		w.Trend, w.checkpoints, w.largestNs = t, checkpoints, perNs
	}
}

// windowVerdicts are the growing sizes of a recording with windows, and the growth of each group.
type windowVerdicts struct {
	sizes     []growingSize
	isGrowing map[sizeClass]bool
	groups    []windowGrowth
	freesAll  []bool // by group: see freesOtherSizes
}

// measureWindows shares the growth of all sizes among the groups.
func (s *Scan) measureWindows() {
	if s.windows == nil {
		return
	}
	v := &s.inWindows
	v.groups, v.isGrowing = make([]windowGrowth, len(s.groups)), make(map[sizeClass]bool)
	v.sizes = s.joinThinSizes(s.windows.findGrowingSizes())
	for i := range v.sizes {
		for _, class := range v.sizes[i].members {
			v.isGrowing[class] = true
		}
	}
	v.freesAll = make([]bool, len(s.groups))
	for i := range s.groups {
		v.freesAll[i] = s.freesOtherSizes(i)
	}
	for i := range v.sizes {
		g := &v.sizes[i]
		if s.shareAndCheck(g); g.hasStopped() && s.windows.cutFirstHalf(g) {
			s.shareAndCheck(g)
		}
	}
	v.shareStackless()
	for i := range v.sizes {
		v.addSites(&v.sizes[i])
	}
	ended := s.endedBySize()
	for i := range s.groups {
		s.addOtherSizes(i)
		v.groups[i].isReplaced = s.fallOf(i, ended) > v.groups[i].perNs/2
	}
}

// addSites adds the growth of the sites of a size to their groups.
func (v *windowVerdicts) addSites(g *growingSize) {
	for k := range g.sites {
		site := &g.sites[k]
		total := &v.groups[site.group]
		switch {
		case !site.hasStopped:
			level := g.level * site.perNs / g.perNs
			total.add(site.perNs, site.marginNs, level, &site.siteSightings, g.Trend, g.checkpoints)
		case site.keptSlices() < minRiseSlices: // it may be chance that they seem to have stopped
			total.marginNs += site.perNs + site.marginNs
		}
	}
}

// shareAndCheck shares the growth of a size, and checks when the blocks of each site were allocated.
func (s *Scan) shareAndCheck(g *growingSize) {
	s.share(g)
	for k := range g.sites {
		s.checkSeries(g, &g.sites[k])
	}
}

// hasStopped reports whether a site with a part of the growth has stopped to grow.
func (g *growingSize) hasStopped() bool {
	return slices.ContainsFunc(g.sites, func(s siteGrowth) bool { return s.hasStopped && s.perNs > 0 })
}

// laterMarginShare is the part of a growth that is added to its margin if it began after the rise of its size.
const laterMarginShare = 0.25

// minRiseSlices is the number of parts of the time with sightings that live on from which on they show a rise.
const minRiseSlices = 12

// checkSeries compares the sightings of a site that live on with the rise of the size. They may have stopped, or
// begun later.
func (s *Scan) checkSeries(g *growingSize, site *siteGrowth) {
	if site.hasStopped = g.stops(site); site.hasStopped || site.keptSlices() < minRiseSlices {
		return
	}
	series := s.windows.seriesOf(&site.siteSightings, &g.exposure, g.untilNs)
	series = series[max(0, len(series)-g.Steps):]
	rise := stats.NewRise(series, s.windows.seriesBlock(&site.siteSightings, &g.exposure))
	if !rise.Steady || rise.Steps+3 > g.Steps {
		return
	}
	longer := float64(g.Steps) / float64(rise.Steps)
	site.perNs *= longer
	site.marginNs = site.marginNs*longer + laterMarginShare*site.perNs
}

// stops reports whether the sightings of a site that live on become fewer, by more than chance explains: to less than half
// after the first quarter or half of the time, or to less than a quarter in its last quarter. A site without such sightings
// has stopped.
func (g *growingSize) stops(site *siteGrowth) bool {
	if site.keptBlocks == 0 {
		return true
	}
	e, length := &g.exposure, g.exposure.last-g.exposure.first+1
	for i, least := range [...]float64{0.5, 0.5, 0.25} {
		from := e.first + length*int32(i+1)/4
		early, earlyMargin := e.rateIn(&site.kept, e.first, from-1, site.block())
		late, lateMargin := e.rateIn(&site.kept, from, e.last, site.block())
		if late < least*early && early-late > math.Hypot(earlyMargin, lateMargin) {
			return true
		}
	}
	return false
}

// seriesOf returns the bytes of the blocks of a group that live on, at each checkpoint before untilNs, Unix ns. It follows
// from the part of them that windows saw.
func (w *windowScan) seriesOf(d *siteSightings, e *exposure, untilNs int64) (series []int64) {
	r := &w.recorded
	sum, rate, next, until := 0.0, 0.0, 0, r.sliceOf(untilNs)
	for k := range stats.CheckpointCount {
		at := r.sliceOf(w.checkpoints.WarmNs + int64(w.checkpoints.StepNs()*float64(k)))
		if at >= until {
			break
		}
		for ; next <= at; next++ {
			if e.ns[next] > 0 {
				rate = d.kept[next] / e.ns[next]
			}
			sum += rate * r.sliceNs()
		}
		series = append(series, int64(sum))
	}
	return series
}

// seriesBlock returns the bytes by which one sighting raises the series of seriesOf.
func (w *windowScan) seriesBlock(d *siteSightings, e *exposure) float64 {
	sum := 0.0
	for _, bytes := range d.kept {
		sum += bytes
	}
	return sum / float64(max(1, d.keptBlocks)) * w.recorded.sliceNs() * float64(e.last-e.first+1) / e.totalNs
}

// isInWindows reports whether the memory of a group is known from windows.
func (s *Scan) isInWindows(g *groupStats) bool {
	return s.windows != nil && memoryKindLabel(s.t, g.memory) == format.MemoryTorch
}

// measureGrowthInWindows sets the growth of group i, and reports whether it leaks: these conditions must hold.
//   - At least minKeptSightings blocks live on, from minKeptSlices parts of the time.
//   - The margin is at most half of the growth.
//   - The growth exceeds noise, as in measureGrowth.
//   - The blocks do not replace those of other sizes.
func (s *Scan) measureGrowthInWindows(j *LeakFinding, i int) bool {
	w := &s.inWindows.groups[i]
	if w.perNs == 0 {
		return false
	}
	j.setWindowGrowth(s, w)
	durNs := s.windows.checkpoints.StepNs() * float64(w.Steps)
	switch {
	case w.isReplaced:
		j.windowDoubt = "but blocks of other sizes become fewer"
	case w.kept < minKeptSightings || w.slices < minKeptSlices:
		j.windowDoubt = "but windows saw too few of its blocks"
	case w.marginNs > maxMarginShare*w.perNs:
		j.windowDoubt = "but other sites with blocks of these sizes may grow instead"
	default:
		return stats.ExceedsNoise(w.perNs, durNs, w.level, stats.MinLeakGrowthBytes)
	}
	return false
}

// isChurnInWindows reports whether a group frees its blocks, by what windows show: nine tenths of them, or half of them
// if one of its sizes grows, or if none reached the age of a sighting. Blocks of other groups may have taken the addresses of those that seem live.
func (s *Scan) isChurnInWindows(g *groupStats) bool {
	if !s.isInWindows(g) || 2*g.frees < g.allocs {
		return false
	}
	if float64(g.frees) >= 0.9*float64(g.allocs) || len(g.sightings) == 0 {
		return true
	}
	for class := range g.sightings {
		if s.inWindows.isGrowing[class] {
			return true
		}
	}
	return false
}

// setWindowGrowth sets the growth of a finding.
func (f *LeakFinding) setWindowGrowth(s *Scan, w *windowGrowth) {
	w.recordedPct = s.windows.recorded.recordedPct()
	f.windowGrowth, f.trend, f.checkpoints = w, w.Trend, w.checkpoints
	f.PerMin, f.Margin = w.perNs*float64(time.Minute), w.marginNs*float64(time.Minute)
	f.grown = units.RoundInt(w.perNs * s.windows.checkpoints.StepNs() * float64(w.Steps))
}

// classifyUnseen sets the verdict on the blocks whose allocation no window saw: they have the growth of all sizes that
// rows with a site do not explain. They do not grow if they replace blocks of sizes that become fewer.
func (s *Scan) classifyUnseen(findings []LeakFinding) {
	unseen := -1
	explains := make(map[int]bool)
	for i := range findings {
		switch f := &findings[i]; {
		case s.isInWindows(f.groupStats) && !f.hasSite:
			unseen = i
		case f.Verdict == VerdictGrowing:
			explains[f.group] = true
		}
	}
	if unseen < 0 {
		return
	}
	var rest windowGrowth
	for i := range s.inWindows.sizes {
		g := &s.inWindows.sizes[i]
		perNs, marginNs := g.perNs, g.marginNs
		for k := range g.sites {
			if site := &g.sites[k]; explains[site.group] || site.hasStopped {
				perNs -= site.perNs
				marginNs = math.Hypot(marginNs, site.marginNs)
			}
		}
		if perNs > max(marginNs, maxMarginShare*g.perNs) {
			rest.add(perNs, marginNs, g.level, new(siteSightings), g.Trend, g.checkpoints)
		}
	}
	f := &findings[unseen]
	durNs := s.windows.checkpoints.StepNs() * float64(rest.Steps)
	if rest.perNs > 0 && rest.marginNs <= maxMarginShare*rest.perNs && s.fallOfSizes(rest.Steps) <= rest.perNs/2 &&
		stats.ExceedsNoise(rest.perNs, durNs, rest.level, stats.MinLeakGrowthBytes) {
		f.setWindowGrowth(s, &rest)
		f.Verdict = VerdictGrowing
	}
}

// windowEvidence returns the numbers behind the growth of a finding in windows.
func (f *LeakFinding) windowEvidence() string {
	growth := fmt.Sprintf("%s ± %s per minute", units.FormatBytes(units.RoundInt(f.PerMin)),
		units.FormatBytes(units.RoundInt(f.Margin)))
	switch {
	case f.windowDoubt != "":
		return fmt.Sprintf("may grow by %s, %s", growth, f.windowDoubt)
	case !f.hasSite:
		return fmt.Sprintf("blocks of these sizes grow by %s, which no site with a row growing explains", growth)
	}
	return fmt.Sprintf("%s that windows saw live on; its share in the growth of their sizes is %s",
		units.CountWithNoun(f.windowGrowth.kept, "block"), growth)
}
