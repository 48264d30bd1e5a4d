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

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing that can fragment"},
	{Key: "pools", Title: "pools", Unit: report.UnitText, About: "what is known of memory pools"},
	{Key: "note", Title: "note", Unit: report.UnitText, About: "what is not in this report"},
}

// lacksColumns is the fact of recordings with an allocator that is known by its reports only.
var lacksColumns = []report.Column{
	{Key: "lacks", Title: "lacks", Unit: report.UnitText, About: "what of PyTorch's allocator the recording lacks"},
}

var spaceColumns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "fragmented: blocks keep at least 20% of the reserved bytes, and more than a segment of 20 MiB, from " +
			"going back to the driver; idle: a pool holds that much unused; fine: less; addresses: no memory is " +
			"lost, holes in reserved addresses are addresses",
	},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "memory from the driver; of reserved addresses their length; of pools as the program last asked",
	},
	{
		Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes,
		About: "bytes in blocks that the program has or streams still use; mapped bytes; of pools what is allocated",
	},
	{Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes, About: "bytes of gaps"},
	{
		Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes,
		About: "of these, what blocks keep from going back to the driver: all gaps of segments that have a block; " +
			"of expandable segments what is left of gaps without whole steps of 20 MiB, or 2 MiB where blocks up to " +
			"1 MiB are",
	},
	{
		Key: "external_ratio", Title: "EXTERNAL", Unit: report.UnitRatio,
		About: "external fragmentation index: 1 - largest gap / all gaps",
	},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "the largest gap"},
	{
		Key: "blowup_ratio", Title: "BLOW-UP", Unit: report.UnitRatio,
		About: "reserved / active; absent if nothing is active",
	},
	{
		Key: "unusable_pct", Title: "UNUSABLE%", Unit: report.UnitPercent,
		About: "share of UNUSED in gaps that cannot take a block of the request: too small, or in segments for " +
			"blocks up to 1 MiB or for larger ones only; another stream's gaps count as usable",
	},
	{
		Key: "request_bytes", Title: "", Unit: report.UnitBytes,
		About: "that request: --request, or the largest one seen",
	},
	{
		Key: "saved_bytes", Title: "SAVED", Unit: report.UnitBytes,
		About: "of KEPT, whole 2 MiB pages inside of gaps: no more than that could go back if segments were " +
			"expandable (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); absent where they are",
	},
	{
		Key: "saved_least_bytes", Title: "", Unit: report.UnitBytes,
		About: "of that, what is whole in the steps of 20 MiB in which PyTorch maps for blocks above 1 MiB and " +
			"takes back: this much at least, if blocks lay as they do",
	},
	{
		Key: "inactive_split_bytes", Title: "", Unit: report.UnitBytes,
		About: "as PyTorch counts inactive_split_bytes: gaps in segments that have blocks, without expandable ones",
	},
	{
		Key: "internal_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes by which blocks are larger than what was asked for",
	},
	{
		Key: "extents", Title: "", Unit: report.UnitCount,
		About: "segments, stretches of expandable ones, or reservations",
	},
	{Key: "blocks", Title: "", Unit: report.UnitCount, About: "blocks, or mappings"},
	{Key: "gaps", Title: "", Unit: report.UnitCount, About: "gaps"},
	{
		Key: "unseen_bytes", Title: "", Unit: report.UnitBytes,
		About: "reserved by the same allocator before the recording began: what is in these segments is in no other " +
			"number",
	},
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "moment of these numbers, from the recording's start: see --at",
	},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low; see confidence_reasons"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers the confidence: lost events, a model that differs from the allocator's own totals, " +
			"segments from before the recording",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{
		Key: "space", Title: "WHERE", Unit: report.UnitText,
		About: "segments and expandable segments of PyTorch's allocator, by pool; reserved addresses; or a memory " +
			"pool of the driver",
	},
}

var pinColumns = []report.Column{
	{
		Key: "alone_bytes", Title: "ALONE", Unit: report.UnitBytes,
		About: "bytes of gaps that only blocks of this place keep: they could go back if these were freed",
	},
	{
		Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes,
		About: "bytes of gaps in segments that have a block of this place; places share segments, so that the sum " +
			"is more than what is kept",
	},
	{Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount, About: "segments that are kept"},
	{Key: "live_bytes", Title: "LIVE", Unit: report.UnitBytes, About: "bytes of the blocks that keep them"},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "number of these blocks"},
	{
		Key: "oldest_age_ns", Title: "OLDEST", Unit: report.UnitNs,
		About: "age of the oldest; absent if it is from before the recording",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that allocated the blocks",
	},
}

