package frag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "sentence that is set only if the recording has no memory that can be fragmented",
	},
	{
		Key:   "pools",
		Title: "pools",
		Unit:  report.UnitText,
		About: "limitation of this report for memory of driver pools",
	},
	{Key: "note", Title: "note", Unit: report.UnitText, About: "memory that this report excludes"},
}

// missingDataColumns is the fact of recordings with an allocator that is known only from its memory
// reports.
var missingDataColumns = []report.Column{
	{
		Key: "lacks", Title: "lacks", Unit: report.UnitText,
		About: "data of PyTorch's allocator that the recording lacks",
	},
}

// spaceColumns are the columns of Scan.spaceTable.
var spaceColumns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "verdict on the space. Fragmented: at least 20% of the reserved bytes, and at least 20 MiB, cannot " +
			"return to the driver because of live blocks. Idle: a pool has as much unused memory. Fine: less of " +
			"either. Addresses: reserved addresses, whose holes hold no memory",
	},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes held from the driver; for reserved addresses their length; for pools by the program's last query",
	},
	{
		Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes,
		About: "bytes of blocks that the program holds or a stream uses; for reserved addresses mapped bytes; for " +
			"pools allocated bytes",
	},
	{
		Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes,
		About: "bytes of holes: reserved bytes that are not active",
	},
	{
		Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes,
		About: "stranded bytes: holes that cannot return to the driver because of a live block. In segments these " +
			"are all holes of a segment with a block. In expandable segments these are holes without whole steps of " +
			"20 MiB (2 MiB in small pools)",
	},
	{
		Key: "external_ratio", Title: "EXTERNAL", Unit: report.UnitRatio,
		About: "external fragmentation index: 1 - largest hole / all holes",
	},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "size of the largest hole"},
	{
		Key: "blowup_ratio", Title: "BLOW-UP", Unit: report.UnitRatio,
		About: "reserved / active; absent if nothing is active",
	},
	{
		Key: "unusable_pct", Title: "UNUSABLE%", Unit: report.UnitPercent,
		About: "share of UNUSED that cannot serve the request: the holes are too small, or in segments of another " +
			"size class. Holes of other streams count as usable",
	},
	{
		Key: "request_bytes", Title: "", Unit: report.UnitBytes,
		About: "size of the request for UNUSABLE%: --request, or else the program's largest request",
	},
	{
		Key: "saved_bytes", Title: "SAVED", Unit: report.UnitBytes,
		About: "part of KEPT that expandable segments could return at most: whole 2 MiB pages in holes " +
			"(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True). Absent if they are on",
	},
	{
		Key: "saved_least_bytes", Title: "", Unit: report.UnitBytes,
		About: "part of KEPT that expandable segments could return at least, with the same block addresses. These " +
			"are whole steps of 20 MiB, by which PyTorch maps and unmaps memory for blocks above 1 MiB",
	},
	{
		Key: "inactive_split_bytes", Title: "", Unit: report.UnitBytes,
		About: "holes in segments with blocks, without expandable segments; PyTorch's inactive_split_bytes",
	},
	{
		Key: "internal_bytes", Title: "", Unit: report.UnitBytes,
		About: "internal fragmentation: block sizes minus requested sizes",
	},
	{
		Key: "extents", Title: "", Unit: report.UnitCount,
		About: "number of segments, of contiguous ranges of expandable segments, or of reservations",
	},
	{Key: "blocks", Title: "", Unit: report.UnitCount, About: "number of blocks, or of mappings"},
	{Key: "gaps", Title: "", Unit: report.UnitCount, About: "number of holes in the memory space"},
	{
		Key: "unseen_bytes", Title: "", Unit: report.UnitBytes,
		About: "segments that the same allocator reserved before the recording; all other numbers exclude them",
	},
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of these numbers, from the start of the recording; see --at",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low; see confidence_reasons",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost events, a model that differs from the allocator's " +
			"statistics, segments from before the recording",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "space", Title: "WHERE", Unit: report.UnitText,
		About: "kind of space: segments or expandable segments of PyTorch's allocator, by pool; reserved addresses; " +
			"or a memory pool of the driver",
	},
}

