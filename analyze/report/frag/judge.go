package frag

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Kinds of spaces, as in the column "space".
const (
	SpaceSegments     = "segments"
	SpaceExpandable   = "expandable segments"
	spaceReservations = "reserved addresses"
	spacePool         = "memory pool"
)

// spaceName returns the name of a kind of spaces.
func spaceName(k caching.SpaceKind) string {
	return [...]string{SpaceSegments, SpaceExpandable, spaceReservations}[k]
}

// Verdicts of spaces.
const (
	verdictFine       = "fine"
	verdictFragmented = "fragmented"
	verdictIdle       = "idle"
	verdictAddresses  = "addresses"
)

// spaceFinding is a space of an owner, with its verdict.
type spaceFinding struct {
	*caching.Space
	owner    *owner
	verdict  string
	where    string // as in the column "space"
	internal int64  // bytes by which blocks are larger than their requests
	level    string // confidence
	reasons  []string

	// Cells that are nil where they do not apply: see spaceColumns.
	request, unusable, blowUp, saved, savedLeast any
}

// findSpaces returns the spaces of all owners that the filter lets through. level and reasons are
// the confidence of the recording.
func (s *Scan) findSpaces(owners []*owner, level string, reasons []string) []spaceFinding {
	var findings []spaceFinding
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, sp := range o.detail.spaces {
			if sp.Reserved+sp.Active > 0 && sp.Reserved >= s.opt.MinBytes {
				f := spaceFinding{Space: sp, owner: o}
				f.level, f.reasons = LowerConfidence(o.detail.spaces, o.detail.unseen, level, reasons)
				f.judge(cmp.Or(s.opt.Request, o.largest))
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// judge sets the verdict and what depends on the size of a request, bytes; 0 if there is none:
//
//	addresses   reserved addresses: their holes are not memory
//	fragmented  blocks keep at least fragmentedShare of the reserved bytes, and more than a segment
//	fine        anything else
func (f *spaceFinding) judge(request int64) {
	f.verdict, f.where = verdictFine, spaceName(f.Kind)
	switch {
	case f.Kind == caching.InReservation:
		f.verdict = verdictAddresses
	case fragmentedBy(f.Stranded, f.Reserved):
		f.verdict = verdictFragmented
	}
	if request > 0 {
		f.request = request
		if f.Unused > 0 {
			f.unusable = 100 * f.Unusable(request)
		}
	}
	if b, ok := f.BlowUp(); ok {
		f.blowUp = b
	}
	if f.Kind == caching.InSegments {
		f.saved, f.savedLeast = f.Saved, f.SavedLeast
	}
	if !f.owner.reservations {
		f.where += ", pool " + caching.PoolName(f.Pool)
		f.internal = max(0, f.Active-f.Requested)
	}
}

// Bounds of the verdict fragmented.
const (
	fragmentedShare = 0.2
	fragmentedBytes = caching.LargeSegment
)

// fragmentedBy reports whether a space is fragmented: kept and reserved are bytes.
func fragmentedBy(kept, reserved int64) bool {
	return kept >= fragmentedBytes && float64(kept) >= fragmentedShare*float64(reserved)
}

// judgePool returns the verdict of a memory pool of the driver.
func judgePool(unused, reserved int64) string {
	if fragmentedBy(unused, reserved) {
		return verdictIdle
	}
	return verdictFine
}

// LowerConfidence lowers the confidence in what is known of an allocator, if some of its blocks
// lie in segments from before the recording; unseenBytes is the size of those segments.
func LowerConfidence(spaces []*caching.Space, unseenBytes int64, level string, reasons []string) (string, []string) {
	strays := slices.ContainsFunc(spaces, func(s *caching.Space) bool { return s.Strays > 0 })
	if unseenBytes == 0 && !strays {
		return level, reasons
	}
	reason := "some blocks lie in segments from before the recording"
	if unseenBytes > 0 {
		reason = units.Bytes(unseenBytes) + " of the allocator's segments are older than the recording"
	}
	if level == report.ConfidenceHigh {
		level = report.ConfidenceMedium
	}
	return level, append(reasons[:len(reasons):len(reasons)], reason)
}

// evidence returns what the verdict rests on, in words.
func (f *spaceFinding) evidence() string {
	return f.inWords() + "; " + report.ConfidenceText(f.level, f.reasons)
}

// inWords returns the numbers of the space, in words.
func (f *spaceFinding) inWords() string {
	if f.Kind == caching.InReservation {
		return fmt.Sprintf(
			"%s of %s are mapped, in %s; the largest hole has %s",
			units.Bytes(f.Active),
			units.Bytes(f.Reserved),
			units.Plural(f.Blocks, "mapping"),
			units.Bytes(f.Largest),
		)
	}
	text := fmt.Sprintf(
		"%s of %s are unused in %s, %s of it kept by %s",
		units.Bytes(f.Unused),
		units.Bytes(f.Reserved),
		units.Plural(int64(len(f.Holes)), "gap"),
		units.Bytes(f.Stranded),
		units.Plural(f.Blocks, "block"),
	)
	if pct, ok := f.unusable.(float64); ok {
		text += fmt.Sprintf("; a request of %s finds no place in %.0f%% of it", units.Bytes(f.request.(int64)), pct)
	}
	if f.Kind == caching.InSegments && f.Saved > 0 {
		text += fmt.Sprintf("; expandable segments would let up to %s go back", units.Bytes(f.Saved))
	}
	return text
}

// trend is the course of the bytes that blocks of an owner keep, see owner.series.
type trend struct {
	owner  *owner
	series []int64
	stats.Forecast
	foretold bool // the series is long enough for a forecast
}

// isRising reports whether the trend counts as rising: lasting, and by at least 1 MiB.
func (t *trend) isRising() bool {
	return t.Lasting() && slices.Max(t.series)-t.series[0] >= stats.MinGrowth
}

// findTrends returns the trends of the owners that had memory at a moment.
func findTrends(owners []*owner) []trend {
	var trends []trend
	for _, o := range owners {
		if _, series := o.series(); len(series) > 0 {
			t := trend{owner: o, series: series}
			t.Forecast, t.foretold = stats.NewForecast(series)
			trends = append(trends, t)
		}
	}
	return trends
}

// series returns the bytes that blocks keep, at each moment from the first one with memory, which is
// an index of Scan.moments. Of reserved addresses it returns the bytes of holes outside the largest.
func (o *owner) series() (first int, list []int64) {
	first = slices.IndexFunc(o.levels, func(l usage) bool { return l.reserved > 0 })
	if first < 0 {
		return 0, nil
	}
	for _, l := range o.levels[first:] {
		v := l.kept
		if o.reservations {
			v = l.unused - l.largest
		}
		list = append(list, v)
	}
	if o.ended { // the end of the process is not part of the trend
		for len(list) > 0 && o.levels[first+len(list)-1].reserved == 0 {
			list = list[:len(list)-1]
		}
	}
	return first, list
}
