package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
)

// LeakColumns are the columns of the table of leaks. Scan.Table adds a column with the group's
// name.
var LeakColumns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "classification of the row. Growing: the floor of the live bytes rises until the end. The floor is " +
			"the lowest live bytes between two of 20 checkpoints after a warm-up of 10%. The rise must be steady " +
			"(tau >= 0.8, at least 5 rises), still present in the last quarter, and its second half at least half " +
			"as steep as its first. It must be at least 1 MiB and 1% of the live bytes, per window or per minute " +
			"if the window is shorter. It must exceed chance, and twice what lost frees would explain. The blocks " +
			"must not replace as many of these sizes from before the recording, if those were read. Churn: no " +
			"block is live, or 90% were freed and the rest is young. Startup: 90% of the live bytes are from the " +
			"warm-up. Exit leak: the process or its last CUDA context ended without a free (PyTorch's blocks are " +
			"retained then). Retained: all other live memory",
	},
	{
		Key: "live_bytes", Title: "LIVE", Unit: report.UnitBytes,
		About: "bytes allocated in the window and not freed at its end, or not freed by the program when its process " +
			"or last CUDA context ended",
	},
	{
		Key: "live_count", Title: "COUNT", Unit: report.UnitCount,
		About: "number of unfreed allocations, whose bytes are LIVE",
	},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "allocations in the window"},
	{Key: "freed_pct", Title: "FREED%", Unit: report.UnitPercent, About: "share of ALLOCS that were freed"},
	{
		Key: "age_median_ns", Title: "AGE(med)", Unit: report.UnitNs,
		About: "median age of the unfreed allocations at the end of the window",
	},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope of the lowest live bytes between checkpoints, per minute. Growing rows use only the " +
			"checkpoints since the rise began",
	},
	{
		Key: "frees", Title: "", Unit: report.UnitCount,
		About: "number of ALLOCS that were freed, including frees that must have happened but were not recorded",
	},
	{Key: "alloc_bytes", Title: "", Unit: report.UnitBytes, About: "total bytes of ALLOCS"},
	{
		Key: "grown_bytes", Title: "", Unit: report.UnitBytes,
		About: "rise of the lowest live bytes over all checkpoints: slope times number of checkpoints",
	},
	{
		Key: "tau", Title: "", Unit: report.UnitRatio,
		About: "Mann-Kendall tau of the lowest live bytes between checkpoints: 1 if they only rise, -1 if they only " +
			"fall",
	},
	{
		Key: "oom_in_ns", Title: "OOM IN", Unit: report.UnitNs,
		About: "time until the device is out of memory: (device memory - used memory) / growth of the row. The used " +
			"memory is NVML's last sample, or else the program's last cuMemGetInfo. Absent without both, for host " +
			"memory and for rows that do not grow",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low; see confidence_reasons",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost calls, a cut-off recording, unmatched frees, a short window",
	},
	{
		Key: "memory_kind", Title: "", Unit: report.UnitText,
		About: "kind of the memory: device, async, managed, host, torch and others. Torch is a block of PyTorch's " +
			"caching allocator with its requested size. Several means that the row has several kinds",
	},
}

// growthMarginColumn has the margin of GROWTH/min in a recording with sampled allocator events.
var growthMarginColumn = report.Column{
	Key:   "growth_plus_minus_bytes_per_min",
	Title: "±/min",
	Unit:  report.UnitBytesRate,
	About: "half width of the 95% interval of GROWTH/min, for PyTorch's blocks in recordings with events in " +
		"windows. GROWTH/min is the row's share in the growth of all blocks of its sizes, by the blocks that windows " +
		"saw being allocated and that live on. Growing rows have a margin of at most half of it",
}

// floorSeriesColumn draws the floors over time, on which the verdict is based.
var floorSeriesColumn = report.Column{
	Key:   "floor_course_bytes",
	Title: "OVER TIME",
	Unit:  report.UnitSeries,
	About: "lowest live bytes between checkpoints after the warm-up, over time. A leak rises to the end, a cache " +
		"levels off. Absent if no memory stayed live",
}

