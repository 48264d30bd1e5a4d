package gputime

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// SumColumn is the GPU time of a row, by which reports with GPU times sort.
const SumColumn = "gpu_sum_ns"

// Columns are the columns of a row with GPU times. Only recordings with GPU times have them. Values fills
// them.
var Columns = []report.Column{
	{
		Key: SumColumn, Title: "GPU TIME", Unit: report.UnitNs,
		About: "time on the GPU: number of launches or copies x GPU MEAN, without those of unknown GPU time",
	},
	{
		Key: "gpu_sum_plus_minus_ns", Title: "±", Unit: report.UnitNs,
		About: "two standard errors of estimated GPU TIME, plus half the distance of the bounds of the rest",
	},
	{
		Key:   "gpu_pct",
		Title: "GPU%",
		Unit:  report.UnitPercent,
		About: "share of GPU TIME in the known GPU time of all rows of the table; none if it is unknown for " +
			"more than a quarter of the launches or copies",
	},
	{
		Key:   "gpu_mean_ns",
		Title: "GPU MEAN",
		Unit:  report.UnitNs,
		About: "mean time on the GPU: of a kernel with a grid at a call site, of a graph, or of copies of about " +
			"one size. " +
			"It follows from the times between samples, by least squares",
	},
	{
		Key: "gpu_mean_plus_minus_ns", Title: "MEAN ±", Unit: report.UnitNs,
		About: "two standard errors of GPU MEAN, or half the distance of its bounds",
	},
	{
		Key:   "gpu_times",
		Title: "TIMES",
		Unit:  report.UnitText,
		About: "estimated; or bounded, if only bounds of most of GPU TIME are known, because no operation waits for " +
			"the ends. GPU TIME is the middle of the bounds then",
	},
	{
		Key: "gpu_unknown", Title: "", Unit: report.UnitCount,
		About: "launches or copies of unknown GPU time; an estimate if launches were sampled",
	},
}

// HiddenFirst are the keys of Columns that text output hides first.
var HiddenFirst = []string{"gpu_mean_plus_minus_ns"}

// AddColumns puts Columns in front of the columns of a table.
func AddColumns(table *report.Table) {
	table.Columns = slices.Concat(Columns, table.Columns)
	table.HideFirst = slices.Concat(table.HideFirst, HiddenFirst)
}

// Values returns the values of Columns. allNs is the GPU time of all rows, or 0 if it is unknown for many of them.
func Values(sum *activity.TimeSum, allNs float64) report.Values {
	values := report.Values{"gpu_unknown": units.RoundInt(sum.Unknown())}
	for i := range Columns {
		if key := Columns[i].Key; key != "gpu_unknown" {
			values[key] = nil
		}
	}
	if sum.Operations() == 0 {
		return values
	}
	errorNs := sum.ErrorNs()
	values[SumColumn], values["gpu_sum_plus_minus_ns"] = units.RoundInt(sum.TotalNs()), units.RoundInt(errorNs)
	values["gpu_mean_ns"] = units.RoundInt(sum.TotalNs() / sum.Operations())
	values["gpu_mean_plus_minus_ns"] = units.RoundInt(errorNs / sum.Operations())
	values["gpu_times"] = QualityText(sum.Quality())
	if allNs > 0 {
		values["gpu_pct"] = 100 * sum.TotalNs() / allNs
	}
	return values
}

// QualityText returns the name of a quality.
func QualityText(q activity.Quality) string {
	return [...]string{"unknown", "estimated", "bounded", "measured"}[q]
}

// FactColumns are the facts of a report with GPU times.
var FactColumns = []report.Column{
	{
		Key: "gpu_text", Title: "GPU time", Unit: report.UnitText,
		About: "gpu_sum_ns of the report as a sentence, with the share of launches whose GPU time is known",
	},
}

// TotalColumns are the totals of a report with GPU times.
var TotalColumns = []report.Column{
	{
		Key:   SumColumn,
		Title: "GPU time",
		Unit:  report.UnitNs,
		About: "GPU time of all launches or copies of known duration",
	},
	{
		Key: "gpu_sum_plus_minus_ns", Title: "±", Unit: report.UnitNs,
		About: "two standard errors of gpu_sum_ns. Errors of different kernels are independent",
	},
	{
		Key: "gpu_known_pct", Title: "% with known GPU time", Unit: report.UnitPercent,
		About: "share of launches or copies whose GPU time is measured, bounded or estimated",
	},
}

// Totals returns the values of TotalColumns.
func Totals(sum *activity.TimeSum) report.Values {
	return report.Values{
		SumColumn: units.RoundInt(sum.TotalNs()), "gpu_sum_plus_minus_ns": units.RoundInt(sum.ErrorNs()),
		"gpu_known_pct": knownPct(sum),
	}
}

// knownPct returns the share of operations with a known GPU time, or nil without operations.
func knownPct(sum *activity.TimeSum) any {
	if sum.Operations()+sum.Unknown() == 0 {
		return nil
	}
	return 100 * sum.Operations() / (sum.Operations() + sum.Unknown())
}
