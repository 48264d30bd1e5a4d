package kernels

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
	{
		Key: "kernels_text", Title: "kernels", Unit: report.UnitText,
		About: "kernels that ran by launches and by graphs, and that were only captured; of launches known to have " +
			"worked",
	},
}

var totalColumns = []report.Column{
	{
		Key: "launches", Title: "launches", Unit: report.UnitCount,
		About: "kernel launches in the window that ran: neither failed nor captured; those whose result is not " +
			"known are in it",
	},
	{Key: "kernels", Title: "kernels", Unit: report.UnitCount, About: "different kernels, by name"},
	{Key: "tiny_launches", Title: "tiny", Unit: report.UnitCount, About: "launches of less than 8,192 threads"},
	{Key: "tiny_pct", Title: "% tiny", Unit: report.UnitPercent, About: "share of these in launches"},
	{
		Key: "captured_launches", Title: "captured", Unit: report.UnitCount,
		About: "launches that stream capture put into a graph instead of running them",
	},
	{Key: "graph_launches", Title: "graph launches", Unit: report.UnitCount, About: "graphs run"},
	{
		Key: "graph_kernels", Title: "kernels by graphs", Unit: report.UnitCount,
		About: "kernels in those, as far as the making of the graphs was recorded",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "launches_per_second", Title: "launches/s", Unit: report.UnitRatio,
		About: "launches (estimated_launches, where some were left out) by the length of the window",
	},
	{
		Key: "peak_launches_per_second", Title: "launches in the busiest second", Unit: report.UnitCount,
		About: "most launches in one second of the recording",
	},
	{
		Key: "timed_launches", Title: "timed", Unit: report.UnitCount,
		About: "launches, graphs too, whose host time is known",
	},
	{
		Key: "host_sum_ns", Title: "host time of these", Unit: report.UnitNs,
		About: "time that threads spent in timed launches; CPU time, not GPU time",
	},
}

func (sc *Scan) totals() []report.Fact {
	sum := sc.sum()
	var graphs, graphKernels, busiest int64
	for _, g := range sc.graphs {
		graphs += g.Launches
		graphKernels += g.graphKernels
		sum.errors += g.errors
		sum.timed += g.timed
		sum.hostNs = units.EndOf(sum.hostNs, g.hostNs)
	}
	for _, n := range sc.seconds {
		busiest = max(busiest, n)
	}
	totals := report.Facts(totalColumns, report.Values{
		"launches":                 sum.Launches,
		"kernels":                  int64(len(sc.kernels())),
		"tiny_launches":            sum.Tiny,
		"tiny_pct":                 units.Percent(sum.Tiny, sum.Launches),
		"captured_launches":        sum.captured,
		"graph_launches":           graphs,
		"graph_kernels":            graphKernels,
		"errors":                   sum.errors,
		"launches_per_second":      sc.perSecond(sampling.Whole(sum.scaled)),
		"peak_launches_per_second": busiest,
		"timed_launches":           sum.timed,
		"host_sum_ns":              sum.Total(),
	})
	if sc.Weights != nil {
		totals = append(totals, report.EstimateOf(report.EstimatedLaunches, "launches by estimate", sum.scaled))
	}
	return totals
}

var kernelColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches in the window that ran, neither failed nor captured; what graphs run is not in it",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share in all kernel launches; says nothing of GPU time",
	},
	{
		Key: "launches_per_second", Title: "RATE/S", Unit: report.UnitRatio,
		About: "launches (estimated_launches, where some were left out) by the length of the window",
	},
	{
		Key: "tiny_launches", Title: "TINY", Unit: report.UnitCount,
		About: "of LAUNCHES, those of less than 8,192 threads (grid times block): they leave a large GPU almost empty",
	},
	{
		Key: "threads_avg", Title: "THREADS", Unit: report.UnitCount,
		About: "average threads of a launch, grid times block",
	},
	{Key: "shapes", Title: "SHAPES", Unit: report.UnitCount, About: "different grids, blocks and shared memory"},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches that stream capture put into a graph instead",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "timed_launches", Title: "TIMED", Unit: report.UnitCount,
		About: "launches whose host time is known: HOST columns are of these",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in timed launches, not GPU time",
	},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average of that"},
	{
		Key: "estimated_host_sum_ns", Title: "", Unit: report.UnitNs,
		About: "estimate: host_sum_ns if the other launches had taken as long on average",
	},
	{Key: "sites", Title: "", Unit: report.UnitCount, About: "places in the program that launch it"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the place with most of the launches, and how many others there are",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "name with template arguments folded, #n where that is the same for several kernels; (unknown) where " +
			"the recording has no name",
	},
}