// pinningSiteColumns are the columns of Scan.pinningSiteTable.
var pinningSiteColumns = []report.Column{
	{
		Key: "alone_bytes", Title: "ALONE", Unit: report.UnitBytes,
		About: "bytes that only blocks of this call site strand: freeing the blocks would return them to the driver",
	},
	{
		Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes,
		About: "bytes of holes in segments with a block of this call site. Call sites share segments, so the sum " +
			"exceeds the stranded bytes",
	},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "number of segments with a block of this call site",
	},
	{
		Key: "live_bytes", Title: "LIVE", Unit: report.UnitBytes,
		About: "bytes of the blocks of this call site in these segments",
	},
	{
		Key: "blocks", Title: "COUNT", Unit: report.UnitCount,
		About: "number of blocks of this call site in these segments",
	},
	{
		Key: "oldest_age_ns", Title: "OLDEST", Unit: report.UnitNs,
		About: "age of the oldest block; absent if it is from before the recording",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that allocated the blocks",
	},
}

// trendColumns are the columns of Scan.trendTable.
var trendColumns = []report.Column{
	{
		Key: "direction", Title: "TREND", Unit: report.UnitText,
		About: "trend of the stranded bytes at 48 times of the window; for reserved addresses of the holes except " +
			"the largest. Rising: tau >= 0.8, also in the last quarter. Rose: tau >= 0.8, but not in the last " +
			"quarter. Falling: tau <= -0.8. Steady: any other",
	},
	{
		Key: "first_bytes", Title: "FIRST", Unit: report.UnitBytes,
		About: "stranded bytes at the first surveyed time with memory",
	},
	{Key: "peak_bytes", Title: "MOST", Unit: report.UnitBytes, About: "highest stranded bytes at a surveyed time"},
	{Key: "last_bytes", Title: "LAST", Unit: report.UnitBytes, About: "stranded bytes at the last surveyed time"},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope of the stranded bytes, per minute",
	},
	{
		Key: "forecast_bytes", Title: "FORECAST", Unit: report.UnitBytes,
		About: "forecast of the stranded bytes at forecast_ns: a line through all surveyed times if lines predicted " +
			"the last quarter better than no change, else the last value. Absent with fewer than 12 times",
	},
	{
		Key: "error_bytes", Title: "ERROR", Unit: report.UnitBytes,
		About: "mean absolute error of the same forecast for the last quarter, made from the first three",
	},
	{
		Key: "no_change_error_bytes", Title: "NO CHANGE", Unit: report.UnitBytes,
		About: "mean absolute error for the last quarter of a forecast of no change",
	},
	{
		Key: "forecast_ns", Title: "", Unit: report.UnitNs,
		About: "time of FORECAST, from the start of the recording: a quarter of the series after its end",
	},
	{Key: "tau", Title: "", Unit: report.UnitRatio, About: "Mann-Kendall tau: 1 only rises, -1 only falls"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "owner", Title: "OF", Unit: report.UnitText,
		About: "owner of the memory: PyTorch's allocator, or reserved addresses",
	},
}

// momentColumns are the columns of Scan.momentTable.
var momentColumns = []report.Column{
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "point in time, from the start of the recording"},
	{
		Key: "reserved_bytes", Title: "", Unit: report.UnitBytes,
		About: "RESERVED of the table spaces at this time, summed over all spaces of the owner",
	},
	{Key: "active_bytes", Title: "", Unit: report.UnitBytes, About: "ACTIVE of the table spaces at this time, summed"},
	{Key: "unused_bytes", Title: "", Unit: report.UnitBytes, About: "UNUSED of the table spaces at this time, summed"},
	{Key: "kept_bytes", Title: "", Unit: report.UnitBytes, About: "KEPT of the table spaces at this time, summed"},
	{
		Key: "largest_gap_bytes", Title: "", Unit: report.UnitBytes,
		About: "size of the owner's largest hole at this time",
	},
	{Key: "device", Title: "", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process id"},
	{
		Key: "owner", Title: "", Unit: report.UnitText,
		About: "owner of the memory: PyTorch's allocator, or reserved addresses",
	},
}

