package cachegrowth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Finding is a caching allocator whose unused memory grows.
type Finding struct {
	Pid, Device int32
	Cause       Cause
	// PerMin is the growth of the reserved memory, bytes per minute. LivePerMin is the part that is
	// in use: less than half.
	PerMin, LivePerMin float64
	// UnusedBytes is the lowest unused memory of the last interval.
	UnusedBytes int64
	// Owners is the number of streams of CauseStreams, or of pools of CausePools.
	Owners int
	// Sites are the call sites that requested the new segments for the cause, most bytes first.
	Sites []Site
}

// Site is a call site whose requests needed new segments.
type Site struct {
	Label    string
	Stack    int32 // id of one of its call stacks
	Segments int64
	Bytes    int64 // size of the segments
	// SmallestBytes and LargestBytes are sizes of requests.
	SmallestBytes, LargestBytes int64
	FirstNs, LastNs             int64 // Unix ns
}

// SizesText returns the sizes of the requests.
func (s *Site) SizesText() string {
	if s.SmallestBytes == s.LargestBytes {
		return units.FormatBytes(s.LargestBytes)
	}
	return units.FormatBytes(s.SmallestBytes) + " to " + units.FormatBytes(s.LargestBytes)
}

// minGrowthBytes is the growth over the window from which a cache grows, bytes. If the window is
// shorter than a minute, the growth is extrapolated to a minute. A steady rise has at least five
// rises, and each needs a segment.
const minGrowthBytes = 5 * caching.LargeSegmentBytes

// classify returns the finding for a cache. It returns false unless all of these conditions hold:
//   - The floor of the unused memory rises until the end (stats.Trend.RisesThroughout), from some checkpoint on.
//   - The rise does not slow down, as that of a cache that fills.
//   - The reserved memory rises, too. Unused memory also grows if a program frees its blocks.
//   - At least half of the rise is unused. Otherwise live memory grows.
//   - The rise is at least minGrowthBytes.
func (s *Scan) classify(k *cache) (f Finding, ok bool) {
	rising := stats.CutBeforeRise(k.unused.Floors)
	unused := stats.NewTrend(rising)
	segments := k.reserved.Floors
	reserved := stats.NewTrend(segments[len(segments)-min(len(rising), len(segments)):])
	step := s.stepNs()
	switch {
	case !unused.RisesThroughout(), unused.IsSlowing(caching.LargeSegmentBytes):
		return f, false
	case 2*reserved.Slope < unused.Slope, 2*unused.Slope < reserved.Slope:
		return f, false
	case unused.Slope*max(float64(unused.Steps), float64(time.Minute)/step) < minGrowthBytes:
		return f, false
	}
	perMin := float64(time.Minute) / step
	f = Finding{
		Pid: k.pid, Device: k.device, Cause: k.largestKnownCause(),
		PerMin: reserved.Slope * perMin, LivePerMin: max(0, reserved.Slope-unused.Slope) * perMin,
		UnusedBytes: rising[len(rising)-1],
	}
	in := &k.causes[f.Cause]
	f.Owners, f.Sites = len(in.owners), s.sitesOf(in)
	return f, true
}

// sitesOf returns the call sites of requests, most bytes first.
func (s *Scan) sitesOf(in *causeStats) []Site {
	found := make(map[string]*Site)
	for id, r := range in.requests {
		label, stack := s.t.SiteOfBlock(id), int32(0)
		if id != origin.NoOrigin {
			stack = s.t.Origins.List[id].Stack
		}
		site := found[label]
		if site == nil {
			site = &Site{Label: label, Stack: stack, SmallestBytes: r.smallest, FirstNs: r.firstNs}
			found[label] = site
		}
		site.Stack = min(site.Stack, stack)
		site.Segments += r.segments
		site.Bytes += r.bytes
		site.SmallestBytes, site.LargestBytes = min(site.SmallestBytes, r.smallest), max(site.LargestBytes, r.largest)
		site.FirstNs, site.LastNs = min(site.FirstNs, r.firstNs), max(site.LastNs, r.lastNs)
	}
	var list []Site
	for _, site := range found {
		list = append(list, *site)
	}
	slices.SortFunc(list, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Label, b.Label))
	})
	return list
}

func sortFindings(list []Finding) []Finding {
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device), cmp.Compare(b.PerMin, a.PerMin))
	})
	return list
}

// steadyLiveShare is the share of the growth up to which live memory counts as not growing. Slopes
// of noisy series differ by that much.
const steadyLiveShare = 0.1

// GrowthText returns the growth as a phrase.
func (f *Finding) GrowthText() string {
	live := "live memory does not"
	if f.LivePerMin > steadyLiveShare*f.PerMin {
		live = fmt.Sprintf("live memory grows by %s/min", units.FormatBytes(units.RoundInt(f.LivePerMin)))
	}
	return fmt.Sprintf("PyTorch's cache grows by %s/min; %s", units.FormatBytes(units.RoundInt(f.PerMin)), live)
}

// CauseText returns the cause as a phrase that names the call site with most bytes.
func (f *Finding) CauseText() string {
	if len(f.Sites) == 0 {
		return "no request for a new segment was recorded"
	}
	site := &f.Sites[0]
	switch f.Cause {
	case CauseLonger:
		return fmt.Sprintf("requests in %s become longer: %s", site.Label, site.SizesText())
	case CauseStreams:
		return fmt.Sprintf("blocks of %s belong to %s", site.Label, units.CountWithNoun(int64(f.Owners), "stream"))
	case CausePools:
		return fmt.Sprintf(
			"blocks of %s belong to %s",
			site.Label,
			units.CountWithNoun(int64(f.Owners), "private pool"),
		)
	case CauseStranded:
		return fmt.Sprintf(
			"live blocks cut the free memory into pieces too small for %s, requests of %s",
			site.Label,
			site.SizesText(),
		)
	}
	return fmt.Sprintf("%s requested the new segments", site.Label)
}
