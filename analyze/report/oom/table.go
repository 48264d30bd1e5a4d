package oom

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the columns of facts.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "sentence that is set only if no allocation failed, or if the report omits failures",
	},
}

// failureColumns are the columns of failureTable.
var failureColumns = []report.Column{
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time at which the driver refused or PyTorch's allocator gave up, from the start of the recording",
	},
	{
		Key: "class", Title: "CLASS", Unit: report.UnitText,
		About: "reason of the failure. Capacity: all free and unused memory together was not enough. Fragmentation: " +
			"free device memory and unused memory in PyTorch's segments together were enough, but no piece was. " +
			"Cached: whole segments in PyTorch's cache were enough. Limit: the device had enough free memory, so a " +
			"limit of the allocator, a pool, a MIG slice or a cgroup refused; or the request was for host memory. " +
			"Other process: enough together with the memory of other processes. Unknown: no sample of the free memory",
	},
	{
		Key: "also", Title: "ALSO", Unit: report.UnitText,
		About: "fragmentation: the class is limit, but the request would also have fit into the allocator's unused " +
			"memory if that were in one piece; else absent",
	},
	{
		Key: "outcome", Title: "THEN", Unit: report.UnitText,
		About: "behaviour of the thread after the failure. Retried: the same request succeeded after the allocator " +
			"freed its cache, without an error for the program. Recovered: an allocation of the same size succeeded " +
			"later. Went on: a smaller allocation succeeded, or the thread used the GPU. Nothing since: no further " +
			"work. Ended: no further work, and the process ended",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "requested bytes; for a request that PyTorch gave up, rounded up to 512",
	},
	{
		Key: "free_bytes", Title: "FREE", Unit: report.UnitBytes,
		About: "free memory of the device: from PyTorch's event, or else from the nearest cuMemGetInfo or NVML " +
			"sample. At most the device's memory minus recorded allocations. Absent for host memory",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes in allocated blocks of PyTorch's allocator for this process and device",
	},
	{
		Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes,
		About: "unused bytes in the segments of PyTorch's allocator; see the table cached",
	},
	{
		Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes,
		About: "largest unused piece in the segments of PyTorch's allocator",
	},
	{
		Key: "expandable_fits", Title: "EXPANDABLE", Unit: report.UnitText,
		About: "whether expandable segments would have avoided the failure. Yes: free memory and whole steps of 20 " +
			"MiB in unused memory are enough. Perhaps: whole pages of 2 MiB are enough. No: neither. Absent if they " +
			"are on, or if PyTorch's allocator did not make the request",
	},
	{
		Key: "fragmented_bytes", Title: "", Unit: report.UnitBytes,
		About: "part of UNUSED in pieces that are smaller than the request",
	},
	{
		Key: "limit_least_bytes", Title: "", Unit: report.UnitBytes,
		About: "lower bound of the allocator's own limit: its highest reserved bytes. Absent unless it gave up " +
			"without calling the driver, and if the program lowered the limit",
	},
	{
		Key: "limit_below_bytes", Title: "", Unit: report.UnitBytes,
		About: "upper bound of the allocator's own limit: reserved bytes plus a segment for the request",
	},
	{
		Key: "limit_bytes", Title: "LIMIT", Unit: report.UnitBytes,
		About: "the allocator's own limit of reserved bytes, as set_per_process_memory_fraction sets it. It was read " +
			"when gpurec attached, and agrees with the bounds. The column is absent if no limit is known",
	},
	{
		Key: "reserved_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that PyTorch's allocator held from the driver",
	},
	{
		Key: "active_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of blocks of PyTorch's allocator that the program held or a stream used",
	},
	{
		Key: "returned_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that PyTorch's allocator returned to the driver before the request ended",
	},
	{Key: "driver_calls", Title: "", Unit: report.UnitCount, About: "number of failed driver calls for this request"},
	{
		Key: "driver_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of the driver call; 0 if the allocator did not call the driver",
	},
	{Key: "free_source", Title: "", Unit: report.UnitText, About: "source of FREE"},
	{
		Key: "free_age_ns", Title: "", Unit: report.UnitNs,
		About: "age of the sample for FREE at the failure; negative if the sample is later",
	},
	{
		Key: "allocator_free_bytes", Title: "", Unit: report.UnitBytes,
		About: "free memory of the device, from PyTorch's out-of-memory event",
	},
	{
		Key: "asked_free_bytes", Title: "", Unit: report.UnitBytes,
		About: "free memory of the device, from the program's nearest cuMemGetInfo",
	},
	{
		Key: "asked_age_ns", Title: "", Unit: report.UnitNs,
		About: "age of the cuMemGetInfo sample at the failure; negative if it is later",
	},
	{
		Key: "nvml_free_bytes", Title: "", Unit: report.UnitBytes,
		About: "free memory of the device, from NVML's nearest sample",
	},
	{
		Key: "nvml_age_ns", Title: "", Unit: report.UnitNs,
		About: "age of the NVML sample at the failure; negative if it is later",
	},
	{
		Key: "other_processes_bytes", Title: "", Unit: report.UnitBytes,
		About: "memory of other processes on the device, from NVML's nearest samples",
	},
	{
		Key: "freed_next_second_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes that the process freed on the device within one second after the failure",
	},
	{
		Key: "recovered_after_ns", Title: "", Unit: report.UnitNs,
		About: "time until an allocation of the thread succeeded",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in CLASS: high, medium or low; see confidence_reasons",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost calls, a model that differs from the allocator's statistics, " +
			"segments from before the recording, an old sample of the free memory",
	},
	{
		Key: "asked_by", Title: "BY", Unit: report.UnitText,
		About: "allocator that got the request: PyTorch, or the driver function",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "thread id"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the request",
	},
}