// totalColumns are the totals of the fragmentation report.
var totalColumns = []report.Column{
	{Key: "kept_bytes", Title: "kept", Unit: report.UnitBytes, About: "stranded bytes: sum of KEPT"},
	{
		Key: "unused_bytes", Title: "unused", Unit: report.UnitBytes,
		About: "sum of UNUSED, excluding reserved addresses",
	},
	{
		Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes,
		About: "sum of RESERVED, excluding reserved addresses",
	},
	{
		Key: "kept_pct", Title: "% kept", Unit: report.UnitPercent,
		About: "share of kept_bytes in reserved_bytes; absent if nothing is reserved",
	},
	{Key: "saved_bytes", Title: "saved at most by expandable segments", Unit: report.UnitBytes, About: "sum of SAVED"},
	{
		Key:   "fragmented",
		Title: "fragmented",
		Unit:  report.UnitCount,
		About: "number of memory spaces with the verdict fragmented",
	},
	{
		Key: "rising", Title: "rising", Unit: report.UnitCount,
		About: "owners whose stranded bytes rise by at least 1 MiB",
	},
	{
		Key: "external_ratio_max", Title: "external at most", Unit: report.UnitRatio,
		About: "largest EXTERNAL, excluding reserved addresses; absent if there is none",
	},
	{
		Key: "failures", Title: "failed requests", Unit: report.UnitCount,
		About: "requests to PyTorch's allocator in the window that failed for lack of memory, at most 200",
	},
}

// displayName returns the name of the owner, a value of the column "owner".
func (o *memoryOwner) displayName() string {
	if o.reservations {
		return spaceKindReservations
	}
	return "PyTorch's allocator"
}

// mapTitle returns the title of the owner's address map.
func (s *Scan) mapTitle(o *memoryOwner) string {
	return fmt.Sprintf(
		"%s of %s on device %s",
		o.displayName(),
		s.t.PidLabel(o.pid),
		s.t.OrdinalDeviceLabel(o.pid, o.device),
	)
}

// spaceTable returns a table with one row per space and memory pool, most stranded bytes first.
func (s *Scan) spaceTable(findings []spaceFinding, level string, reasons []string) report.Table {
	table := report.Table{
		Name:    "spaces",
		Title:   "memory that can be fragmented",
		Columns: spaceColumns,
		HideFirst: []string{
			"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio",
		},
	}
	for i := range findings {
		s.addSpaceRow(&table, &findings[i])
	}
	s.addPoolRows(&table, level, reasons)
	table.Sort("kept_bytes", "reserved_bytes")
	return table
}

// addSpaceRow adds the row of a space.
func (s *Scan) addSpaceRow(table *report.Table, f *spaceFinding) {
	sp, o := f.MemorySpace, f.owner
	row := table.Add(report.Values{
		"verdict":              f.verdict,
		"reserved_bytes":       sp.Reserved,
		"active_bytes":         sp.Active,
		"unused_bytes":         sp.Unused,
		"kept_bytes":           sp.Stranded,
		"external_ratio":       sp.ExternalFragmentation(),
		"largest_gap_bytes":    sp.Largest,
		"blowup_ratio":         f.blowUp,
		"unusable_pct":         f.unusable,
		"request_bytes":        f.request,
		"saved_bytes":          f.saved,
		"saved_least_bytes":    f.savedLeast,
		"inactive_split_bytes": sp.Split,
		"internal_bytes":       f.internal,
		"extents":              sp.Extents,
		"blocks":               sp.Blocks,
		"gaps":                 int64(len(sp.Holes)),
		"unseen_bytes":         o.snapshot.unseen,
		"at_ns":                o.snapshot.atNs - s.t.RecordingWindow().FromNs,
		"confidence":           f.level,
		"confidence_reasons":   f.reasons,
		"device":               s.t.OrdinalDeviceLabel(o.pid, o.device),
		"pid":                  int64(o.pid),
		"space":                f.label,
	})
	row.Evidence, row.Brief = f.evidenceText(), f.verdict == verdictFine && len(s.owners) > 1
}

