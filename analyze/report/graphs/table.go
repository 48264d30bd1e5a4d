package graphs

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "why the report has no rows; absent if it has some",
	},
}

// newFacts returns the facts of the report.
func newFacts(list []*execution) []report.Fact {
	result := ""
	if len(list) == 0 {
		result = "no graph was instantiated or launched in the window"
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key:   "graphs",
		Title: "graphs",
		Unit:  report.UnitCount,
		About: "executable graphs: rows of the table before --top",
	},
	{
		Key: "unused_graphs", Title: "never launched", Unit: report.UnitCount,
		About: "graphs that were instantiated in the window, and not launched in it",
	},
	{Key: "launches", Title: "launches", Unit: report.UnitCount, About: "sum of LAUNCHES"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "host_sum_ns", Title: "host time of launches", Unit: report.UnitNs,
		About: "time that threads spent in launches of known duration",
	},
}

// newTotals returns the totals of the report.
func newTotals(list []*execution) []report.Fact {
	var unused, launches, errors, hostNs int64
	for _, e := range list {
		if e.launches+e.errors == 0 {
			unused++
		}
		launches += e.launches
		errors += e.errors
		hostNs += e.hostNs
	}
	return report.NewFacts(totalColumns, report.Values{
		"graphs": int64(len(list)), "unused_graphs": unused, "launches": launches, "errors": errors,
		"host_sum_ns": hostNs,
	})
}

// graphColumns are the columns of scan.graphTable, besides those of GPU times.
var graphColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches in the window that neither failed nor were captured",
	},
	{Key: "kernels", Title: "KERNELS", Unit: report.UnitCount, About: "kernel nodes; unknown if NODES is"},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copy nodes; unknown if NODES is"},
	{Key: "fills", Title: "FILLS", Unit: report.UnitCount, About: "memset nodes; unknown if NODES is"},
	{
		Key: "other_nodes", Title: "OTHERS", Unit: report.UnitCount,
		About: "nodes that allocate or free memory, run host functions, or do something else; unknown if NODES is",
	},
	{
		Key: "captured_bytes", Title: "CAPTURE MEM", Unit: report.UnitBytes,
		About: "device memory that the capturing thread allocated from the driver between begin and end of the " +
			"capture; unknown if the capture is not in the recording",
	},
	{
		Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs,
		About: "average duration of a launch call on the host, of those with a known duration",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in launches of known duration",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key:   "device",
		Title: "DEVICE",
		Unit:  report.UnitText,
		About: "CUDA device of the last launch, else of the context",
	},
	{Key: "graph", Title: "GRAPH", Unit: report.UnitText, About: "handle of the executable graph"},
	{
		Key: "created_ns", Title: "", Unit: report.UnitTime,
		About: "time of the instantiation; unknown if it is not in the recording",
	},
	{
		Key: "site", Title: "CAPTURED AT", Unit: report.UnitText,
		About: "call site that began the capture, else that of the instantiation; unknown for graphs from before " +
			"the recording",
	},
	{
		Key: "launch_site", Title: "LAUNCHED AT", Unit: report.UnitText,
		About: "call site with the most launches, and the number of other call sites",
	},
	{
		Key:   "nodes",
		Title: "NODES",
		Unit:  report.UnitText,
		About: "nodes at the last launch, with their numbers; unknown if the calls that built the graph are not in " +
			"the recording, or the graph is not launched",
	},
}

// graphTable returns a table with one row per executable graph. allNs is the GPU time of all rows.
func (sc *scan) graphTable(list []*execution, allNs float64) report.Table {
	table := report.Table{
		Name: "graphs", Columns: graphColumns, Keys: []string{"site", "launch_site"},
		HideFirst: []string{"host_sum_ns", "errors", "other_nodes", "device", "nodes"},
	}
	if sc.times != nil {
		gputime.AddColumns(&table)
	}
	for _, e := range list {
		values := report.JoinValues(sc.nodeValues(e), report.Values{
			"launches": e.launches, "captured_bytes": nil, "host_avg_ns": nil, "host_sum_ns": nil, "errors": e.errors,
			"pid": int64(e.pid), "device": sc.t.OrdinalDeviceLabel(e.pid, e.device), "created_ns": nil,
			"graph": fmt.Sprintf("0x%x", uint64(e.handle)), "site": nil, "launch_site": sc.mainSite(e),
		})
		if e.timed > 0 {
			values["host_avg_ns"], values["host_sum_ns"] = e.hostNs/e.timed, e.hostNs
		}
		if e.createdNs > 0 {
			values["created_ns"], values["site"] = e.createdNs, sc.Names.List[e.site]
		}
		if e.capture != nil {
			values["captured_bytes"], values["site"] = e.capture.bytes, sc.Names.List[e.capture.site]
		}
		if sc.times != nil {
			values = report.JoinValues(values, gputime.Values(&e.gpu, allNs))
		}
		table.Add(values)
	}
	keys := []string{"launches", "-pid", "graph", "-created_ns"}
	if allNs > 0 {
		keys = append([]string{gputime.SumColumn}, keys...)
	}
	table.Sort(keys...)
	return table
}

// nodeValues returns the values of the columns of nodes.
func (sc *scan) nodeValues(e *execution) report.Values {
	values := report.Values{"kernels": nil, "copies": nil, "fills": nil, "other_nodes": nil, "nodes": nil}
	v := sc.contents.VersionAt(e.pid, e.handle, max(e.lastNs, e.createdNs))
	if v == nil || v.Text == "" {
		return values
	}
	values["nodes"] = v.Text
	if n, isCertain := v.Nodes(); isCertain {
		values["kernels"], values["copies"], values["fills"] = n.Kernels, n.Copies, n.Fills
		values["other_nodes"] = n.Others
	}
	return values
}

// mainSite returns the call site with the most launches, and the number of others, as text. It returns nil without
// launches.
func (sc *scan) mainSite(e *execution) any {
	best := int32(-1)
	for site, n := range e.sites {
		if best < 0 || n > e.sites[best] || n == e.sites[best] && sc.Names.List[site] < sc.Names.List[best] {
			best = site
		}
	}
	switch {
	case best < 0:
		return nil
	case len(e.sites) == 1:
		return sc.Names.List[best]
	}
	return fmt.Sprintf("%s and %d more", sc.Names.List[best], len(e.sites)-1)
}
