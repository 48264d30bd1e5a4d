package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/report"
)

// callColumns are those of the table of calls; launches that were sampled add EstimatedCalls.
var callColumns = []report.Column{
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "alloc, free, launch, memcpy, memset, sync or api"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "calls that returned an error (not ready and shutting down are none)"},
	{Key: "unfinished", Title: "OPEN", Unit: report.UnitCount, About: "calls that were not seen to return"},
	{Key: "timed", Title: "TIMED", Unit: report.UnitCount, About: "calls whose duration is known: at high rates the returns of kernel launches are probed for a share of the time only; the times are of these calls"},
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "sum of the time threads spent in these calls; it is CPU time waiting or working, not GPU time, and threads add up"},
	{Key: "host_max_ns", Title: "HOST MAX", Unit: report.UnitNs, About: "longest of these calls"},
}

// callTable returns a table with a row per function of the driver.
func callTable(u *calls.Counter) report.Table {
	table := report.Table{Name: "calls", Title: "calls by time spent in them on the CPU", Columns: slices.Clone(callColumns), Spare: []string{"host_max_ns", "timed"}}
	if u.Weights != nil {
		table.Columns = report.InsertAfter(table.Columns, "calls", report.EstimatedCalls)
	}
	untimed := false
	for n, s := range u.Calls {
		values := report.Values{
			"name":        n.Name,
			"kind":        n.Kind,
			"calls":       s.Calls,
			"errors":      s.Errors,
			"unfinished":  s.Open,
			"timed":       s.Timed,
			"host_sum_ns": s.HostNs,
			"host_max_ns": s.MaxNs,
		}
		if u.Weights != nil {
			values[report.EstimatedCalls.Key] = sampling.Whole(s.Scaled)
		}
		table.Add(values)
		untimed = untimed || s.Timed+s.Open < s.Calls
	}
	if !untimed {
		report.Hide(table.Columns, "timed")
	}
	table.Sort("host_sum_ns", "calls", "name", "kind")
	return table
}