// cachedMemoryColumns are the columns of cachedMemoryTable.
var cachedMemoryColumns = []report.Column{
	{Key: "failure_ns", Title: "AT", Unit: report.UnitNs, About: "time of the failure, AT of the table failures"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "unused bytes in PyTorch's segments"},
	{Key: "pieces", Title: "PIECES", Unit: report.UnitCount, About: "number of pieces of this unused memory"},
	{Key: "largest_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "largest piece of this unused memory"},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "number of segments, or of contiguous ranges of expandable segments, with this unused memory",
	},
	{
		Key: "reason", Title: "WHY OF NO USE", Unit: report.UnitText,
		About: "reason why the request could not use the memory. For blocks of another size: the segments are " +
			"for blocks up to 1 MiB, or for larger ones. Still used by a stream: the program freed the block, but a " +
			"stream still uses it. Whole segments: they return to the driver when the allocator frees its cache",
	},
	{
		Key: "held_by", Title: "HELD BY", Unit: report.UnitText,
		About: "call site whose blocks are in the segments with most of this memory",
	},
}

// holderColumns are the columns of holderTable.
var holderColumns = []report.Column{
	{Key: "failure_ns", Title: "AT", Unit: report.UnitNs, About: "time of the failure, AT of the table failures"},
	{
		Key: "bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "bytes that the call site held; requested sizes for PyTorch's blocks",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of HELD in all memory that the process held on the device",
	},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "number of live allocations, whose bytes are HELD"},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of memory; torch means blocks of PyTorch's allocator",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that allocated the memory",
	},
}

// totalColumns are the columns of totals.
var totalColumns = []report.Column{
	{
		Key: "failures", Title: "failures", Unit: report.UnitCount,
		About: "failed allocations, including those whose retry succeeded",
	},
	{
		Key: "fatal", Title: "without recovery", Unit: report.UnitCount,
		About: "failures after which the thread did no further GPU work",
	},
	{
		Key: "retried", Title: "retried", Unit: report.UnitCount,
		About: "failures whose retry by the allocator succeeded: the program lost only time",
	},
	{Key: "capacity", Title: "capacity", Unit: report.UnitCount, About: "failures of class capacity"},
	{Key: "fragmentation", Title: "fragmentation", Unit: report.UnitCount, About: "failures of class fragmentation"},
	{Key: "cached", Title: "cached", Unit: report.UnitCount, About: "failures of class cached"},
	{Key: "limit", Title: "limit", Unit: report.UnitCount, About: "failures of class limit"},
	{Key: "other_process", Title: "other process", Unit: report.UnitCount, About: "failures of class other process"},
	{Key: "unknown", Title: "unknown", Unit: report.UnitCount, About: "failures of class unknown"},
	{
		Key: "fragmentation_under_limit", Title: "fragmentation under a limit", Unit: report.UnitCount,
		About: "failures of class limit whose column also says fragmentation",
	},
}

