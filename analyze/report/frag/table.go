package frag

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/report"
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
