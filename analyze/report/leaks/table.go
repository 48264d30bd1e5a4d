package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
)

// Columns are the columns of the table of leaks. Scan.Table adds one that names the group.
var Columns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "growing: the lowest live bytes of a process between checkpoints (20 after a warm-up of 10%) rise " +
			"all along since they began to (tau >= 0.8, at least 5 rises), still in the last quarter, in the second " +
			"half at no less than half the slope of the first, by at least 1 MiB and 1% of what is live, per " +
			"window or per minute if the window is shorter, by more than blocks that come and go do by " +
			"chance, and by twice what lost frees would explain, in the last quarter too; churn: " +
			"nothing is left, or 90% was freed and the rest is young; startup: 90% of what is left " +
			"is from the warm-up; exit leak: the process, or the last context it used, ended with it (blocks of " +
			"PyTorch are retained then); retained: what else is live",
	},
	{
		Key: "live_bytes", Title: "LIVE", Unit: report.UnitBytes,
		About: "bytes allocated in the window that the program had not freed at its end, or when its process or the " +
			"last context of that ended",
	},
	{Key: "live_count", Title: "COUNT", Unit: report.UnitCount, About: "allocations behind LIVE"},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "allocations in the window"},
	{Key: "freed_pct", Title: "FREED%", Unit: report.UnitPercent, About: "share of ALLOCS that was freed"},
	{
		Key: "age_median_ns", Title: "AGE(med)", Unit: report.UnitNs,
		About: "median age of the live allocations at the end of the window",
	},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope of the lowest live bytes between checkpoints, per minute; of what grows, since it " +
			"began to",
	},
	{
		Key: "frees", Title: "", Unit: report.UnitCount,
		About: "frees of ALLOCS, those included that were not recorded but must have happened",
	},
	{Key: "alloc_bytes", Title: "", Unit: report.UnitBytes, About: "bytes of ALLOCS"},
	{
		Key: "grown_bytes", Title: "", Unit: report.UnitBytes,
		About: "rise of the lowest live bytes over the checkpoints, by the slope",
	},
	{
		Key: "tau", Title: "", Unit: report.UnitRatio,
		About: "Mann-Kendall tau of the lowest live bytes: 1 only rises, -1 only falls",
	},
	{
		Key: "oom_in_ns", Title: "OOM IN", Unit: report.UnitNs,
		About: "(memory of the device - memory used at NVML's last sample, or where there is none at the program's " +
			"last cuMemGetInfo) / growth of the row; absent without either, for host memory and for rows that do " +
			"not grow",
	},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low; see confidence_reasons"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers the confidence: lost calls, a cut-off recording, unmatched frees, a short window",
	},
	{
		Key: "memory_kind", Title: "", Unit: report.UnitText,
		About: "kind of the memory: device, async, managed, host, torch (blocks that PyTorch's caching allocator " +
			"handed out, with the bytes that were asked for) and so on; several if the row has several",
	},
}

// courseColumn draws the floors that the verdict rests on.
var courseColumn = report.Column{
	Key:   "floor_course_bytes",
	Title: "OVER TIME",
	Unit:  report.UnitSeries,
	About: "lowest live bytes between the checkpoints after the warm-up, from 0 to the highest of them: a leak " +
		"rises to the end, a cache levels off; absent where nothing stayed",
}

// TotalColumns are those of Scan.Totals.
var TotalColumns = []report.Column{
	{Key: "live_bytes", Title: "live", Unit: report.UnitBytes, About: "sum of LIVE over all rows"},
	{Key: "live_count", Title: "blocks", Unit: report.UnitCount, About: "sum of COUNT over all rows"},
	{Key: "allocs", Title: "allocs", Unit: report.UnitCount, About: "sum of ALLOCS over all rows"},
	{Key: "failed_allocs", Title: "failed allocs", Unit: report.UnitCount, About: "allocations that returned an error"},
	{Key: "peak_bytes", Title: "peak", Unit: report.UnitBytes, About: "most bytes live at a time"},
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
		Key: "suppressed_blocks", Title: "suppressed blocks", Unit: report.UnitCount,
		About: "blocks that were live at the end and that --suppressions leaves out of everything else",
	},
	{Key: "suppressed_bytes", Title: "suppressed", Unit: report.UnitBytes, About: "bytes of these"},
	{
		Key: "oom_in_ns", Title: "out of memory in", Unit: report.UnitNs,
		About: "soonest device: (memory - memory used at NVML's last sample or the program's last cuMemGetInfo) / " +
			"growth of its growing rows",
	},
}

// TableOptions choose what a table of leaks shows.
type TableOptions struct {
	AllStacks bool // stacks of all rows in text, not only of those that may be leaks
	Courses   bool // a column with the course of the floors
}