// addPoolRows adds one row per driver memory pool whose size the program queried.
func (s *Scan) addPoolRows(table *report.Table, level string, reasons []string) {
	pools := s.t.MemoryPools(s.window, &s.opt.Filter)
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b timeline.MemoryPoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	}) {
		p := pools[key]
		s.callers.AddCaller(key.Pid, key.Pid, p.Device, 0)
		if p.Reserved < 0 || p.Used < 0 || p.Reserved < s.opt.MinBytes {
			continue
		}
		unused := max(0, p.Reserved-p.Used)
		var blowUp any
		if p.Used > 0 {
			blowUp = float64(p.Reserved) / float64(p.Used)
		}
		row := table.Add(report.Values{
			"verdict":              classifyPool(unused, p.Reserved),
			"reserved_bytes":       p.Reserved,
			"active_bytes":         p.Used,
			"unused_bytes":         unused,
			"kept_bytes":           nil,
			"external_ratio":       nil,
			"largest_gap_bytes":    nil,
			"blowup_ratio":         blowUp,
			"unusable_pct":         nil,
			"request_bytes":        nil,
			"saved_bytes":          nil,
			"saved_least_bytes":    nil,
			"inactive_split_bytes": nil,
			"internal_bytes":       nil,
			"extents":              nil,
			"blocks":               nil,
			"gaps":                 nil,
			"unseen_bytes":         nil,
			"at_ns":                max(0, p.AtNs-s.t.RecordingWindow().FromNs),
			"confidence":           level,
			"confidence_reasons":   reasons,
			"device":               s.t.OrdinalDeviceLabel(key.Pid, p.Device),
			"pid":                  int64(key.Pid),
			"space":                fmt.Sprintf("%s 0x%x", spaceKindPool, uint64(key.Pool)),
		})
		row.Evidence = fmt.Sprintf("the pool had %s unused at the program's last query; the driver does not report "+
			"how it is divided; confidence %s", units.FormatBytes(unused), level)
	}
}

// pinningSiteTable returns a table with one row per call site whose blocks strand memory.
func (s *Scan) pinningSiteTable(owners []*memoryOwner) report.Table {
	table := report.Table{
		Name:      "pins",
		Title:     "call sites whose blocks strand memory",
		Columns:   pinningSiteColumns,
		Secondary: true,
		HideFirst: []string{"pid", "device", "blocks"},
	}
	for _, o := range owners {
		if o.snapshot == nil {
			continue
		}
		for _, p := range o.snapshot.pins {
			if p.stranded < s.opt.MinBytes {
				continue
			}
			var age any
			if p.oldestNs > 0 {
				age = max(0, o.snapshot.atNs-p.oldestNs)
			}
			table.Add(report.Values{
				"alone_bytes":   p.strandedAlone,
				"kept_bytes":    p.stranded,
				"segments":      p.segments,
				"live_bytes":    p.live,
				"blocks":        p.blocks,
				"oldest_age_ns": age,
				"device":        s.t.OrdinalDeviceLabel(o.pid, o.device),
				"pid":           int64(o.pid),
				"site":          p.site,
			}).StackID = p.stack
		}
	}
	table.Sort("alone_bytes", "kept_bytes")
	for i := range table.Rows {
		table.Rows[i].Brief = i >= report.HolderRowsWithStack
	}
	return table
}