// LeakTotalColumns are the columns of Scan.Totals.
var LeakTotalColumns = []report.Column{
	{Key: "live_bytes", Title: "live", Unit: report.UnitBytes, About: "sum of LIVE over all rows"},
	{Key: "live_count", Title: "blocks", Unit: report.UnitCount, About: "sum of COUNT over all rows"},
	{Key: "allocs", Title: "allocs", Unit: report.UnitCount, About: "sum of ALLOCS over all rows"},
	{Key: "failed_allocs", Title: "failed allocs", Unit: report.UnitCount, About: "allocations that returned an error"},
	{Key: "peak_bytes", Title: "peak", Unit: report.UnitBytes, About: "highest live bytes at any time in the window"},
	{Key: "growing", Title: "growing", Unit: report.UnitCount, About: "rows with verdict growing"},
	{Key: "exit_leaks", Title: "exit leaks", Unit: report.UnitCount, About: "rows with verdict exit leak"},
	{Key: "retained", Title: "retained", Unit: report.UnitCount, About: "rows with verdict retained"},
	{Key: "startup", Title: "startup", Unit: report.UnitCount, About: "rows with verdict startup"},
	{Key: "churn", Title: "churn", Unit: report.UnitCount, About: "rows with verdict churn"},
	{
		Key: "growth_bytes_per_min", Title: "growth/min", Unit: report.UnitBytesRate,
		About: "sum of GROWTH/min over growing rows",
	},
	{
		Key:   "total_growth_bytes",
		Title: "grown",
		Unit:  report.UnitBytes,
		About: "rise of the lowest live bytes of all rows together over all checkpoints: slope times number of " +
			"checkpoints. Frees of PyTorch's blocks from before the recording lower it",
	},
	{
		Key:   "explained_growth_pct",
		Title: "explained%",
		Unit:  report.UnitPercent,
		About: "share of that growth that the growing rows explain: the sum of their rises / the growth, at most " +
			"100%. Absent if memory grew by less than 1 MiB",
	},
	{
		Key: "suppressed_blocks", Title: "suppressed blocks", Unit: report.UnitCount,
		About: "blocks live at the end that match --suppressions; all other numbers exclude them",
	},
	{
		Key: "suppressed_bytes", Title: "suppressed", Unit: report.UnitBytes,
		About: "bytes of the blocks that match --suppressions",
	},
	{
		Key: "oom_in_ns", Title: "out of memory in", Unit: report.UnitNs,
		About: "shortest time until a device is out of memory: (device memory - used memory) / growth of its growing " +
			"rows. The used memory is NVML's last sample or the program's last cuMemGetInfo",
	},
}

// TableOptions configure Scan.Table.
type TableOptions struct {
	AllStacks   bool // text output prints the stacks of all rows, not only of possible leaks
	FloorSeries bool // adds the column with the floors over time
}

// growthQuality returns the quality of the part of the recording in which growth is measured. It begins
// after the warm-up: what is missing only before that does not change the growth.
func (s *Scan) growthQuality(q *report.Quality) *report.Quality {
	late := s.t.Rec.Meta.Late
	if late == nil || late.CompleteNs > s.warmNs {
		return q
	}
	after := *q
	after.LateProcesses, after.MissedEvents = 0, 0
	return &after
}

// Table returns a table with one row per finding, in the same order.
func (s *Scan) Table(findings []LeakFinding, q *report.Quality, opt TableOptions) report.Table {
	label := report.Column{
		Key:   s.Grouping.By,
		Title: group.ColumnTitle(s.Grouping.By),
		Unit:  report.UnitText,
		About: "call site that allocated the memory, or the group of --group-by. SITE from CALLER is the part of a " +
			"site that one caller allocates. A site is split if some callers keep their memory (at most 5% freed) " +
			"and all others free it (at least 95%). At most 4 callers are named, each with at least 20 allocations",
	}
	table := report.Table{
		Name:      "leaks",
		Title:     "leaks",
		Columns:   slices.Clone(LeakColumns),
		HideFirst: []string{"oom_in_ns", "age_median_ns", "freed_pct", "memory_kind"},
		Keys:      []string{s.Grouping.By, group.ViaColumn.Key},
		Verdicts:  verdictNames(),
	}
	if s.windows != nil {
		after := slices.IndexFunc(table.Columns, func(c report.Column) bool { return c.Key == "growth_bytes_per_min" })
		table.Columns = slices.Insert(table.Columns, after+1, growthMarginColumn)
	}
	if opt.FloorSeries {
		table.Columns = append(table.Columns, floorSeriesColumn)
		table.HideFirst = slices.Insert(table.HideFirst, 2, floorSeriesColumn.Key)
	}
	table.Columns = append(table.Columns, group.ViaColumn, label)
	level, reasons := q.Confidence(s.Frees)
	growthLevel, growthReasons := s.growthQuality(q).Confidence(s.Frees)
	forecast := false
	for i := range findings {
		j := &findings[i]
		oom := TimeUntilOom(s.t, j.Device, j.GrowthOnDevice(), s.Window.ToNs)
		forecast = forecast || oom != nil
		rowLevel, rowReasons := level, reasons
		if j.Verdict == VerdictGrowing {
			rowLevel, rowReasons = growthLevel, growthReasons
		}
		rowLevel, rowReasons = j.Confidence(rowLevel, rowReasons, s.Window)
		values := report.Values{
			"verdict":              j.Verdict.String(),
			"live_bytes":           j.LiveBytes,
			"live_count":           j.LiveCount,
			"allocs":               j.allocs,
			"freed_pct":            units.Percent(j.frees, j.allocs),
			"age_median_ns":        medianAgeCell(j),
			"growth_bytes_per_min": units.RoundInt(j.PerMin),
			"frees":                j.frees,
			"alloc_bytes":          j.allocBytes,
			"grown_bytes":          j.grown,
			"tau":                  j.trend.Tau,
			"oom_in_ns":            oom,
			"confidence":           rowLevel,
			"confidence_reasons":   rowReasons,
			"memory_kind":          memoryKindLabel(s.t, j.memory),
			s.Grouping.By:          j.Label,
			group.ViaColumn.Key:    units.TextOrNil(j.Via),
		}
		if s.windows != nil {
			values[growthMarginColumn.Key] = j.marginCell()
		}
		if opt.FloorSeries {
			values[floorSeriesColumn.Key] = s.floorSeries(j.groupStats)
		}
		row := table.Add(values)
		row.Evidence = j.Evidence() + "; " + report.ConfidenceText(rowLevel, rowReasons)
		if j.Via != "" {
			row.Evidence = "via " + j.Via + "; " + row.Evidence
			row.ViaStackID = j.ViaStack
		}
		row.Brief = !opt.AllStacks && !j.Verdict.isSuspect()
		row.StackID = j.StackID()
	}
	table.DropEmptyColumn(group.ViaColumn.Key)
	if !forecast {
		report.HideTitle(table.Columns, "oom_in_ns")
	}
	if len(s.t.Allocations) > 0 {
		report.SetTitle(table.Columns, "memory_kind", "KIND")
	}
	return table
}

