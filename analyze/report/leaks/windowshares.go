package leaks

import (
	"math"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
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

// siteGrowth is the part of a group in the growth of a size.
type siteGrowth struct {
	siteSightings
	group     int
	isUnknown bool // the stacks of the sightings were not taken
	// isExcluded makes the site have no part: it frees its blocks of other sizes, and other sites explain the growth.
	isExcluded bool
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

// block returns the mean size of the sightings that live on.
func (d *siteSightings) block() float64 { return d.keptSince(0) / float64(max(1, d.keptBlocks)) }

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
func (d *siteSightings) setRates(e *exposure) {
	for k := range d.kept {
		d.keptNs += d.kept[k] / e.totalNs
		d.endedNs += d.ended[k] / e.totalNs
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

// collect adds the sightings of all groups to a growing size.
func (s *Scan) collect(g *growingSize) {
	r := &s.windows.recorded
	first, last := g.slices(r)
	g.exposure = s.windows.exposureOf(g.allocator(), first, last)
	for i := range s.groups {
		site := siteGrowth{group: i, isUnknown: s.groups[i].Label == timeline.NoStackSite}
		for _, class := range g.members {
			site.add(r, class, s.groups[i].sightings[class], first, last)
		}
		if site.keptBlocks+site.endedBlocks > 0 {
			site.setRates(&g.exposure)
			g.sites = append(g.sites, site)
		}
	}
}

// share shares the growth of a size among its sites. These parts of a site's margin follow from chance: its share in the
// sightings, sites that windows did not see, and the margin of the size. These add up: sightings that only seem to live on,
// and those without a stack.
func (s *Scan) share(g *growingSize) {
	g.sites = nil
	s.collect(g)
	kept, keptMargin := g.excludeFreeing(s.inWindows.freesAll)
	if kept == 0 {
		return
	}
	noise := g.noiseOf(keptMargin)
	odds := g.oddsOfSeeming()
	weights, sum, unknown := g.weightsOfSites(odds)
	if sum == 0 {
		return
	}
	seen := g.perNs
	if kept+noise < g.perNs {
		seen = kept
	}
	for i := range g.sites {
		site := &g.sites[i]
		part := weights[i] / sum
		site.perNs = part * seen
		sampling := seen * g.shareMargin(i, weights, odds)
		_, ownMargin := g.exposure.rateIn(&site.kept, g.exposure.first, g.exposure.last, site.block())
		missing := max(0, g.perNs+g.marginNs-kept+max(keptMargin, ownMargin))
		unseen := min(missing, unseenInNone/float64(max(1, site.keptSlices()))*site.perNs)
		excess := kept - g.perNs - noise
		if site.endedNs > site.keptNs { // it frees most of its blocks, so it may free all of them
			excess = kept - g.perNs + noise
		}
		doubt := min(max(0, excess), max(site.perNs, site.keptNs)*site.hiddenShare(), g.growthOfOthers(i))
		if weights[i] > 0 {
			doubt += unknown * max(part, 1-part) * seen
		}
		site.marginNs = doubt + math.Sqrt(sampling*sampling+unseen*unseen+part*part*g.marginNs*g.marginNs)
	}
}

// excludeFreeing excludes sites that free their blocks of other sizes, if the others explain the growth. freesAll has the
// groups that do so. It returns the bytes per ns of all sightings that live on and count, and their margin.
func (g *growingSize) excludeFreeing(freesAll []bool) (kept, keptMargin float64) {
	all, allMargin := g.keptOfSites()
	for i := range g.sites {
		g.sites[i].isExcluded = freesAll[g.sites[i].group]
	}
	kept, keptMargin = g.keptOfSites()
	if kept+g.noiseOf(keptMargin) >= g.perNs {
		return kept, keptMargin
	}
	for i := range g.sites {
		g.sites[i].isExcluded = false
	}
	return all, allMargin
}

// keptOfSites returns the bytes per ns of the sightings of all sites that live on and count, and their margin.
func (g *growingSize) keptOfSites() (perNs, margin float64) {
	var kept [maxTimeSlices]float64
	var blocks, bytes float64
	for i := range g.sites {
		site := &g.sites[i]
		if site.isExcluded {
			continue
		}
		blocks += float64(site.keptBlocks)
		for k := range kept {
			kept[k] += site.kept[k]
			bytes += site.kept[k]
		}
	}
	return g.exposure.rateIn(&kept, g.exposure.first, g.exposure.last, bytes/max(1, blocks))
}

// noiseOf returns by how much the sightings that live on may differ from the growth by chance, bytes per ns. keptMargin is
// their margin.
func (g *growingSize) noiseOf(keptMargin float64) float64 { return math.Hypot(keptMargin, g.marginNs) }

// weightsOfSites returns the bytes per ns of the sightings of each site that live on, less those that only seem to: see
// oddsOfSeeming. Sightings without a stack may be of any site, so they count only if no other site has some. unknown is
// their part. sum is the sum of the weights.
func (g *growingSize) weightsOfSites(odds float64) (weights []float64, sum, unknown float64) {
	weights = make([]float64, len(g.sites))
	withoutStack := -1
	for i := range g.sites {
		site := &g.sites[i]
		switch {
		case site.isExcluded:
			continue
		case site.isUnknown:
			withoutStack = i
		}
		weights[i] = max(0, site.keptNs-odds*site.endedNs)
		sum += weights[i]
	}
	if withoutStack >= 0 && sum > weights[withoutStack] {
		unknown = weights[withoutStack] / sum
		sum -= weights[withoutStack]
		weights[withoutStack] = 0
	}
	return weights, sum, unknown
}

// shareStackless gives the growth of sightings without a stack to the sites with a stack that grow in the same size, in
// other pools or on other streams. Each part is its own margin.
func (v *windowVerdicts) shareStackless() {
	known, total := make(map[sizeClass][]siteGrowth), make(map[sizeClass]float64)
	for i := range v.sizes {
		size := v.sizes[i].anywhere()
		for k := range v.sizes[i].sites {
			if n := &v.sizes[i].sites[k]; !n.isUnknown && !n.hasStopped && n.perNs > 0 {
				known[size] = append(known[size], siteGrowth{group: n.group, perNs: n.perNs})
				total[size] += n.perNs
			}
		}
	}
	for i := range v.sizes {
		g := &v.sizes[i]
		u := slices.IndexFunc(g.sites, func(n siteGrowth) bool { return n.isUnknown && !n.hasStopped && n.perNs > 0 })
		sites := known[g.anywhere()]
		if u < 0 || len(sites) == 0 {
			continue
		}
		for _, n := range sites {
			n.perNs *= g.sites[u].perNs / total[g.anywhere()]
			n.marginNs = n.perNs + g.sites[u].marginNs
			g.sites = append(g.sites, n)
		}
		g.sites[u].perNs, g.sites[u].marginNs = 0, 0
	}
}

// minFreedSightings, minFreedSizes and minOtherFreedShare are the sightings in sizes that do not grow, the number of these sizes
// and the part of them that ended from which on a site frees its blocks of all sizes.
const (
	minFreedSightings, minFreedSizes = 20, 2
	minOtherFreedShare               = 0.95
)

// freesOtherSizes reports whether group i frees nearly all of its blocks of several sizes that do not grow. Then it is
// assumed to free those of all sizes.
func (s *Scan) freesOtherSizes(i int) bool {
	var sizes int
	var kept, ended int64
	for class, list := range s.groups[i].sightings {
		if s.inWindows.isGrowing[class] {
			continue
		}
		sizes++
		for _, n := range list {
			kept += n.kept
			ended += n.ended
		}
	}
	return sizes >= minFreedSizes && kept+ended >= minFreedSightings &&
		float64(ended) >= minOtherFreedShare*float64(kept+ended)
}

// growthOfOthers returns the most that other sites than site i may grow by, bytes per ns, if at most two of them leak.
func (g *growingSize) growthOfOthers(i int) float64 {
	var first, second float64
	for k := range g.sites {
		if n := &g.sites[k]; k != i && n.keptBlocks > 0 && !n.isExcluded {
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
			if !g.sites[i].isExcluded {
				sum += max(0, g.sites[i].keptNs-odds*g.sites[i].endedNs)
			}
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

// shareMargin returns the half width of the 95 % interval of the share of site i in all sightings that live on. odds are those of
// oddsOfSeeming. Sites without a share do not count.
func (g *growingSize) shareMargin(i int, weights []float64, odds float64) float64 {
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
	part, blocks := weights[i]/total, 0.0
	for k := range g.sites {
		if weights[k] > 0 {
			blocks += float64(g.sites[k].keptBlocks)
		}
	}
	random := 1.96 * math.Sqrt(part*(1-part)/max(1, blocks))
	return max(random, marginQuantile(n)*math.Sqrt(variance*n/(n-1))/sum)
}
