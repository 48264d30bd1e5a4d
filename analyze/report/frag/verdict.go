package frag

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Kinds of spaces. They are values of the column "space".
const (
	SpaceKindSegments     = "segments"
	SpaceKindExpandable   = "expandable segments"
	spaceKindReservations = "reserved addresses"
	spaceKindPool         = "memory pool"
)

// spaceKindName returns the name of a kind of spaces.
func spaceKindName(k caching.SpaceKind) string {
	return [...]string{SpaceKindSegments, SpaceKindExpandable, spaceKindReservations}[k]
}

// Verdicts of spaces. They are values of the column "verdict".
const (
	verdictFine          = "fine"
	verdictGrows         = "grows"
	verdictFragmented    = "fragmented"
	verdictIdlePool      = "idle"
	verdictAddressesOnly = "addresses"
)

// spaceFinding is a space of an owner with its verdict.
type spaceFinding struct {
	*caching.MemorySpace
	owner    *memoryOwner
	verdict  string
	label    string // value of the column "space"
	growth   string // growth of the allocator's cache and its cause, for verdictGrows
	internal int64  // block sizes minus requested sizes, bytes
	level    string // confidence level
	reasons  []string

	// Cells of the row; see spaceColumns. nil means that the value does not apply.
	request, unusable, blowUp, saved, savedLeast any
}