// marginCell returns the margin of the growth, bytes per minute, or nil if the growth does not rest on windows.
func (f *LeakFinding) marginCell() any {
	if f.windowGrowth == nil {
		return nil
	}
	return units.RoundInt(f.Margin)
}

// medianAgeCell returns the median age of the unfreed blocks, or nil if no block is unfreed.
func medianAgeCell(j *LeakFinding) any {
	if j.LiveCount == 0 {
		return nil
	}
	return j.medianAge
}

// memoryKindLabel returns the name of a kind of memory. memory is a value of groupStats.memory.
func memoryKindLabel(t *timeline.Timeline, memory int32) string {
	if memory == severalKindsMark {
		return "several"
	}
	return t.Origins.Strings.List[memory]
}

// floorSeries returns the floors of a group over time, summed over its processes, as an []int64. It
// returns nil if all floors are 0.
func (s *Scan) floorSeries(g *groupStats) any {
	var sum []int64
	for i := range g.trackers {
		for step, floor := range s.floorsUntilExit(&g.trackers[i]) {
			if sum == nil {
				sum = make([]int64, CheckpointCount)
			}
			sum[min(step, CheckpointCount-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

// Totals returns the sums over all findings.
func (s *Scan) Totals(findings []LeakFinding) []report.Fact {
	var live, count, allocs int64
	var perMin float64
	var verdicts [verdictCount]int64
	onDevice := make(map[int32]float64)
	for i := range findings {
		j := &findings[i]
		live += j.LiveBytes
		count += j.LiveCount
		allocs += j.allocs
		verdicts[j.Verdict]++
		if j.Verdict == VerdictGrowing {
			perMin += j.PerMin
			onDevice[j.Device] += j.GrowthOnDevice()
		}
	}
	var oom any
	for device, growth := range onDevice {
		if in := TimeUntilOom(
			s.t,
			device,
			growth,
			s.Window.ToNs,
		); in != nil &&
			(oom == nil || in.(int64) < oom.(int64)) {
			oom = in
		}
	}
	hidden := s.Grouping.Suppress.TotalHidden()
	growth := s.measureExplainedGrowth(findings)
	return report.NewFacts(LeakTotalColumns, report.Values{
		"live_bytes":           live,
		"live_count":           count,
		"allocs":               allocs,
		"failed_allocs":        s.failed,
		"peak_bytes":           s.peak,
		"growing":              verdicts[VerdictGrowing],
		"exit_leaks":           verdicts[VerdictExitLeak],
		"retained":             verdicts[VerdictRetained],
		"startup":              verdicts[VerdictStartup],
		"churn":                verdicts[VerdictChurn],
		"growth_bytes_per_min": units.RoundInt(perMin),
		"total_growth_bytes":   growth.TotalBytes,
		"explained_growth_pct": growth.SharePct(),
		"suppressed_blocks":    hidden.Count,
		"suppressed_bytes":     hidden.Bytes,
		"oom_in_ns":            oom,
	})
}