// computeFacts returns the facts of the report. failures is the number of failures, rest the number
// of failures that no table lists.
func computeFacts(failures, rest int) []report.Fact {
	result := ""
	switch {
	case failures == 0:
		result = "no allocation failed"
	case rest > 0:
		result = fmt.Sprintf("%s more are in no table", units.CountWithNoun(int64(rest), "failure"))
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// failureTable returns a table with one row per failure.
func failureTable(t *timeline.Timeline, contexts []*FailureContext, verdicts []Verdict) report.Table {
	table := report.Table{
		Name: "failures", Title: "failed allocations", Columns: slices.Clone(failureColumns),
		HideFirst: []string{"pid", "device", "expandable_fits", "asked_by", "largest_gap_bytes", "allocated_bytes"},
	}
	anyAllocator, anyAlso := false, false
	for i, sc := range contexts {
		anyAllocator, anyAlso = anyAllocator || sc.hasAllocator, anyAlso || verdicts[i].AlsoFragmentation
		addFailureRow(t, &table, sc, &verdicts[i])
	}
	if !anyAlso {
		report.HideTitle(table.Columns, "also")
	}
	table.DropEmptyColumn("limit_bytes")
	if !anyAllocator {
		for _, key := range []string{"allocated_bytes", "unused_bytes", "largest_gap_bytes", "expandable_fits"} {
			report.HideTitle(table.Columns, key)
		}
	}
	processes.AddRankColumn(t, &table)
	return table
}

// addFailureRow adds the row of one failure.
func addFailureRow(t *timeline.Timeline, table *report.Table, sc *FailureContext, v *Verdict) {
	var allocated, unused, largest, fragmented, reserved, active any
	var allocatorFree, free, freeAge, recoveredAfter, also, limitLeast, limitBelow, limit any
	if v.AlsoFragmentation {
		also = ClassFragmentation.String()
	}
	if sc.limitBelow > 0 && v.Class == ClassLimit {
		limitBelow = sc.limitBelow
		if sc.limitLeast > 0 {
			limitLeast = sc.limitLeast
		}
		if sc.limit > 0 {
			limit = sc.limit
		}
	}
	if sc.hasAllocator {
		fragmented = sc.fragmented
		u, l := sc.UnusedBytes()
		allocated, unused, largest, reserved, active = sc.totals.Allocated, u, l, sc.totals.Reserved, sc.totals.Active
	}
	if sc.deviceFree >= 0 {
		allocatorFree = sc.deviceFree
	}
	if sc.free.source != "" && sc.isDeviceRequest() {
		free, freeAge = sc.free.bytes, sc.free.ageNs
	}
	if sc.outcomeNs > 0 {
		recoveredAfter = sc.outcomeNs - sc.AtNs
	}
	row := table.Add(report.Values{
		"at_ns":                   sc.AtNs - t.RecordingWindow().FromNs,
		"class":                   v.Class.String(),
		"also":                    also,
		"outcome":                 sc.Outcome.String(),
		"requested_bytes":         sc.Requested,
		"free_bytes":              free,
		"allocated_bytes":         allocated,
		"unused_bytes":            unused,
		"largest_gap_bytes":       largest,
		"expandable_fits":         v.ExpandableFits,
		"fragmented_bytes":        fragmented,
		"limit_least_bytes":       limitLeast,
		"limit_below_bytes":       limitBelow,
		"limit_bytes":             limit,
		"reserved_bytes":          reserved,
		"active_bytes":            active,
		"returned_bytes":          sc.returnedBytes,
		"driver_calls":            sc.driverCalls,
		"driver_bytes":            sc.driverBytes,
		"free_source":             sc.free.source,
		"free_age_ns":             freeAge,
		"allocator_free_bytes":    allocatorFree,
		"asked_free_bytes":        sc.free.queried,
		"asked_age_ns":            sc.free.queriedAgeNs,
		"nvml_free_bytes":         sc.free.nvml,
		"nvml_age_ns":             sc.free.nvmlAgeNs,
		"other_processes_bytes":   sc.free.others,
		"freed_next_second_bytes": sc.freedAfter,
		"recovered_after_ns":      recoveredAfter,
		"confidence":              v.Confidence,
		"confidence_reasons":      v.Reasons,
		"asked_by":                requestedFrom(t, sc),
		"device":                  t.DeviceLabel(sc.device),
		"pid":                     int64(sc.pid),
		"tid":                     int64(sc.tid),
		"site":                    t.SiteOfOrigin(sc.Origin),
	})
	row.Evidence, row.StackID = sc.evidenceText(v), t.Origins.List[sc.Origin].Stack
}

// requestedFrom returns the name of the allocator, or of the driver function, that got the request.
func requestedFrom(t *timeline.Timeline, sc *FailureContext) string {
	if sc.byAllocator {
		return "PyTorch"
	}
	return t.Origins.FunctionOf(sc.Origin)
}

// cachedMemoryTable returns a table with one row per failure and reason why cached memory could not
// be used.
func cachedMemoryTable(t *timeline.Timeline, contexts []*FailureContext, top int) report.Table {
	table := report.Table{
		Name:      "cached",
		Title:     "unused memory of PyTorch's allocator at the failures",
		Columns:   cachedMemoryColumns,
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
				"failure_ns":    sc.AtNs - t.RecordingWindow().FromNs,
				"bytes":         c.bytes,
				"pieces":        c.pieces,
				"largest_bytes": c.largest,
				"segments":      c.segments,
				"reason":        c.reason.String(),
				"held_by":       by,
			})
		}
	}
	_ = table.SortAndCut("", top) // cannot fail without a sort column
	return table
}

