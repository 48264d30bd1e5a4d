package sampling

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/units"
)

// AllocatorCoverage says for which part of a recording the events of caching allocators were recorded, and what the
// allocators' own counters show of the rest.
type AllocatorCoverage struct {
	Sampled             bool
	RecordedNs, OfNs    int64   // time with recorded events, and length of the recording, ns
	MaxPct, OverheadPct float64 // limit and measured overhead of the busiest thread
	// Allocs and Frees count blocks. They are 0 before a replay.
	Allocs, Frees CallCounts
	// SiteNotSeen is the number of blocks that a reading or a free showed, and whose allocation was not recorded.
	SiteNotSeen int64
}

// CallCounts are numbers of calls of an allocator. Unrecorded ones were counted by the allocator itself. Those that the
// recorder lost are among them.
type CallCounts struct{ Recorded, Unrecorded int64 }

// Happened returns the number of all calls.
func (c *CallCounts) Happened() int64 { return c.Recorded + c.Unrecorded }

// NotSeen returns the number of calls that were neither recorded nor lost. lost is the number of lost events.
func (c *AllocatorCoverage) NotSeen(lost int64) int64 {
	return max(0, c.Allocs.Unrecorded+c.Frees.Unrecorded-lost)
}

// FormatCoverage describes the coverage in words. It returns "" if everything was recorded.
func (c *AllocatorCoverage) FormatCoverage() string {
	if !c.Sampled {
		return ""
	}
	text := fmt.Sprintf("allocator events recorded %.1f of %.1f s (--max-overhead)", float64(c.RecordedNs)/1e9,
		float64(c.OfNs)/1e9)
	if n := c.Allocs.Happened(); c.Allocs.Unrecorded > 0 {
		text += fmt.Sprintf(": %s of %s", units.FormatCount(c.Allocs.Recorded), units.CountWithNoun(n, "allocation"))
	}
	return text
}

// FormatNote explains the consequences for a report. It returns "" if everything was recorded.
func (c *AllocatorCoverage) FormatNote() string {
	if !c.Sampled {
		return ""
	}
	return c.FormatCoverage() + ". Between, readings of the allocator's memory show its blocks. Live blocks are " +
		"exact at each reading and while events are recorded. A block that was allocated between has the site (site " +
		"not seen)"
}

// Add adds the coverage of another recording of the same job. It keeps the times of the one with the smaller part
// recorded.
func (c *AllocatorCoverage) Add(o *AllocatorCoverage) {
	sum := *c
	if o.Sampled && (!c.Sampled || o.RecordedNs*c.OfNs < c.RecordedNs*o.OfNs) {
		sum = *o
	}
	sum.Allocs = CallCounts{c.Allocs.Recorded + o.Allocs.Recorded, c.Allocs.Unrecorded + o.Allocs.Unrecorded}
	sum.Frees = CallCounts{c.Frees.Recorded + o.Frees.Recorded, c.Frees.Unrecorded + o.Frees.Unrecorded}
	sum.SiteNotSeen = c.SiteNotSeen + o.SiteNotSeen
	*c = sum
}
