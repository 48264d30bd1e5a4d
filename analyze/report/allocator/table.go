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

var factColumns = []report.Column{
	{
		Key: "agreement", Title: "agreement", Unit: report.UnitText,
		About: "how far the model agrees with the totals of allocated and reserved bytes that the allocators keep " +
			"themselves",
	},
	{
		Key: "seen_from", Title: "seen from", Unit: report.UnitText,
		About: "whether the recording has the allocators' first events",
	},
}

var totalColumns = []report.Column{
	{
		Key: "allocated_bytes", Title: "allocated", Unit: report.UnitBytes,
		About: "of all allocators, at the end of the window or of their process",
	},
	{Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes, About: "of all allocators, then"},
	{Key: "cached_bytes", Title: "cached", Unit: report.UnitBytes, About: "of all allocators, then"},
	{
		Key: "ooms", Title: "out of memory", Unit: report.UnitCount,
		About: "requests in the window that could not be fulfilled",
	},
	{
		Key: "compared_events", Title: "compared events", Unit: report.UnitCount,
		About: "of all allocators, in the whole recording",
	},
	{
		Key: "disagreed_events", Title: "disagreed", Unit: report.UnitCount,
		About: "of all allocators, in the whole recording",
	},
	{Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes, About: "the largest difference"},
	{
		Key: "late_allocators", Title: "seen late", Unit: report.UnitCount,
		About: "allocators of which the recording does not have the first event",
	},
}

// totalsColumns are the columns of caching.Totals.
var totalsColumns = []report.Column{
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of blocks that the program has: allocated_bytes.all.current of torch.cuda.memory_stats()",
	},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes from the driver: reserved_bytes.all.current",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "bytes asked for, of blocks in use by program or streams: requested_bytes.all.current",
	},
	{
		Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes,
		About: "bytes of blocks in use by program or streams: active_bytes.all.current",
	},
	{
		Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes,
		About: "reserved bytes that are not active; of an allocator that is known by its reports, that are not " +
			"allocated",
	},
	{
		Key: "inactive_split_bytes", Title: "SPLIT", Unit: report.UnitBytes,
		About: "of cached bytes, those in segments that have blocks in use, which therefore cannot go back to the " +
			"driver; without expandable segments: inactive_split_bytes.all.current",
	},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "pieces of memory from the driver, without expandable segments: segment.all.current",
	},
	{
		Key: "allocations", Title: "BLOCKS", Unit: report.UnitCount,
		About: "blocks that the program has: allocation.all.current",
	},
}

// totalsValues returns the values of totalsColumns. An allocator that is known by its reports tells
// only some of them.
func totalsValues(t caching.Totals, byReports bool) report.Values {
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

// ownerColumns name the allocator of a row.
var ownerColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitID, About: "CUDA device of the process"},
}

// ownerValues returns the values of ownerColumns.
func (b *allocatorStats) ownerValues() report.Values {
	return report.Values{"pid": int64(b.a.Pid), "device": int64(b.a.Device)}
}

// spareTotals are the columns that text leaves out first.
var spareTotals = []string{"active_bytes", "requested_bytes", "segments", "inactive_split_bytes", "pid"}

var allocatorColumns = slices.Concat(ownerColumns, []report.Column{
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
}, totalsColumns, []report.Column{
	{
		Key: "ended", Title: "", Unit: report.UnitRatio,
		About: "true if the process ended: the values are what it had then",
	},
	{
		Key: "from_start", Title: "", Unit: report.UnitRatio,
		About: "true if the recording has the allocator's first event: all values are exact. Otherwise " +
			"allocated_bytes and reserved_bytes are, the others lack blocks and segments from before the recording " +
			"that were not freed in it, and their changes are exact but for inactive_split_bytes",
	},
	{Key: "events", Title: "", Unit: report.UnitCount, About: "events of the allocator in the recording"},
	{
		Key: "compared_events", Title: "", Unit: report.UnitCount,
		About: "events that tell the allocator's own totals of allocated and reserved bytes; in the report they are " +
			"compared with the model, one by one",
	},
	{
		Key: "disagreed_events", Title: "", Unit: report.UnitCount,
		About: "of those, events at which the model had others; it goes on with the allocator's",
	},
	{Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes, About: "the largest such difference"},
	{
		Key: "resized_blocks", Title: "", Unit: report.UnitCount,
		About: "blocks of another size, by the allocator's totals, than its rules say",
	},
	{Key: "unmatched_frees", Title: "", Unit: report.UnitCount, About: "frees of blocks from before the recording"},
	{
		Key: "lost_frees", Title: "", Unit: report.UnitCount,
		About: "blocks and segments that ended unseen: events were lost",
	},
})