// Table returns a table with a row per finding, in the same order.
func (s *Scan) Table(findings []Finding, q *report.Quality, opt TableOptions) report.Table {
	label := report.Column{
		Key:   s.Grouping.By,
		Title: group.Title(s.Grouping.By),
		Unit:  report.UnitText,
		About: "where the memory was allocated, or what --group-by asks for",
	}
	table := report.Table{
		Name:      "leaks",
		Title:     "leaks",
		Columns:   slices.Clone(Columns),
		HideFirst: []string{"oom_in_ns", "age_median_ns", "freed_pct", "memory_kind"},
		Keys:      []string{s.Grouping.By},
		Verdicts:  verdictNames(),
	}
	if opt.Courses {
		table.Columns = append(table.Columns, courseColumn)
		table.HideFirst = slices.Insert(table.HideFirst, 2, courseColumn.Key)
	}
	table.Columns = append(table.Columns, label)
	level, reasons := q.Confidence(s.Frees)
	forecast := false
	for i := range findings {
		j := &findings[i]
		oom := OomIn(s.t, j.Device, j.GrowthOnDevice(), s.Window.ToNs)
		forecast = forecast || oom != nil
		rowLevel, rowReasons := j.Confidence(level, reasons, s.Window)
		values := report.Values{
			"verdict":              j.Verdict.String(),
			"live_bytes":           j.LiveBytes,
			"live_count":           j.LiveCount,
			"allocs":               j.allocs,
			"freed_pct":            units.Percent(j.frees, j.allocs),
			"age_median_ns":        age(j),
			"growth_bytes_per_min": units.RoundInt(j.PerMin),
			"frees":                j.frees,
			"alloc_bytes":          j.allocBytes,
			"grown_bytes":          j.grown,
			"tau":                  j.trend.Tau,
			"oom_in_ns":            oom,
			"confidence":           rowLevel,
			"confidence_reasons":   rowReasons,
			"memory_kind":          kindLabel(s.t, j.memory),
			s.Grouping.By:          j.Label,
		}
		if opt.Courses {
			values[courseColumn.Key] = s.floorCourse(j.groupStats)
		}
		row := table.Add(values)
		row.Evidence = j.Evidence() + "; " + report.ConfidenceText(rowLevel, rowReasons)
		row.Brief = !opt.AllStacks && !j.Verdict.isSuspect()
		row.StackID = j.Stack()
	}
	if !forecast {
		report.HideTitle(table.Columns, "oom_in_ns")
	}
	if len(s.t.Allocations) > 0 {
		report.SetTitle(table.Columns, "memory_kind", "KIND")
	}
	return table
}

// age returns the median age of the unfreed blocks, nil if there are none.
func age(j *Finding) any {
	if j.LiveCount == 0 {
		return nil
	}
	return j.medianAge
}

// kindLabel returns the name of the kind of a group's memory.
func kindLabel(t *timeline.Timeline, memory int32) string {
	if memory == mixedKinds {
		return "several"
	}
	return t.Origins.Strings.List[memory]
}

// floorCourse returns the floors of a group, of all its processes together, as an []int64; nil if
// all of them are 0.
func (s *Scan) floorCourse(g *groupStats) any {
	var sum []int64
	for i := range g.trackers {
		for step, floor := range s.series(&g.trackers[i]) {
			if sum == nil {
				sum = make([]int64, Checkpoints)
			}
			sum[min(step, Checkpoints-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

// Totals sums up all findings.
func (s *Scan) Totals(findings []Finding) []report.Fact {
	var live, count, allocs int64
	var perMin float64
	var verdicts [numVerdicts]int64
	onDevice := make(map[int32]float64)
	for i := range findings {
		j := &findings[i]
		live += j.LiveBytes
		count += j.LiveCount
		allocs += j.allocs
		verdicts[j.Verdict]++
		if j.Verdict == Growing {
			perMin += j.PerMin
			onDevice[j.Device] += j.GrowthOnDevice()
		}
	}
	var oom any
	for device, growth := range onDevice {
		if in := OomIn(s.t, device, growth, s.Window.ToNs); in != nil && (oom == nil || in.(int64) < oom.(int64)) {
			oom = in
		}
	}
	hidden := s.Grouping.Suppress.Total()
	return report.Facts(TotalColumns, report.Values{
		"live_bytes":           live,
		"live_count":           count,
		"allocs":               allocs,
		"failed_allocs":        s.failed,
		"peak_bytes":           s.peak,
		"growing":              verdicts[Growing],
		"exit_leaks":           verdicts[ExitLeak],
		"retained":             verdicts[Retained],
		"startup":              verdicts[Startup],
		"churn":                verdicts[Churn],
		"growth_bytes_per_min": units.RoundInt(perMin),
		"suppressed_blocks":    hidden.Count,
		"suppressed_bytes":     hidden.Bytes,
		"oom_in_ns":            oom,
	})
}
