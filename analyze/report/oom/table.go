package oom

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell, or not all"},
}

var failureColumns = []report.Column{
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "when the driver refused, or PyTorch's allocator gave up; from the recording's start",
	},
	{
		Key: "class", Title: "CLASS", Unit: report.UnitText,
		About: "capacity: not even all free memory would have been enough; fragmentation: free memory of the device " +
			"and unused memory in PyTorch's segments together are enough, but no piece is; cached: whole segments " +
			"of PyTorch's cache are; limit: the device had enough free, so that a limit of the allocator, a " +
			"pool, a MIG slice or a cgroup said no, or the memory is the host's; other process: it is " +
			"enough together with what other processes use; unknown: nobody tells what was free",
	},
	{
		Key: "also", Title: "ALSO", Unit: report.UnitText,
		About: "fragmentation: class limit, and the request would have fit into the allocator's unused memory too, " +
			"had it been in one piece; else absent",
	},
	{
		Key: "outcome", Title: "THEN", Unit: report.UnitText,
		About: "what the same thread did afterwards: retried (the same request succeeded after cached memory was " +
			"given back: no error reached the program), recovered (it got as much later), went on (it got less, or " +
			"gave work to the GPU), nothing since, ended (and the process ended)",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "bytes asked for; PyTorch tells those of a request that it gives up rounded to 512",
	},
	{
		Key: "free_bytes", Title: "FREE", Unit: report.UnitBytes,
		About: "what the device had free: as PyTorch's allocator tells, else the nearest answer of cuMemGetInfo or " +
			"sample of NVML, bounded by the device's memory without what calls have allocated; absent for memory of " +
			"the host",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "blocks of PyTorch's allocator for this process and device that the program had then",
	},
	{
		Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes,
		About: "bytes in segments of that allocator that were not in blocks; see the table cached",
	},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "the largest of these gaps"},
	{
		Key: "expandable_fits", Title: "EXPANDABLE", Unit: report.UnitText,
		About: "would it have fitted with expandable segments? yes: free memory and what is whole in gaps in " +
			"PyTorch's steps of 20 MiB is enough; perhaps: all whole pages of 2 MiB are; absent if they are on, or " +
			"PyTorch's allocator did not ask",
	},
	{
		Key: "fragmented_bytes", Title: "", Unit: report.UnitBytes,
		About: "of UNUSED, gaps between blocks that are smaller than the request",
	},
	{
		Key: "limit_least_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that the allocator's limit allows at least: the most it had reserved; absent unless it gave " +
			"up without asking the driver, and if the limit was lowered meanwhile",
	},
	{
		Key: "limit_below_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes below which that limit lies: reserved, and a segment for the request",
	},
	{Key: "reserved_bytes", Title: "", Unit: report.UnitBytes, About: "memory that allocator had of the driver"},
	{
		Key: "active_bytes", Title: "", Unit: report.UnitBytes,
		About: "allocated, and given back but still used by a stream",
	},
	{
		Key: "returned_bytes", Title: "", Unit: report.UnitBytes,
		About: "what that allocator gave back to the driver before it gave up, or succeeded",
	},
	{Key: "driver_calls", Title: "", Unit: report.UnitCount, About: "calls of the driver that failed for this request"},
	{
		Key: "driver_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that the driver was asked for; 0: it was not asked",
	},
	{Key: "free_source", Title: "", Unit: report.UnitText, About: "where FREE is from"},
	{
		Key: "free_age_ns", Title: "", Unit: report.UnitNs,
		About: "how old FREE was; negative if it was asked afterwards",
	},
	{
		Key: "allocator_free_bytes", Title: "", Unit: report.UnitBytes,
		About: "free memory as PyTorch's allocator tells it with the failure",
	},
	{Key: "asked_free_bytes", Title: "", Unit: report.UnitBytes, About: "free memory by the nearest cuMemGetInfo"},
	{Key: "asked_age_ns", Title: "", Unit: report.UnitNs, About: "how old that was"},
	{Key: "nvml_free_bytes", Title: "", Unit: report.UnitBytes, About: "free memory by NVML's nearest sample"},
	{Key: "nvml_age_ns", Title: "", Unit: report.UnitNs, About: "how old that was"},
	{
		Key: "other_processes_bytes", Title: "", Unit: report.UnitBytes,
		About: "memory of other processes on the device, by NVML's nearest samples",
	},
	{
		Key: "freed_next_second_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that the process freed on the device within a second afterwards",
	},
	{
		Key: "recovered_after_ns", Title: "", Unit: report.UnitNs,
		About: "how long it took until the thread got memory again",
	},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low; see confidence_reasons"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers the confidence: lost calls, a model that differs from the allocator's own totals, " +
			"segments from before the recording, an old sample of free memory",
	},
	{Key: "asked_by", Title: "BY", Unit: report.UnitText, About: "PyTorch, or the function of the driver"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "thread"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that asked"},
}