// trendTable returns a table with one row per trend.
func (s *Scan) trendTable(trends []strandedTrend) report.Table {
	table := report.Table{
		Name:      "trends",
		Title:     "stranded memory over time",
		Columns:   trendColumns,
		Secondary: true,
		HideFirst: []string{"pid", "device", "first_bytes", "peak_bytes"},
	}
	step := float64(s.window.DurNs()) / MapMomentCount
	for i := range trends {
		t, o := &trends[i], trends[i].owner
		perMin := int64(0)
		if step > 0 {
			perMin = units.RoundInt(t.Slope / step * float64(time.Minute))
		}
		var next, wrong, steady, at any
		if t.hasForecast {
			next, wrong, steady = t.Next, units.RoundInt(t.MeanAbsoluteError()), units.RoundInt(t.SteadyError)
			at = s.window.ToNs + units.RoundInt(step*float64(t.HeldBack)) - s.t.RecordingWindow().FromNs
		}
		table.Add(report.Values{
			"direction":             t.Direction(),
			"first_bytes":           t.series[0],
			"peak_bytes":            slices.Max(t.series),
			"last_bytes":            t.series[len(t.series)-1],
			"growth_bytes_per_min":  perMin,
			"forecast_bytes":        next,
			"error_bytes":           wrong,
			"no_change_error_bytes": steady,
			"forecast_ns":           at,
			"tau":                   t.Tau,
			"device":                s.t.OrdinalDeviceLabel(o.pid, o.device),
			"pid":                   int64(o.pid),
			"owner":                 o.displayName(),
		})
	}
	return table
}

// momentTable returns a table with one row per owner and surveyed time.
func (s *Scan) momentTable(owners []*memoryOwner) report.Table {
	table := report.Table{Name: "moments", Title: "moments", Columns: momentColumns, Secondary: true}
	for _, o := range owners {
		for i, l := range o.levels {
			table.Add(report.Values{
				"at_ns":             s.moments[i] - s.t.RecordingWindow().FromNs,
				"reserved_bytes":    l.reserved,
				"active_bytes":      l.active,
				"unused_bytes":      l.unused,
				"kept_bytes":        l.stranded,
				"largest_gap_bytes": l.largestHole,
				"device":            s.t.OrdinalDeviceLabel(o.pid, o.device),
				"pid":               int64(o.pid),
				"owner":             o.displayName(),
			})
		}
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// computeFacts returns sentences on data that the report lacks. rows is the number of spaces and
// pools.
func (s *Scan) computeFacts(rows int) []report.Fact {
	result, pools := "", ""
	var missing []report.Fact
	if rows == 0 {
		result = "the recording has no caching allocator, no reserved addresses and no queried memory pool: nothing " +
			"can be fragmented"
	}
	if s.hasReports {
		result = ""
		missing = report.NewFacts(missingDataColumns, report.Values{
			"lacks": "the recording has no segments of PyTorch's allocator and no unused memory in them, only the " +
				"allocator's memory reports; " + caching.RecordSegmentsAdvice,
		})
	}
	if s.hasPools {
		pools = "the size of a memory pool of the driver is known only if the program queries its attributes"
	}
	return append(missing, report.NewFacts(factColumns, report.Values{
		"result": result,
		"pools":  pools,
		"note":   "holes between allocations of cuMemAlloc are addresses, not memory: all numbers here exclude them",
	})...)
}

// computeTotals returns the sums over the spaces, owners and trends.
func (s *Scan) computeTotals(spaces *report.Table, owners []*memoryOwner, trends []strandedTrend) []report.Fact {
	var kept, unused, reserved, saved, fragmented, rising, failures int64
	var external, share any
	for i := range spaces.Rows {
		r := &spaces.Rows[i]
		verdict := spaces.Cell(r, "verdict")
		if verdict == verdictAddressesOnly {
			continue
		}
		number := func(key string) int64 { n, _ := spaces.Cell(r, key).(int64); return n }
		kept += number("kept_bytes")
		unused += number("unused_bytes")
		reserved += number("reserved_bytes")
		saved += number("saved_bytes")
		if verdict == verdictFragmented {
			fragmented++
		}
		if e, ok := spaces.Cell(r, "external_ratio").(float64); ok {
			external = report.MaxCell(external, e)
		}
	}
	for _, o := range owners {
		failures += int64(len(o.failures))
	}
	for i := range trends {
		if trends[i].isRising() {
			rising++
		}
	}
	if reserved > 0 {
		share = units.Percent(kept, reserved)
	}
	return report.NewFacts(totalColumns, report.Values{
		"kept_bytes":         kept,
		"unused_bytes":       unused,
		"reserved_bytes":     reserved,
		"kept_pct":           share,
		"saved_bytes":        saved,
		"fragmented":         fragmented,
		"rising":             rising,
		"external_ratio_max": external,
		"failures":           failures,
	})
}
