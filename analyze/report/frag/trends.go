package frag

import (
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

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