var cachedColumns = []report.Column{
	{Key: "failure_ns", Title: "AT", Unit: report.UnitNs, About: "failure that this belongs to, as in failures"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of PyTorch's segments that no block has"},
	{Key: "pieces", Title: "PIECES", Unit: report.UnitCount, About: "in how many pieces"},
	{Key: "largest_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "the largest of them"},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "in how many segments, or stretches of expandable ones",
	},
	{
		Key: "reason", Title: "WHY OF NO USE", Unit: report.UnitText,
		About: "too small pieces; for blocks of another size (segments for blocks up to 1 MiB, or for others); of " +
			"another stream; in another pool; still used by a stream; whole segments (the driver gets them when the " +
			"allocator asks again)",
	},
	{
		Key: "held_by", Title: "HELD BY", Unit: report.UnitText,
		About: "the place whose blocks lie in the segments with most of it",
	},
}

var holderColumns = []report.Column{
	{Key: "failure_ns", Title: "AT", Unit: report.UnitNs, About: "failure that this belongs to, as in failures"},
	{
		Key: "bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "bytes that the place held; of PyTorch's blocks as asked for",
	},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share in all that the process held there"},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "allocations behind HELD"},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of memory; torch: blocks of PyTorch's allocator",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the allocations",
	},
}

var totalColumns = []report.Column{
	{
		Key: "failures", Title: "failures", Unit: report.UnitCount,
		About: "allocations that failed, those included that succeeded when tried again",
	},
	{
		Key: "fatal", Title: "without recovery", Unit: report.UnitCount,
		About: "failures after which the thread did nothing more",
	},
	{
		Key: "retried", Title: "retried", Unit: report.UnitCount,
		About: "failures of which the program saw nothing but lost time",
	},
	{Key: "capacity", Title: "capacity", Unit: report.UnitCount, About: "failures of that class"},
	{Key: "fragmentation", Title: "fragmentation", Unit: report.UnitCount, About: "failures of that class"},
	{Key: "cached", Title: "cached", Unit: report.UnitCount, About: "failures of that class"},
	{Key: "limit", Title: "limit", Unit: report.UnitCount, About: "failures of that class"},
	{Key: "other_process", Title: "other process", Unit: report.UnitCount, About: "failures of that class"},
	{Key: "unknown", Title: "unknown", Unit: report.UnitCount, About: "failures of that class"},
	{
		Key: "fragmentation_under_limit", Title: "fragmentation under a limit", Unit: report.UnitCount,
		About: "of class limit, failures that are fragmentation too: see also",
	},
}

// facts says whether anything failed, and how many failures are in no table; rest is their number.
func facts(failures, rest int) []report.Fact {
	result := ""
	switch {
	case failures == 0:
		result = "no allocation failed"
	case rest > 0:
		result = fmt.Sprintf("%s more are only counted", units.Plural(int64(rest), "failure"))
	}
	return report.Facts(factColumns, report.Values{"result": result})
}

// failureTable returns a table with a row per failure.
func failureTable(t *timeline.Timeline, contexts []*Context, verdicts []Verdict) report.Table {
	table := report.Table{
		Name: "failures", Title: "failed allocations", Columns: slices.Clone(failureColumns),
		HideFirst: []string{"pid", "device", "expandable_fits", "asked_by", "largest_gap_bytes", "allocated_bytes"},
	}
	anyAllocator, anyAlso := false, false
	for i, sc := range contexts {
		anyAllocator, anyAlso = anyAllocator || sc.hasAllocator, anyAlso || verdicts[i].Also
		addFailure(t, &table, sc, &verdicts[i])
	}
	if !anyAlso {
		report.HideTitle(table.Columns, "also")
	}
	if !anyAllocator {
		for _, key := range []string{"allocated_bytes", "unused_bytes", "largest_gap_bytes", "expandable_fits"} {
			report.HideTitle(table.Columns, key)
		}
	}
	processes.AddRanks(t, &table)
	return table
}

