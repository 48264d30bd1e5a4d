package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "agreement", Title: "agreement", Unit: report.UnitText,
		About: "agreement of the model's allocated and reserved bytes with the allocators' own statistics",
	},
	{
		Key: "seen_from", Title: "seen from", Unit: report.UnitText,
		About: "point in time from which the recording has the allocators' events",
	},
}

// totalColumns are the totals of the allocator report.
var totalColumns = []report.Column{
	{
		Key: "allocated_bytes", Title: "allocated", Unit: report.UnitBytes,
		About: "allocated bytes of all allocators at the end of the window or of their process",
	},
	{
		Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes,
		About: "reserved bytes of all allocators at the end of the window or of their process",
	},
	{
		Key: "cached_bytes", Title: "cached", Unit: report.UnitBytes,
		About: "cached bytes of all allocators at the end of the window or of their process",
	},
	{
		Key: "ooms", Title: "out of memory", Unit: report.UnitCount,
		About: "requests in the window that failed because of too little memory",
	},
	{
		Key: "compared_events", Title: "compared events", Unit: report.UnitCount,
		About: "events compared with the allocators' own statistics, in the whole recording",
	},
	{
		Key: "disagreed_events", Title: "disagreed", Unit: report.UnitCount,
		About: "compared events at which the model and the allocator's statistics differed",
	},
	{
		Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes,
		About: "largest difference between the model and an allocator's own statistics",
	},
	{
		Key: "late_allocators", Title: "seen late", Unit: report.UnitCount,
		About: "allocators whose first event is not in the recording",
	},
}

// memoryTotalsColumns are the columns for a caching.AllocatorTotals.
var memoryTotalsColumns = []report.Column{
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of blocks that the program holds: allocated_bytes.all.current of torch.cuda.memory_stats()",
	},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes that the allocator holds from the driver: reserved_bytes.all.current of " +
			"torch.cuda.memory_stats()",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "requested sizes of blocks in use by the program or a stream: requested_bytes.all.current of " +
			"torch.cuda.memory_stats()",
	},
	{
		Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes,
		About: "bytes of blocks in use by the program or a stream: active_bytes.all.current of " +
			"torch.cuda.memory_stats()",
	},
	{
		Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes,
		About: "reserved bytes that are not active. For an allocator known only from its memory reports: reserved " +
			"bytes that are not allocated",
	},
	{
		Key: "inactive_split_bytes", Title: "SPLIT", Unit: report.UnitBytes,
		About: "cached bytes in segments with blocks in use, which therefore cannot return to the driver. Without " +
			"expandable segments this is inactive_split_bytes.all.current of torch.cuda.memory_stats()",
	},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "segments from the driver, excluding expandable ones: segment.all.current of torch.cuda.memory_stats()",
	},
	{
		Key: "allocations", Title: "BLOCKS", Unit: report.UnitCount,
		About: "number of blocks that the program holds: allocation.all.current of torch.cuda.memory_stats()",
	},
}

// memoryTotalsValues returns the values of memoryTotalsColumns. byReports means that the allocator
// is known only from its memory reports; then some values are nil.
func memoryTotalsValues(t caching.AllocatorTotals, byReports bool) report.Values {
	v := report.Values{
		"allocated_bytes":      t.Allocated,
		"reserved_bytes":       t.Reserved,
		"requested_bytes":      t.Requested,
		"active_bytes":         t.Active,
		"cached_bytes":         t.Reserved - t.Active,
		"inactive_split_bytes": t.InactiveSplit,
		"segments":             t.Segments,
		"allocations":          t.Allocations,
	}
	if byReports {
		v["cached_bytes"] = t.Reserved - t.Allocated
		for _, key := range []string{"requested_bytes", "active_bytes", "inactive_split_bytes", "segments"} {
			v[key] = nil
		}
	}
	return v
}

// allocatorIDColumns identify the allocator of a row.
var allocatorIDColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitID, About: "CUDA device of the process"},
}

