package blocks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// sizeColumns are the columns of the table of sizes.
var sizeColumns = []report.Column{
	{
		Key:   "verdict",
		Title: "VERDICT",
		Unit:  report.UnitText,
		About: "classification of the row. Growing: the floor of the bytes rises until the last reading. The floor " +
			"is the lowest bytes at the readings between two of 20 checkpoints after a warm-up of 10%. The " +
			"rise must be steady (tau >= 0.8, at least 5 rises), still present in the last quarter, and its " +
			"second half at least half as steep as its first. It must be at least 1 MiB and 1% of the bytes, in " +
			"the time of the readings or per minute if that is shorter. It must exceed chance. Churn: no block " +
			"is live, or 90% of the blocks seen went and the rest is young. Steady: all other rows. Absent " +
			"with fewer than 20 readings after the warm-up",
	},
	{
		Key:   "live_bytes",
		Title: "LIVE",
		Unit:  report.UnitBytes,
		About: "bytes of the blocks at the last reading, with the allocator's rounding. Blocks that the program " +
			"freed and a stream still uses count",
	},
	{Key: "live_count", Title: "COUNT", Unit: report.UnitCount, About: "blocks at the last reading"},
	{Key: "first_count", Title: "FIRST", Unit: report.UnitCount, About: "blocks at the first reading"},
	{
		Key: "grown_bytes", Title: "GROWN", Unit: report.UnitBytes,
		About: "bytes at the last reading less those at the first",
	},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope of the lowest bytes between checkpoints, per minute. Growing rows use only the " +
			"checkpoints since the rise began. Absent without a verdict",
	},
	{Key: "peak_bytes", Title: "PEAK", Unit: report.UnitBytes, About: "most bytes at any reading"},
	{
		Key: "age_median_ns", Title: "AGE(med)", Unit: report.UnitNs,
		About: "median time since the blocks of LIVE were first seen, at the last reading. A block of the first " +
			"reading may be older. Absent if no block is live",
	},
	{
		Key: "floor_course_bytes", Title: "OVER TIME", Unit: report.UnitSeries,
		About: "lowest bytes between checkpoints after the warm-up, over time. Memory that grows rises to the end, a " +
			"cache levels off. Absent if no block stayed, or without a verdict",
	},
	{
		Key: "seen_count", Title: "", Unit: report.UnitCount,
		About: "blocks that were in any reading. Blocks that were allocated and freed between two readings are unknown",
	},
	{Key: "gone_count", Title: "", Unit: report.UnitCount, About: "blocks of seen_count that a later reading lacks"},
	{
		Key: "tau", Title: "", Unit: report.UnitRatio,
		About: "Mann-Kendall tau of the lowest bytes between checkpoints: 1 if they only rise, -1 if they only fall. " +
			"Absent without a verdict",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in the verdict: high or medium; see confidence_reasons. Absent without a verdict",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: a short time, refused readings, few blocks, a late rise",
	},
	{Key: "requested_bytes", Title: "", Unit: report.UnitBytes, About: "requested size of each block"},
	{Key: "pool", Title: "POOL", Unit: report.UnitText, About: "pool of the blocks: default, or a private one"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream of the blocks"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "size", Title: "SIZE", Unit: report.UnitText, About: "requested size of each block, exact"},
}

// sizeTable returns a table with one row per finding, in the same order.
func (s *scan) sizeTable(findings []finding) report.Table {
	table := report.Table{
		Name:    "sizes",
		Title:   "blocks by size",
		Columns: slices.Clone(sizeColumns),
		HideFirst: []string{
			"stream",
			"age_median_ns",
			"floor_course_bytes",
			"pid",
			"first_count",
			"peak_bytes",
			"device",
		},
		Keys:     []string{"size", "pool", "stream", "device"},
		Verdicts: []string{verdictGrowing.String(), verdictSteady.String(), verdictChurn.String()},
	}
	hasPools, hasStreams := false, false
	for i := range findings {
		f := &findings[i]
		hasPools, hasStreams = hasPools || f.Pool != 0, hasStreams || f.Stream != 0
		values := report.Values{
			"live_bytes":      f.last.Bytes,
			"live_count":      f.last.Blocks,
			"first_count":     f.first.Blocks,
			"grown_bytes":     f.grownBytes(),
			"peak_bytes":      f.peak,
			"age_median_ns":   nil,
			"seen_count":      f.seen,
			"gone_count":      f.gone,
			"requested_bytes": f.Requested,
			"pool":            caching.FormatPool(f.Pool),
			"stream":          query.StreamName(f.Stream),
			"device":          s.t.OrdinalDeviceLabel(f.of.Pid, f.of.Device),
			"pid":             int64(f.of.Pid),
			"size":            timeline.FormatExactSize(f.Requested),
		}
		if len(f.ages) > 0 {
			values["age_median_ns"] = stats.Median(f.ages)
		}
		row := table.Add(report.JoinValues(values, f.verdictValues()))
		if row.Brief = f.verdict != verdictGrowing; !row.Brief {
			row.Evidence = f.evidence() + "; " + report.ConfidenceText(f.confidence())
		}
	}
	if !hasPools {
		report.HideTitle(table.Columns, "pool")
	}
	if !hasStreams {
		report.HideTitle(table.Columns, "stream")
	}
	return table
}

// verdictValues returns the cells about the verdict and the growth. They are nil without a verdict.
func (f *finding) verdictValues() report.Values {
	if f.verdict == verdictNone {
		return report.Values{
			"verdict": nil, "growth_bytes_per_min": nil, "floor_course_bytes": nil, "tau": nil, "confidence": nil,
			"confidence_reasons": nil,
		}
	}
	level, reasons := f.confidence()
	v := report.Values{
		"verdict": f.verdict.String(), "growth_bytes_per_min": units.RoundInt(f.growth.perMin),
		"floor_course_bytes": nil, "tau": f.growth.Tau, "confidence": level, "confidence_reasons": reasons,
	}
	if len(f.Floors) > 0 && slices.Max(f.Floors) > 0 {
		v["floor_course_bytes"] = f.Floors
	}
	return v
}