// addFailure adds the row of a failure.
func addFailure(t *timeline.Timeline, table *report.Table, sc *Context, v *Verdict) {
	var allocated, unused, largest, fragmented, reserved, active any
	var told, free, freeAge, after, also, limitLeast, limitBelow any
	if v.Also {
		also = Fragmentation.String()
	}
	if sc.limitBelow > 0 && v.Class == Limit {
		limitBelow = sc.limitBelow
		if sc.limitLeast > 0 {
			limitLeast = sc.limitLeast
		}
	}
	if sc.hasAllocator {
		fragmented = sc.fragmented
		u, l := sc.Unused()
		allocated, unused, largest, reserved, active = sc.totals.Allocated, u, l, sc.totals.Reserved, sc.totals.Active
	}
	if sc.deviceFree >= 0 {
		told = sc.deviceFree
	}
	if sc.free.source != "" && sc.onDevice() {
		free, freeAge = sc.free.bytes, sc.free.ageNs
	}
	if sc.outcomeNs > 0 {
		after = sc.outcomeNs - sc.AtNs
	}
	row := table.Add(report.Values{
		"at_ns":                   sc.AtNs - t.Recording().FromNs,
		"class":                   v.Class.String(),
		"also":                    also,
		"outcome":                 sc.Outcome.String(),
		"requested_bytes":         sc.Requested,
		"free_bytes":              free,
		"allocated_bytes":         allocated,
		"unused_bytes":            unused,
		"largest_gap_bytes":       largest,
		"expandable_fits":         v.Fits,
		"fragmented_bytes":        fragmented,
		"limit_least_bytes":       limitLeast,
		"limit_below_bytes":       limitBelow,
		"reserved_bytes":          reserved,
		"active_bytes":            active,
		"returned_bytes":          sc.returned,
		"driver_calls":            sc.calls,
		"driver_bytes":            sc.asked,
		"free_source":             sc.free.source,
		"free_age_ns":             freeAge,
		"allocator_free_bytes":    told,
		"asked_free_bytes":        sc.free.asked,
		"asked_age_ns":            sc.free.askedAgeNs,
		"nvml_free_bytes":         sc.free.nvml,
		"nvml_age_ns":             sc.free.nvmlAgeNs,
		"other_processes_bytes":   sc.free.others,
		"freed_next_second_bytes": sc.freedNext,
		"recovered_after_ns":      after,
		"confidence":              v.Confidence,
		"confidence_reasons":      v.Reasons,
		"asked_by":                askedBy(t, sc),
		"device":                  t.DeviceLabel(sc.device),
		"pid":                     int64(sc.pid),
		"tid":                     int64(sc.tid),
		"site":                    t.SiteLabel(sc.Origin),
	})
	row.Evidence, row.StackID = sc.evidence(v), t.Origins.List[sc.Origin].Stack
}

// askedBy returns the name of the allocator, or of the function of the driver, that was asked.
func askedBy(t *timeline.Timeline, sc *Context) string {
	if sc.byAllocator {
		return "PyTorch"
	}
	return t.Origins.Name(sc.Origin)
}

// cachedTable returns a table with a row per failure and reason why cached memory was of no use.
func cachedTable(t *timeline.Timeline, contexts []*Context, top int) report.Table {
	table := report.Table{
		Name:      "cached",
		Title:     "unused memory of PyTorch's allocator at the failures",
		Columns:   cachedColumns,
		Secondary: true,
		HideFirst: []string{"segments"},
	}
	for _, sc := range contexts {
		for i := range sc.cached {
			c := &sc.cached[i]
			var by any
			if c.heldBy != "" {
				by = c.heldBy
			}
			table.Add(report.Values{
				"failure_ns":    sc.AtNs - t.Recording().FromNs,
				"bytes":         c.bytes,
				"pieces":        c.pieces,
				"largest_bytes": c.largest,
				"segments":      c.segments,
				"reason":        c.reason.String(),
				"held_by":       by,
			})
		}
	}
	_ = table.Arrange("", top) // no column is asked for
	return table
}

// shownHolders is the number of holders in the table for each failure.
const shownHolders = 5

// holderTable returns a table with a row per failure and call site that held most memory.
func holderTable(t *timeline.Timeline, contexts []*Context, top int) report.Table {
	table := report.Table{
		Name:      "holders",
		Title:     "who held memory at the failures",
		Columns:   holderColumns,
		Secondary: true,
		HideFirst: []string{"share_pct", "memory_kind"},
	}
	for _, sc := range contexts {
		for _, h := range sc.holders[:min(shownHolders, len(sc.holders))] {
			table.Add(report.Values{
				"failure_ns":  sc.AtNs - t.Recording().FromNs,
				"bytes":       h.Bytes,
				"share_pct":   units.Percent(h.Bytes, sc.ownBytes),
				"blocks":      h.Blocks,
				"memory_kind": h.memory,
				"site":        h.site,
			})
		}
	}
	_ = table.Arrange("", top)
	return table
}

// totals sums up all failures; rest is the number of those without a context.
func totals(contexts []*Context, verdicts []Verdict, rest int) []report.Fact {
	var classes [NumClasses]int64
	var fatal, again, also int64
	for i, sc := range contexts {
		classes[verdicts[i].Class]++
		if verdicts[i].Also {
			also++
		}
		switch {
		case sc.Outcome <= NothingSince:
			fatal++
		case sc.Outcome == Retried:
			again++
		}
	}
	return report.Facts(totalColumns, report.Values{
		"failures":                  int64(len(contexts) + rest),
		"fatal":                     fatal,
		"retried":                   again,
		"capacity":                  classes[Capacity],
		"fragmentation":             classes[Fragmentation],
		"cached":                    classes[Cached],
		"limit":                     classes[Limit],
		"other_process":             classes[OtherProcess],
		"unknown":                   classes[Unknown],
		"fragmentation_under_limit": also,
	})
}