// idValues returns the values of allocatorIDColumns.
func (s *allocatorStats) idValues() report.Values {
	return report.Values{"pid": int64(s.a.Pid), "device": int64(s.a.Device)}
}

// columnsHiddenFirst are the columns that text output hides first.
var columnsHiddenFirst = []string{"active_bytes", "requested_bytes", "segments", "inactive_split_bytes", "pid"}

// allocatorColumns are the columns of Scan.allocatorTable.
var allocatorColumns = slices.Concat(allocatorIDColumns, []report.Column{
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
}, memoryTotalsColumns, []report.Column{
	{
		Key: "ended", Title: "", Unit: report.UnitRatio,
		About: "true if the process ended; the values are those at its end",
	},
	{
		Key: "from_start", Title: "", Unit: report.UnitRatio,
		About: "true if the recording has the allocator's first event; then all values are exact. Otherwise only " +
			"allocated_bytes and reserved_bytes are exact. The other values lack blocks and segments from before the " +
			"recording that were not freed in it. Their changes are exact except for inactive_split_bytes",
	},
	{Key: "events", Title: "", Unit: report.UnitCount, About: "events of the allocator in the recording"},
	{
		Key: "compared_events", Title: "", Unit: report.UnitCount,
		About: "events that carry the allocator's own allocated and reserved bytes; the report compares each with " +
			"the model",
	},
	{
		Key: "disagreed_events", Title: "", Unit: report.UnitCount,
		About: "compared events at which the model's bytes differed; the model then takes the allocator's values",
	},
	{Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes, About: "largest difference at a compared event"},
	{
		Key: "resized_blocks", Title: "", Unit: report.UnitCount,
		About: "blocks whose size by the allocator's statistics differs from the size by its rounding rules",
	},
	{
		Key: "unmatched_frees", Title: "", Unit: report.UnitCount,
		About: "frees of blocks that were allocated before the recording, and not read when gpurec attached",
	},
	{
		Key: "lost_frees", Title: "", Unit: report.UnitCount,
		About: "blocks and segments whose free is not in the recording because events were lost",
	},
})