// table has a row per kernel.
func (sc *Scan) table() report.Table {
	table := report.Table{
		Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns),
		HideFirst: []string{"threads_avg", "shapes", "host_avg_ns", "launches_per_second", "timed_launches", "host_sum_ns"},
	}
	if sc.Weights != nil {
		table.Columns = report.InsertAfter(table.Columns, "launches", report.EstimatedLaunches)
	}
	kernels, sum := sc.kernels(), sc.sum()
	short := sc.shortNames()
	for id, k := range kernels {
		values := sc.kernelValues(k, &sum)
		values["kernel"], values["kernel_short"] = units.Known(sc.Names.List[id]), short[id]
		table.Add(values)
	}
	for key, n := range map[string]int64{"captured": sum.captured, "errors": sum.errors, "tiny_launches": sum.Tiny} {
		if n == 0 {
			report.HideTitle(table.Columns, key)
		}
	}
	if !sc.untimed {
		report.HideTitle(table.Columns, "timed_launches")
	}
	table.Sort("launches", "captured", "kernel")
	return table
}

// kernelValues returns the values of a kernel but its names.
func (sc *Scan) kernelValues(k *launchGroup, sum *LaunchStats) report.Values {
	var threads any
	if k.Sized > 0 {
		threads = k.Threads / k.Sized
	}
	values := report.Values{
		"launches":              k.Launches,
		"share_pct":             units.Percent(k.Launches, sum.Launches),
		"launches_per_second":   sc.perSecond(sampling.Whole(k.scaled)),
		"tiny_launches":         k.Tiny,
		"threads_avg":           threads,
		"shapes":                int64(len(k.shapes)),
		"captured":              k.captured,
		"errors":                k.errors,
		"timed_launches":        k.timed,
		"host_sum_ns":           k.Total(),
		"host_avg_ns":           k.avg(),
		"estimated_host_sum_ns": k.estimated(),
		"sites":                 int64(len(k.sites)),
		"site":                  sc.site(k),
	}
	if sc.Weights != nil {
		values[report.EstimatedLaunches.Key] = sampling.Whole(k.scaled)
	}
	return values
}

var shapeColumns = []report.Column{
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "launches in the window that ran"},
	{Key: "captured", Title: "", Unit: report.UnitCount, About: "launches that were captured"},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "blocks"},
	{Key: "block", Title: "BLOCK", Unit: report.UnitText, About: "threads of a block"},
	{Key: "shared_bytes", Title: "SHARED", Unit: report.UnitBytes, About: "dynamic shared memory of a block"},
	{Key: "threads", Title: "THREADS", Unit: report.UnitCount, About: "grid times block"},
	{Key: "tiny", Title: "TINY", Unit: report.UnitText, About: "yes if that is less than 8,192"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the place in the program with most of them, and how many others there are",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name"},
	{Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText, About: "as above"},
}

// shapeTable has a row per kernel and size of launch. If top is not 0, it has only those that can
// be among the first top rows: there may be maxShapes of them.
func (sc *Scan) shapeTable(top int) report.Table {
	table := report.Table{
		Name: "shapes", Title: "sizes of launches", Columns: shapeColumns, Secondary: true,
		HideFirst: []string{"tiny", "site"},
	}
	short := sc.shortNames()
	groups := summed(sc, func(k launchKey) launchShape { return k.launchShape })
	shown := mostLaunched(groups, top)
	table.OmittedRows = len(groups) - len(shown)
	for _, shape := range shown {
		s := groups[shape]
		var threads any
		tiny := "no"
		if shape.known() {
			threads = shape.threads()
		}
		if shape.tiny() {
			tiny = "yes"
		}
		table.Add(report.Values{
			"launches":     s.Launches,
			"captured":     s.captured,
			"grid":         extent(shape.grid),
			"block":        extent(shape.block),
			"shared_bytes": int64(shape.shared),
			"threads":      threads,
			"tiny":         tiny,
			"site":         sc.site(s),
			"kernel":       units.Known(sc.Names.List[shape.Kernel]),
			"kernel_short": short[shape.Kernel],
		})
	}
	table.Sort("launches", "captured", "kernel_short", "kernel", "threads", "grid", "block", "shared_bytes")
	return table
}