// table returns a table with a row per allocator, at the end of the window.
func (s *Scan) table() report.Table {
	table := report.Table{
		Name:      "allocators",
		Title:     "at the end",
		Columns:   allocatorColumns,
		HideFirst: append([]string{"process"}, spareTotals[:4]...),
		Secondary: true,
	}
	for _, b := range s.list {
		c, k := &b.a.Counts, &b.a.Check
		table.Add(report.Join(b.ownerValues(), totalsValues(b.end, b.a.Reports), report.Values{
			"process":                units.Known(s.t.Facts.Processes[b.a.Pid].Name),
			"ended":                  b.endNs != 0,
			"from_start":             b.a.FromStart(),
			"events":                 c.Events,
			"compared_events":        k.Compared,
			"disagreed_events":       k.Disagreed,
			"worst_difference_bytes": k.WorstBytes,
			"resized_blocks":         k.Resized,
			"unmatched_frees":        c.UnmatchedFrees,
			"lost_frees":             c.LostFrees,
		}))
	}
	processes.AddRanks(s.t, &table)
	return table
}

var peakColumns = slices.Concat([]report.Column{
	{
		Key: "peak_of", Title: "PEAK OF", Unit: report.UnitText,
		About: "allocated or reserved bytes: the first moment of the window at which they were highest",
	},
	{Key: "at_ns", Title: "", Unit: report.UnitTime, About: "that moment, Unix ns"},
	{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "the same, from the recording's start"},
}, ownerColumns, totalsColumns)