// allocatorTable returns a table with one row per allocator, at the end of the window.
func (s *Scan) allocatorTable() report.Table {
	table := report.Table{
		Name:      "allocators",
		Title:     "at the end",
		Columns:   allocatorColumns,
		HideFirst: append([]string{"process"}, columnsHiddenFirst[:4]...),
		Secondary: true,
	}
	for _, b := range s.list {
		c, k := &b.a.Counts, &b.a.Check
		table.Add(report.JoinValues(b.idValues(), memoryTotalsValues(b.end, b.a.Reports), report.Values{
			"process":                units.TextOrNil(s.t.Facts.Processes[b.a.Pid].Name),
			"ended":                  b.endNs != 0,
			"from_start":             b.a.IsRecordedFromStart(),
			"events":                 c.Events,
			"compared_events":        k.Compared,
			"disagreed_events":       k.Disagreed,
			"worst_difference_bytes": k.WorstBytes,
			"resized_blocks":         k.Resized,
			"unmatched_frees":        c.UnmatchedFrees,
			"lost_frees":             c.LostFrees,
		}))
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// peakColumns are the columns of Scan.peakTable.
var peakColumns = slices.Concat([]report.Column{
	{
		Key: "peak_of", Title: "PEAK OF", Unit: report.UnitText,
		About: "the quantity whose first peak in the window this row shows: allocated or reserved",
	},
	{Key: "at_ns", Title: "", Unit: report.UnitTime, About: "time of the peak, Unix ns"},
	{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "time of the peak, from the start of the recording"},
}, allocatorIDColumns, memoryTotalsColumns)

// peakTable returns a table with two rows per allocator: one at its peak of allocated bytes, one at
// its peak of reserved bytes.
func (s *Scan) peakTable() report.Table {
	table := report.Table{
		Name: "peaks", Title: "at the peaks", Columns: peakColumns, HideFirst: columnsHiddenFirst, Secondary: true,
	}
	start := s.t.RecordingWindow().FromNs
	for i, name := range []string{"allocated", "reserved"} {
		for _, b := range s.list {
			if p := &b.peaks[i]; p.atNs != 0 {
				table.Add(
					report.JoinValues(
						report.Values{"peak_of": name, "at_ns": p.atNs, "offset_ns": p.atNs - start},
						b.idValues(),
						memoryTotalsValues(p.totals, b.a.Reports),
					),
				)
			}
		}
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// eventColumns are the columns of Scan.eventTable.
var eventColumns = slices.Concat(allocatorIDColumns, []report.Column{
	{
		Key: "action", Title: "ACTION", Unit: report.UnitText,
		About: "action of the allocator, by PyTorch's name; snapshots are not listed",
	},
	{Key: "events", Title: "EVENTS", Unit: report.UnitCount, About: "number of these actions in the window"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "sum of the bytes: requested sizes of blocks, full sizes of segments",
	},
})

// eventTable returns a table with one row per allocator and kind of event.
func (s *Scan) eventTable() report.Table {
	table := report.Table{Name: "events", Title: "events", Columns: eventColumns, Secondary: true}
	for _, b := range s.list {
		for op, n := range b.actions {
			if n.events > 0 {
				table.Add(
					report.JoinValues(
						b.idValues(),
						report.Values{
							"action": caching.SnapshotActionsByOp[caching.AllocatorOp(op)],
							"events": n.events,
							"bytes":  n.bytes,
						},
					),
				)
			}
		}
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// poolColumns are the columns of Scan.poolTable.
var poolColumns = slices.Concat(allocatorIDColumns, []report.Column{
	{
		Key: "pool", Title: "POOL", Unit: report.UnitText,
		About: "pool of the allocator. Private n: created by the program, PyTorch's pool (0, n). Graph n: of a " +
			"captured CUDA graph, PyTorch's pool (n, 0). Default: any other memory",
	},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream that the memory is reserved for"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes held from the driver at the end; excludes segments from before the recording, unless they " +
			"were read",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of blocks that the program holds; excludes blocks allocated before the recording, unless they " +
			"were read",
	},
	{
		Key: "awaiting_bytes", Title: "AWAITING", Unit: report.UnitBytes,
		About: "bytes of blocks that the program freed but a stream still uses",
	},
	{Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes, About: "unused bytes between the blocks"},
	{
		Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount,
		About: "number of blocks that the program holds or a stream uses",
	},
})

// poolTable returns a table with one row per pool and stream, largest first.
func (s *Scan) poolTable() report.Table {
	table := report.Table{Name: "pools", Title: "pools and streams at the end", Columns: poolColumns, Secondary: true}
	for _, b := range s.list {
		if b.a.Reports {
			continue // memory reports name neither pool nor stream
		}
		keys := slices.SortedFunc(maps.Keys(b.pools), func(x, y poolStreamKey) int {
			return cmp.Or(
				cmp.Compare(b.pools[y].reserved, b.pools[x].reserved),
				cmp.Compare(x.pool, y.pool),
				cmp.Compare(x.stream, y.stream),
			)
		})
		for _, key := range keys {
			u := b.pools[key]
			table.Add(report.JoinValues(b.idValues(), report.Values{
				"pool":            caching.FormatPool(key.pool),
				"stream":          query.StreamName(key.stream),
				"reserved_bytes":  u.reserved,
				"allocated_bytes": u.allocated,
				"awaiting_bytes":  u.awaiting,
				"cached_bytes":    u.reserved - (u.allocated + u.awaiting - u.old),
				"blocks":          u.blocks,
			}))
		}
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// momentColumns are the columns of Scan.momentTable.
var momentColumns = slices.Concat(
	[]report.Column{
		{
			Key: "at_ns", Title: "", Unit: report.UnitTime,
			About: "point in time, Unix ns; includes the events at this time",
		},
		{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "point in time, from the start of the recording"},
	}, allocatorIDColumns, memoryTotalsColumns)

// momentTable returns a table with one row per reported time and allocator, until its process ends.
func (s *Scan) momentTable() report.Table {
	table := report.Table{Name: "moments", Title: "over time", Columns: momentColumns, HideFirst: columnsHiddenFirst}
	start := s.t.RecordingWindow().FromNs
	for i, at := range s.times {
		for _, b := range s.list {
			if b.endNs == 0 || at < b.endNs {
				table.Add(
					report.JoinValues(
						report.Values{"at_ns": at, "offset_ns": at - start},
						b.idValues(),
						memoryTotalsValues(b.moments[i], b.a.Reports),
					),
				)
			}
		}
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// computeFacts returns sentences on the accuracy of the totals.
func (s *Scan) computeFacts() []report.Fact {
	if len(s.list) == 0 {
		return report.NewFacts(factColumns, report.Values{
			"agreement": "the recording has no events of PyTorch's caching allocator that pass the filter",
			"seen_from": "",
		})
	}
	sum := s.sumAllocators()
	agreement := fmt.Sprintf(
		"%s compared with the allocator's own statistics, all equal",
		units.CountWithNoun(sum.compared, "event"),
	)
	hasRead := slices.ContainsFunc(s.list, func(b *allocatorStats) bool { return b.a.Earlier != nil })
	switch {
	case sum.compared == 0 && hasRead:
		agreement = "no event carries the allocator's own statistics; the blocks that were read equal them"
	case sum.compared == 0:
		agreement = "no event carries the allocator's own statistics: block sizes follow its rounding rules"
	case sum.disagreed > 0:
		agreement = fmt.Sprintf(
			"%s compared with the allocator's own statistics, %s differ, by up to %s",
			units.CountWithNoun(sum.compared, "event"),
			units.FormatCount(sum.disagreed),
			units.FormatBytes(sum.worst),
		)
	}
	from := "the first event of each allocator: all values are exact"
	if hasRead {
		from = "a later event, and the blocks and segments from before were read: all values are exact from then on"
		isLate := func(b *allocatorStats) bool { return b.a.Earlier != nil && !b.a.IsRewound }
		if !slices.ContainsFunc(s.list, isLate) {
			from = "the start of the recording, because the blocks and segments from before were read: all values " +
				"are exact"
		}
	}
	if s.t.IsAllocatorSampled() {
		from = s.describeWindows()
	}
	if sum.late > 0 {
		from = fmt.Sprintf("a later event for %d of %d allocators: allocated and reserved bytes are exact, other "+
			"values lack unfreed memory from before; see --explain", sum.late, len(s.list))
	}
	return report.NewFacts(factColumns, report.Values{
		"agreement": agreement,
		"seen_from": from,
	})
}

// describeWindows says which values are exact in a recording that lacks events for part of the time.
func (s *Scan) describeWindows() string {
	text := "windows of events, and readings between them. Allocated and reserved bytes are exact at each event, at " +
		"each reading and every 100 ms. Other values are exact at events and readings. "
	if slices.ContainsFunc(s.list, func(b *allocatorStats) bool { return !b.hasOwnPeak }) {
		return text + "Peaks are at least the given ones"
	}
	return text + "The peaks of allocated bytes are the allocators' own; other values at peaks are those of the last " +
		"event or reading"
}

// computeTotals returns the sums over all allocators at the end of the window.
func (s *Scan) computeTotals() []report.Fact {
	sum := s.sumAllocators()
	return report.NewFacts(totalColumns, report.Values{
		"allocated_bytes":        sum.end.Allocated,
		"reserved_bytes":         sum.end.Reserved,
		"cached_bytes":           sum.end.Reserved - sum.end.Active,
		"ooms":                   sum.oom,
		"compared_events":        sum.compared,
		"disagreed_events":       sum.disagreed,
		"worst_difference_bytes": sum.worst,
		"late_allocators":        sum.late,
	})
}