// extent formats a grid or block as x×y×z, without trailing ones.
func extent(v [3]int32) string {
	if v[0] == manySizes {
		return "(others)"
	}
	text := fmt.Sprintf("%d×%d×%d", v[0], v[1], v[2])
	for _, last := range []string{"×0", "×1"} {
		text = strings.TrimSuffix(strings.TrimSuffix(text, last), last)
	}
	return text
}

var streamColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that ran",
	},
	{Key: "launches_per_second", Title: "RATE/S", Unit: report.UnitRatio, About: "these by the length of the window"},
	{
		Key: "tiny_launches", Title: "TINY", Unit: report.UnitCount,
		About: "of LAUNCHES, kernels of less than 8,192 threads",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches on the stream that were captured into a graph",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream handle; 0 is the default stream"},
}

// streamTable has a row per stream.
func (sc *Scan) streamTable() report.Table {
	table := report.Table{Name: "streams", Title: "launches by stream", Columns: streamColumns, Secondary: true}
	streams := summed(sc, func(k launchKey) launchStream { return k.launchStream })
	for key, g := range sc.graphs {
		if streams[key.launchStream] == nil {
			streams[key.launchStream] = new(launchGroup)
		}
		streams[key.launchStream].Merge(g)
	}
	keys := slices.SortedFunc(maps.Keys(streams), func(a, b launchStream) int {
		return cmp.Or(
			cmp.Compare(streams[b].Launches, streams[a].Launches),
			cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.stream, b.stream),
		)
	})
	for _, key := range keys {
		s := streams[key]
		table.Add(report.Values{
			"launches":            s.Launches,
			"launches_per_second": sc.perSecond(sampling.Whole(s.scaled)),
			"tiny_launches":       s.Tiny,
			"captured":            s.captured,
			"errors":              s.errors,
			"pid":                 int64(key.Pid),
			"device":              sc.T.OrdinalLabel(key.Pid, key.Device),
			"stream":              query.StreamName(key.stream),
		})
	}
	processes.AddRanks(sc.T, &table)
	return table
}

var graphColumns = []report.Column{
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "times the graph ran in the window"},
	{
		Key: "graph_kernels", Title: "KERNELS RUN", Unit: report.UnitCount,
		About: "kernels that it holds, times that, as far as its making was recorded; 0 where it was not",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "timed_launches", Title: "TIMED", Unit: report.UnitCount, About: "launches whose host time is known"},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in these, not GPU time",
	},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average of that"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream it was launched on"},
	{Key: "graph", Title: "GRAPH", Unit: report.UnitText, About: "handle of the executable graph"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the place in the program that launches it"},
}

// graphTable has a row per graph, stream and call site that launches it.
func (sc *Scan) graphTable() report.Table {
	table := report.Table{
		Name:      "graphs",
		Title:     "graphs",
		Columns:   graphColumns,
		Secondary: true,
		HideFirst: []string{"timed_launches", "host_avg_ns", "errors"},
	}
	for key, g := range sc.graphs {
		table.Add(report.Values{
			"launches":       g.Launches,
			"graph_kernels":  g.graphKernels,
			"errors":         g.errors,
			"timed_launches": g.timed,
			"host_sum_ns":    g.Total(),
			"host_avg_ns":    g.avg(),
			"pid":            int64(key.Pid),
			"stream":         query.StreamName(key.stream),
			"graph":          fmt.Sprintf("0x%x", uint64(key.graph)),
			"site":           sc.Names.List[key.site],
		})
	}
	table.Sort("launches", "graph_kernels", "pid", "graph", "stream", "site", "host_sum_ns", "errors", "timed_launches")
	processes.AddRanks(sc.T, &table)
	return table
}