// findSpaces returns the spaces of all owners that pass the filter. growth has the allocators whose
// cache grows. level and reasons are the confidence of the recording.
func (s *Scan) findSpaces(
	owners []*memoryOwner,
	growth []cachegrowth.Finding,
	level string,
	reasons []string,
) []spaceFinding {
	var findings []spaceFinding
	for _, o := range owners {
		if o.snapshot == nil {
			continue
		}
		for _, sp := range o.snapshot.spaces {
			if sp.Reserved+sp.Active > 0 && sp.Reserved >= s.opt.MinBytes {
				f := spaceFinding{MemorySpace: sp, owner: o}
				f.level, f.reasons = LowerConfidence(o.snapshot.spaces, o.snapshot.unseen, level, reasons)
				f.classify(cmp.Or(s.opt.Request, o.largest))
				f.markGrowth(growth)
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// classify sets the verdict, and the values that depend on the size of a request (bytes, 0 for
// none):
//
//	addresses   the space is reserved addresses, whose holes hold no memory
//	fragmented  stranded bytes are at least minFragmentedShare of the reserved bytes and
//	            at least minFragmentedBytes
//	fine        any other case
func (f *spaceFinding) classify(request int64) {
	f.verdict, f.label = verdictFine, spaceKindName(f.Kind)
	switch {
	case f.Kind == caching.SpaceReservation:
		f.verdict = verdictAddressesOnly
	case isFragmented(f.Stranded, f.Reserved):
		f.verdict = verdictFragmented
	}
	if request > 0 {
		f.request = request
		if f.Unused > 0 {
			f.unusable = 100 * f.UnusableShare(request)
		}
	}
	if b, ok := f.ReservedPerActive(); ok {
		f.blowUp = b
	}
	if f.Kind == caching.SpaceSegments {
		f.saved, f.savedLeast = f.Saved, f.SavedLeast
	}
	if !f.owner.reservations {
		f.label += ", pool " + caching.FormatPool(f.Pool)
		f.internal = max(0, f.Active-f.Requested)
	}
}

// markGrowth gives a space without another problem the verdict grows if the cache of its allocator
// grows and the space has unused memory.
func (f *spaceFinding) markGrowth(growth []cachegrowth.Finding) {
	i := slices.IndexFunc(growth, func(g cachegrowth.Finding) bool {
		return g.Pid == f.owner.pid && g.Device == f.owner.device
	})
	if i < 0 || f.verdict != verdictFine || f.owner.reservations || !isFragmented(f.Unused, f.Reserved) {
		return
	}
	f.verdict = verdictGrows
	f.growth = growth[i].GrowthText() + ": " + growth[i].CauseText()
}

// Limits from which a space is fragmented.
const (
	minFragmentedShare = 0.2
	minFragmentedBytes = caching.LargeSegmentBytes
)

// isFragmented reports whether a space with these stranded and reserved bytes is fragmented.
func isFragmented(kept, reserved int64) bool {
	return kept >= minFragmentedBytes && float64(kept) >= minFragmentedShare*float64(reserved)
}

// classifyPool returns the verdict of a memory pool of the driver.
func classifyPool(unused, reserved int64) string {
	if isFragmented(unused, reserved) {
		return verdictIdlePool
	}
	return verdictFine
}

// LowerConfidence lowers the confidence in an allocator's spaces if some blocks are in segments
// from before the recording. unseenBytes is the size of these segments.
func LowerConfidence(
	spaces []*caching.MemorySpace,
	unseenBytes int64,
	level string,
	reasons []string,
) (string, []string) {
	strays := slices.ContainsFunc(spaces, func(s *caching.MemorySpace) bool { return s.Strays > 0 })
	if unseenBytes == 0 && !strays {
		return level, reasons
	}
	reason := "some blocks are in segments from before the recording"
	if unseenBytes > 0 {
		reason = units.FormatBytes(unseenBytes) + " of the allocator's segments are from before the recording"
	}
	if level == report.ConfidenceHigh {
		level = report.ConfidenceMedium
	}
	return level, append(reasons[:len(reasons):len(reasons)], reason)
}

// evidenceText returns a sentence with the numbers behind the verdict, and the confidence.
func (f *spaceFinding) evidenceText() string {
	text := f.sizesText()
	if f.verdict == verdictGrows {
		text += "; " + f.growth
	}
	return text + "; " + report.ConfidenceText(f.level, f.reasons)
}

// sizesText returns a sentence with the sizes of the space.
func (f *spaceFinding) sizesText() string {
	if f.Kind == caching.SpaceReservation {
		return fmt.Sprintf(
			"%s of %s are mapped, in %s; the largest hole is %s",
			units.FormatBytes(f.Active),
			units.FormatBytes(f.Reserved),
			units.CountWithNoun(f.Blocks, "mapping"),
			units.FormatBytes(f.Largest),
		)
	}
	text := fmt.Sprintf(
		"%s of %s are unused in %s, %s of it stranded by %s",
		units.FormatBytes(f.Unused),
		units.FormatBytes(f.Reserved),
		units.CountWithNoun(int64(len(f.Holes)), "hole"),
		units.FormatBytes(f.Stranded),
		units.CountWithNoun(f.Blocks, "block"),
	)
	if pct, ok := f.unusable.(float64); ok {
		text += fmt.Sprintf("; a request of %s cannot use %.0f%% of it", units.FormatBytes(f.request.(int64)), pct)
	}
	if f.Kind == caching.SpaceSegments && f.Saved > 0 {
		text += fmt.Sprintf(
			"; with expandable segments up to %s could return to the driver",
			units.FormatBytes(f.Saved),
		)
	}
	return text
}

// strandedTrend is the trend of an owner's stranded bytes over time; see owner.strandedSeries.
type strandedTrend struct {
	owner  *memoryOwner
	series []int64
	stats.Forecast
	hasForecast bool // the series is long enough for a forecast
}

// isRising reports whether the trend rises steadily and by at least 1 MiB.
func (t *strandedTrend) isRising() bool {
	return t.RisesThroughout() && slices.Max(t.series)-t.series[0] >= stats.MinLeakGrowthBytes
}

// findStrandedTrends returns the trends of the owners that had memory at a surveyed time.
func findStrandedTrends(owners []*memoryOwner) []strandedTrend {
	var trends []strandedTrend
	for _, o := range owners {
		if _, series := o.strandedSeries(); len(series) > 0 {
			t := strandedTrend{owner: o, series: series}
			t.Forecast, t.hasForecast = stats.NewForecast(series)
			trends = append(trends, t)
		}
	}
	return trends
}

// strandedSeries returns the stranded bytes from the first surveyed time with memory on. first is
// its index in Scan.moments. For reserved addresses it returns the bytes of all holes but the
// largest.
func (o *memoryOwner) strandedSeries() (first int, list []int64) {
	first = slices.IndexFunc(o.levels, func(l ownerUsage) bool { return l.reserved > 0 })
	if first < 0 {
		return 0, nil
	}
	for _, l := range o.levels[first:] {
		v := l.stranded
		if o.reservations {
			v = l.unused - l.largestHole
		}
		list = append(list, v)
	}
	if o.ended { // frees by the end of the process are not part of the trend
		for len(list) > 0 && o.levels[first+len(list)-1].reserved == 0 {
			list = list[:len(list)-1]
		}
	}
	return first, list
}