var trendColumns = []report.Column{
	{
		Key: "direction", Title: "TREND", Unit: report.UnitText,
		About: "of the kept bytes at 48 moments of the window (of reserved addresses: of holes outside of the " +
			"largest): rising (tau >= 0.8, and still in the last quarter), rose (tau >= 0.8, but not in the last " +
			"quarter any more), falling (tau <= -0.8) or steady",
	},
	{Key: "first_bytes", Title: "FIRST", Unit: report.UnitBytes, About: "kept at the first moment with memory"},
	{Key: "peak_bytes", Title: "MOST", Unit: report.UnitBytes, About: "most kept at a moment"},
	{Key: "last_bytes", Title: "LAST", Unit: report.UnitBytes, About: "kept at the last moment"},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope, per minute",
	},
	{
		Key: "forecast_bytes", Title: "FORECAST", Unit: report.UnitBytes,
		About: "kept at forecast_ns: of a line through all moments if lines proved better than no change in the " +
			"last quarter, which was held back; else the last value; absent with fewer than 12 moments",
	},
	{
		Key: "error_bytes", Title: "ERROR", Unit: report.UnitBytes,
		About: "mean absolute error of such a forecast in the last quarter, from the first three",
	},
	{
		Key: "no_change_error_bytes", Title: "NO CHANGE", Unit: report.UnitBytes,
		About: "the same error if nothing had been foretold to change",
	},
	{
		Key: "forecast_ns", Title: "", Unit: report.UnitNs,
		About: "moment of FORECAST, from the recording's start: as long after the end as was held back",
	},
	{Key: "tau", Title: "", Unit: report.UnitRatio, About: "Mann-Kendall tau: 1 only rises, -1 only falls"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "owner", Title: "OF", Unit: report.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var momentColumns = []report.Column{
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "moment, from the recording's start"},
	{Key: "reserved_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces, all of one owner together"},
	{Key: "active_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "unused_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "kept_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "largest_gap_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "device", Title: "", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process"},
	{Key: "owner", Title: "", Unit: report.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var totalColumns = []report.Column{
	{Key: "kept_bytes", Title: "kept", Unit: report.UnitBytes, About: "sum of KEPT"},
	{Key: "unused_bytes", Title: "unused", Unit: report.UnitBytes, About: "sum of UNUSED, without reserved addresses"},
	{
		Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes,
		About: "sum of RESERVED, without reserved addresses",
	},
	{
		Key: "kept_pct", Title: "% kept", Unit: report.UnitPercent,
		About: "share of kept_bytes in reserved_bytes; absent without any",
	},
	{Key: "saved_bytes", Title: "saved at most by expandable segments", Unit: report.UnitBytes, About: "sum of SAVED"},
	{Key: "fragmented", Title: "fragmented", Unit: report.UnitCount, About: "rows with verdict fragmented"},
	{Key: "rising", Title: "rising", Unit: report.UnitCount, About: "trends that rise by at least 1 MiB"},
	{
		Key: "external_ratio_max", Title: "external at most", Unit: report.UnitRatio,
		About: "largest EXTERNAL of memory, without reserved addresses; absent without any",
	},
	{
		Key: "failures", Title: "failed requests", Unit: report.UnitCount,
		About: "requests that PyTorch's allocator could not meet in the window, at most 200",
	},
}

// name returns the name of the owner, as in the column "owner".
func (o *owner) name() string {
	if o.reservations {
		return spaceReservations
	}
	return "PyTorch's allocator"
}

// ownerTitle returns the title of the owner's address map.
func (s *Scan) ownerTitle(o *owner) string {
	return fmt.Sprintf("%s of %s on device %s", o.name(), s.t.PidLabel(o.pid), s.t.OrdinalLabel(o.pid, o.device))
}

// spaceTable returns a table with a row per space and memory pool, most kept bytes first.
func (s *Scan) spaceTable(findings []spaceFinding, level string, reasons []string) report.Table {
	table := report.Table{
		Name:    "spaces",
		Title:   "memory that is handed out in parts",
		Columns: spaceColumns,
		Spare:   []string{"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio"},
	}
	for i := range findings {
		s.addSpace(&table, &findings[i])
	}
	s.addPools(&table, level, reasons)
	table.Sort("kept_bytes", "reserved_bytes")
	return table
}

// addSpace adds the row of a space.
func (s *Scan) addSpace(table *report.Table, f *spaceFinding) {
	sp, o := f.Space, f.owner
	row := table.Add(report.Values{
		"verdict":              f.verdict,
		"reserved_bytes":       sp.Reserved,
		"active_bytes":         sp.Active,
		"unused_bytes":         sp.Unused,
		"kept_bytes":           sp.Stranded,
		"external_ratio":       sp.External(),
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
		"unseen_bytes":         o.detail.unseen,
		"at_ns":                o.detail.atNs - s.t.Recording().FromNs,
		"confidence":           f.level,
		"confidence_reasons":   f.reasons,
		"device":               s.t.OrdinalLabel(o.pid, o.device),
		"pid":                  int64(o.pid),
		"space":                f.where,
	})
	row.Evidence, row.Brief = f.evidence(), f.verdict == verdictFine && len(s.owners) > 1
}

// addPools adds a row per memory pool of the driver of which the program asked how much it holds.
func (s *Scan) addPools(table *report.Table, level string, reasons []string) {
	pools := s.t.Pools(s.window, &s.opt.Filter)
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b timeline.PoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	}) {
		p := pools[key]
		s.seen.Add(key.Pid, key.Pid, p.Device, 0)
		if p.Reserved < 0 || p.Used < 0 || p.Reserved < s.opt.MinBytes {
			continue
		}
		unused := max(0, p.Reserved-p.Used)
		var blowUp any
		if p.Used > 0 {
			blowUp = float64(p.Reserved) / float64(p.Used)
		}
		row := table.Add(report.Values{
			"verdict":              judgePool(unused, p.Reserved),
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
			"at_ns":                max(0, p.AtNs-s.t.Recording().FromNs),
			"confidence":           level,
			"confidence_reasons":   reasons,
			"device":               s.t.OrdinalLabel(key.Pid, p.Device),
			"pid":                  int64(key.Pid),
			"space":                fmt.Sprintf("%s 0x%x", spacePool, uint64(key.Pool)),
		})
		row.Evidence = fmt.Sprintf("the pool held %s that nobody used when the program last asked; how it lies is "+
			"the driver's secret; confidence %s", units.Bytes(unused), level)
	}
}

// pinTable returns a table with a row per call site whose blocks keep segments.
func (s *Scan) pinTable(owners []*owner) report.Table {
	table := report.Table{
		Name:    "pins",
		Title:   "whose blocks keep segments",
		Columns: pinColumns,
		Aside:   true,
		Spare:   []string{"pid", "device", "blocks"},
	}
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, p := range o.detail.pins {
			if p.kept < s.opt.MinBytes {
				continue
			}
			var age any
			if p.oldestNs > 0 {
				age = max(0, o.detail.atNs-p.oldestNs)
			}
			table.Add(report.Values{
				"alone_bytes":   p.alone,
				"kept_bytes":    p.kept,
				"segments":      p.segments,
				"live_bytes":    p.live,
				"blocks":        p.blocks,
				"oldest_age_ns": age,
				"device":        s.t.OrdinalLabel(o.pid, o.device),
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

// trendTable returns a table with a row per trend.
func (s *Scan) trendTable(trends []trend) report.Table {
	table := report.Table{
		Name:    "trends",
		Title:   "what blocks keep, over time",
		Columns: trendColumns,
		Aside:   true,
		Spare:   []string{"pid", "device", "first_bytes", "peak_bytes"},
	}
	step := float64(s.window.DurNs()) / MapMoments
	for i := range trends {
		t, o := &trends[i], trends[i].owner
		perMin := int64(0)
		if step > 0 {
			perMin = units.RoundInt(t.Slope / step * float64(time.Minute))
		}
		var next, wrong, steady, at any
		if t.foretold {
			next, wrong, steady = t.Next, units.RoundInt(t.Error()), units.RoundInt(t.SteadyError)
			at = s.window.ToNs + units.RoundInt(step*float64(t.HeldBack)) - s.t.Recording().FromNs
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
			"device":                s.t.OrdinalLabel(o.pid, o.device),
			"pid":                   int64(o.pid),
			"owner":                 o.name(),
		})
	}
	return table
}

// momentTable returns a table with a row per owner and moment.
func (s *Scan) momentTable(owners []*owner) report.Table {
	table := report.Table{Name: "moments", Title: "moments", Columns: momentColumns, Aside: true}
	for _, o := range owners {
		for i, l := range o.levels {
			table.Add(report.Values{
				"at_ns":             s.moments[i] - s.t.Recording().FromNs,
				"reserved_bytes":    l.reserved,
				"active_bytes":      l.active,
				"unused_bytes":      l.unused,
				"kept_bytes":        l.kept,
				"largest_gap_bytes": l.largest,
				"device":            s.t.OrdinalLabel(o.pid, o.device),
				"pid":               int64(o.pid),
				"owner":             o.name(),
			})
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

// facts says what the report lacks; rows is the number of spaces and pools.
func (s *Scan) facts(rows int) []report.Fact {
	result, pools := "", ""
	var lacks []report.Fact
	if rows == 0 {
		result = "nothing that can fragment is known: no caching allocator, no reserved addresses, no memory pool " +
			"that the program asked about"
	}
	if s.reports {
		result = ""
		lacks = report.Facts(lacksColumns, report.Values{
			"lacks": "the segments of PyTorch's allocator, and what lies unused in them, are not in this recording, " +
				"which has its reports only; " + caching.RecordSegments,
		})
	}
	if s.pools {
		pools = "how much of the device a memory pool holds is known only where the program asked for its attributes"
	}
	return append(lacks, report.Facts(factColumns, report.Values{
		"result": result,
		"pools":  pools,
		"note":   "holes between allocations of cuMemAlloc are addresses, not memory: they are in nothing here",
	})...)
}

// totals sums up the spaces, owners and trends.
func (s *Scan) totals(spaces *report.Table, owners []*owner, trends []trend) []report.Fact {
	var kept, unused, reserved, saved, fragmented, rising, failures int64
	var external, share any
	for i := range spaces.Rows {
		r := &spaces.Rows[i]
		verdict := spaces.Cell(r, "verdict")
		if verdict == verdictAddresses {
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
			external = report.Most(external, e)
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
	return report.Facts(totalColumns, report.Values{
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