// maxShownHolders is the number of call sites per failure in the table of holders.
const maxShownHolders = 5

// holderTable returns a table with one row per failure and call site, for the call sites that held
// the most memory.
func holderTable(t *timeline.Timeline, contexts []*FailureContext, top int) report.Table {
	table := report.Table{
		Name:      "holders",
		Title:     "call sites that held memory at the failures",
		Columns:   holderColumns,
		Secondary: true,
		HideFirst: []string{"share_pct", "memory_kind"},
	}
	for _, sc := range contexts {
		for _, h := range sc.holders[:min(maxShownHolders, len(sc.holders))] {
			table.Add(report.Values{
				"failure_ns":  sc.AtNs - t.RecordingWindow().FromNs,
				"bytes":       h.Bytes,
				"share_pct":   units.Percent(h.Bytes, sc.ownBytes),
				"blocks":      h.Blocks,
				"memory_kind": h.memory,
				"site":        h.site,
			})
		}
	}
	_ = table.SortAndCut("", top)
	return table
}

// computeTotals returns the sums over all failures. rest is the number of failures without a
// context.
func computeTotals(contexts []*FailureContext, verdicts []Verdict, rest int) []report.Fact {
	var classes [ClassCount]int64
	var fatal, again, also int64
	for i, sc := range contexts {
		classes[verdicts[i].Class]++
		if verdicts[i].AlsoFragmentation {
			also++
		}
		switch {
		case sc.Outcome <= OutcomeInactive:
			fatal++
		case sc.Outcome == OutcomeRetried:
			again++
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"failures":                  int64(len(contexts) + rest),
		"fatal":                     fatal,
		"retried":                   again,
		"capacity":                  classes[ClassCapacity],
		"fragmentation":             classes[ClassFragmentation],
		"cached":                    classes[ClassCached],
		"limit":                     classes[ClassLimit],
		"other_process":             classes[ClassOtherProcess],
		"unknown":                   classes[ClassUnknown],
		"fragmentation_under_limit": also,
	})
}