// peakTable returns a table with two rows per allocator: at its peak of allocated and of reserved
// bytes.
func (s *Scan) peakTable() report.Table {
	table := report.Table{Name: "peaks", Title: "at the peaks", Columns: peakColumns, HideFirst: spareTotals, Secondary: true}
	start := s.t.Recording().FromNs
	for i, name := range []string{"allocated", "reserved"} {
		for _, b := range s.list {
			if p := &b.peaks[i]; p.atNs != 0 {
				table.Add(
					report.Join(
						report.Values{"peak_of": name, "at_ns": p.atNs, "offset_ns": p.atNs - start},
						b.ownerValues(),
						totalsValues(p.totals, b.a.Reports),
					),
				)
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var eventColumns = slices.Concat(ownerColumns, []report.Column{
	{
		Key: "action", Title: "ACTION", Unit: report.UnitText,
		About: "what the allocator did, in PyTorch's words; that somebody took a snapshot is not told",
	},
	{Key: "events", Title: "EVENTS", Unit: report.UnitCount, About: "how often it did in the window"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "sum of the bytes: of blocks as asked for, of segments their size",
	},
})

// eventTable returns a table with a row per allocator and kind of event.
func (s *Scan) eventTable() report.Table {
	table := report.Table{Name: "events", Title: "events", Columns: eventColumns, Secondary: true}
	for _, b := range s.list {
		for op, n := range b.actions {
			if n.events > 0 {
				table.Add(
					report.Join(
						b.ownerValues(),
						report.Values{
							"action": caching.ActionsByOp[caching.Op(op)],
							"events": n.events,
							"bytes":  n.bytes,
						},
					),
				)
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var poolColumns = slices.Concat(ownerColumns, []report.Column{
	{
		Key: "pool", Title: "POOL", Unit: report.UnitText,
		About: "default; private n, asked for by the program (PyTorch's pool (0, n)); graph n, of a captured graph " +
			"(pool (n, 0))",
	},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream that the memory is for"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes from the driver at the end; without segments from before the recording",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of blocks that the program has, as far as their allocation was seen",
	},
	{
		Key: "awaiting_bytes", Title: "AWAITING", Unit: report.UnitBytes,
		About: "bytes of blocks that the program gave back and a stream still uses",
	},
	{Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes, About: "bytes of gaps between the blocks"},
	{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount, About: "blocks that the program has or streams use"},
})

// poolTable returns a table with a row per pool and stream, largest first.
func (s *Scan) poolTable() report.Table {
	table := report.Table{Name: "pools", Title: "pools and streams at the end", Columns: poolColumns, Secondary: true}
	for _, b := range s.list {
		if b.a.Reports {
			continue // reports name neither
		}
		keys := slices.SortedFunc(maps.Keys(b.pools), func(x, y torchPool) int {
			return cmp.Or(
				cmp.Compare(b.pools[y].reserved, b.pools[x].reserved),
				cmp.Compare(x.pool, y.pool),
				cmp.Compare(x.stream, y.stream),
			)
		})
		for _, key := range keys {
			u := b.pools[key]
			table.Add(report.Join(b.ownerValues(), report.Values{
				"pool":            caching.PoolName(key.pool),
				"stream":          query.StreamName(key.stream),
				"reserved_bytes":  u.reserved,
				"allocated_bytes": u.allocated,
				"awaiting_bytes":  u.awaiting,
				"cached_bytes":    u.reserved - (u.allocated + u.awaiting - u.old),
				"blocks":          u.blocks,
			}))
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var momentColumns = slices.Concat(
	[]report.Column{
		{
			Key: "at_ns", Title: "", Unit: report.UnitTime,
			About: "a moment, Unix ns; events of that moment are included",
		},
		{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "the same, from the recording's start"},
	}, ownerColumns, totalsColumns)

// momentTable returns a table with a row per moment and allocator, until its process ends.
func (s *Scan) momentTable() report.Table {
	table := report.Table{Name: "moments", Title: "over time", Columns: momentColumns, HideFirst: spareTotals}
	start := s.t.Recording().FromNs
	for i, at := range s.times {
		for _, b := range s.list {
			if b.endNs == 0 || at < b.endNs {
				table.Add(
					report.Join(
						report.Values{"at_ns": at, "offset_ns": at - start},
						b.ownerValues(),
						totalsValues(b.moments[i], b.a.Reports),
					),
				)
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

// facts says how exact the totals are.
func (s *Scan) facts() []report.Fact {
	if len(s.list) == 0 {
		return report.Facts(factColumns, report.Values{
			"agreement": "the recording has no events of PyTorch's caching allocator that pass the filter",
			"seen_from": "",
		})
	}
	sum := s.sum()
	agreement := fmt.Sprintf(
		"%s compared with the allocator's own totals, all equal",
		units.Plural(sum.compared, "event"),
	)
	switch {
	case sum.compared == 0:
		agreement = "no event tells the allocator's own totals: sizes of blocks are as its rules say"
	case sum.disagreed > 0:
		agreement = fmt.Sprintf(
			"%s compared with the allocator's own totals, %s differ, by up to %s",
			units.Plural(sum.compared, "event"),
			units.Count(sum.disagreed),
			units.Bytes(sum.worst),
		)
	}
	from := "their first event: all values are exact"
	if sum.late > 0 {
		from = fmt.Sprintf("a later moment in %d of %d allocators: allocated and reserved bytes are exact, the rest "+
			"lacks what was there before and was not freed; see --explain", sum.late, len(s.list))
	}
	return report.Facts(factColumns, report.Values{
		"agreement": agreement,
		"seen_from": from,
	})
}

// totals sums up all allocators at the end.
func (s *Scan) totals() []report.Fact {
	sum := s.sum()
	return report.Facts(totalColumns, report.Values{
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
