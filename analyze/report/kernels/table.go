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
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if the window has no launches"},
	{
		Key: "kernels_text", Title: "kernels", Unit: report.UnitText,
		About: "number of kernels that ran from launches and from graphs, and of captured kernels, for launches that " +
			"succeeded",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "launches", Title: "launches", Unit: report.UnitCount,
		About: "kernel launches in the window that neither failed nor were captured, including those with an unknown " +
			"result",
	},
	{Key: "kernels", Title: "kernels", Unit: report.UnitCount, About: "number of different kernels, by name"},
	{Key: "tiny_launches", Title: "tiny", Unit: report.UnitCount, About: "launches of fewer than 8,192 threads"},
	{Key: "tiny_pct", Title: "% tiny", Unit: report.UnitPercent, About: "share of tiny launches in all launches"},
	{
		Key: "captured_launches", Title: "captured", Unit: report.UnitCount,
		About: "launches that stream capture added to a graph and did not run",
	},
	{Key: "graph_launches", Title: "graph launches", Unit: report.UnitCount, About: "number of graph launches"},
	{
		Key: "graph_kernels", Title: "kernels by graphs", Unit: report.UnitCount,
		About: "kernels run by graph launches, for graphs whose creation is in the recording",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "launches_per_second", Title: "launches/s", Unit: report.UnitRatio,
		About: "launches divided by the length of the window; uses estimated_launches if launches were sampled",
	},
	{
		Key: "peak_launches_per_second", Title: "launches in the busiest second", Unit: report.UnitCount,
		About: "highest number of launches in one second of the recording",
	},
	{
		Key: "timed_launches", Title: "timed", Unit: report.UnitCount,
		About: "kernel and graph launches with a known duration of the call",
	},
	{
		Key: "host_sum_ns", Title: "host time of these", Unit: report.UnitNs,
		About: "time that threads spent in timed launches: host time, not GPU time",
	},
}

// computeTotals returns the totals of the report.
func (sc *Scan) computeTotals() []report.Fact {
	sum := sc.sumKernelLaunches()
	var graphs, graphKernels, busiest int64
	for _, g := range sc.graphs {
		graphs += g.Launches
		graphKernels += g.graphKernels
		sum.errors += g.errors
		sum.timed += g.timed
		sum.hostNs = units.EndOfRange(sum.hostNs, g.hostNs)
	}
	for _, n := range sc.seconds {
		busiest = max(busiest, n)
	}
	totals := report.NewFacts(totalColumns, report.Values{
		"launches":                 sum.Launches,
		"kernels":                  int64(len(sc.sumByKernel())),
		"tiny_launches":            sum.Tiny,
		"tiny_pct":                 units.Percent(sum.Tiny, sum.Launches),
		"captured_launches":        sum.captured,
		"graph_launches":           graphs,
		"graph_kernels":            graphKernels,
		"errors":                   sum.errors,
		"launches_per_second":      sc.perSecond(sampling.RoundToLaunches(sum.scaled)),
		"peak_launches_per_second": busiest,
		"timed_launches":           sum.timed,
		"host_sum_ns":              sum.HostTotalNs(),
	})
	if sc.Weights != nil {
		totals = append(totals, report.EstimateFact(report.EstimatedLaunchesColumn, "launches by estimate", sum.scaled))
	}
	if sc.times != nil {
		gpu := sc.sumGPUTimes()
		totals = append(totals, report.NewFacts(gputime.TotalColumns, gputime.Totals(&gpu))...)
	}
	return totals
}

// kernelColumns are the columns of Scan.kernelTable.
var kernelColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches in the window that neither failed nor were captured; excludes kernels run by graphs",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of LAUNCHES in all kernel launches; not a share of GPU time",
	},
	{
		Key: "launches_per_second", Title: "RATE/S", Unit: report.UnitRatio,
		About: "launches divided by the length of the window; uses estimated_launches if launches were sampled",
	},
	{
		Key: "tiny_launches", Title: "TINY", Unit: report.UnitCount,
		About: "part of LAUNCHES with fewer than 8,192 threads (grid x block), which leave a large GPU almost empty",
	},
	{
		Key: "threads_avg", Title: "THREADS", Unit: report.UnitCount,
		About: "average number of threads per launch: grid x block",
	},
	{
		Key: "shapes", Title: "SHAPES", Unit: report.UnitCount,
		About: "number of different combinations of grid, block and shared memory",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches that stream capture added to a graph and did not run",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "timed_launches", Title: "TIMED", Unit: report.UnitCount,
		About: "launches with a known duration of the call; the HOST columns cover these",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in timed launches: host time, not GPU time",
	},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average duration of a timed launch call"},
	{
		Key: "estimated_host_sum_ns", Title: "", Unit: report.UnitNs,
		About: "estimated time that threads spent in all launches: average duration x number of launches",
	},
	{Key: "sites", Title: "", Unit: report.UnitCount, About: "number of call sites that launch the kernel"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site with the most launches, and the number of other call sites",
	},
	group.ViaColumn,
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "short name of the kernel, with folded template arguments; #n if several kernels have the same short " +
			"name; (unknown) if the recording has no name",
	},
}

// kernelTable returns a table with one row per kernel.
func (sc *Scan) kernelTable() report.Table {
	table := report.Table{
		Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns),
		HideFirst: []string{
			"threads_avg", "shapes", "host_avg_ns", "launches_per_second", "timed_launches", "host_sum_ns",
		},
	}
	if sc.Weights != nil {
		table.Columns = report.InsertColumnAfter(table.Columns, "launches", report.EstimatedLaunchesColumn)
	}
	kernels, sum := sc.sumByKernel(), sc.sumKernelLaunches()
	gpuNs := sc.addGPUColumns(&table, totalGPUNs(kernels))
	if gpuNs > 0 {
		table.Title = "kernels by GPU time"
	}
	short := sc.shortKernelNames()
	for id, k := range kernels {
		values := report.JoinValues(sc.kernelValues(k, &sum), sc.gpuValues(&k.gpu, gpuNs))
		values["kernel"], values["kernel_short"] = units.TextOrNil(sc.Names.List[id]), short[id]
		values[group.ViaColumn.Key] = sc.mainViaText(k)
		table.Add(values)
	}
	table.DropEmptyColumn(group.ViaColumn.Key)
	for key, n := range map[string]int64{"captured": sum.captured, "errors": sum.errors, "tiny_launches": sum.Tiny} {
		if n == 0 {
			report.HideTitle(table.Columns, key)
		}
	}
	if !sc.untimed {
		report.HideTitle(table.Columns, "timed_launches")
	}
	sortRows(&table, gpuNs, "launches", "captured", "kernel")
	return table
}

// kernelValues returns the values of a kernel except its names. sum has the statistics of all
// kernels.
func (sc *Scan) kernelValues(k *launchGroup, sum *LaunchStats) report.Values {
	var threads any
	if k.Sized > 0 {
		threads = k.Threads / k.Sized
	}
	values := report.Values{
		"launches":              k.Launches,
		"share_pct":             units.Percent(k.Launches, sum.Launches),
		"launches_per_second":   sc.perSecond(sampling.RoundToLaunches(k.scaled)),
		"tiny_launches":         k.Tiny,
		"threads_avg":           threads,
		"shapes":                int64(len(k.shapes)),
		"captured":              k.captured,
		"errors":                k.errors,
		"timed_launches":        k.timed,
		"host_sum_ns":           k.HostTotalNs(),
		"host_avg_ns":           k.hostAverageNs(),
		"estimated_host_sum_ns": k.estimatedHostNs(),
		"sites":                 int64(len(k.sites)),
		"site":                  sc.mainSiteText(k),
	}
	if sc.Weights != nil {
		values[report.EstimatedLaunchesColumn.Key] = sampling.RoundToLaunches(k.scaled)
	}
	return values
}

// shapeColumns are the columns of Scan.shapeTable.
var shapeColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches in the window that neither failed nor were captured",
	},
	{Key: "captured", Title: "", Unit: report.UnitCount, About: "launches that stream capture added to a graph"},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid size in blocks"},
	{Key: "block", Title: "BLOCK", Unit: report.UnitText, About: "block size in threads"},
	{Key: "shared_bytes", Title: "SHARED", Unit: report.UnitBytes, About: "dynamic shared memory per block"},
	{Key: "threads", Title: "THREADS", Unit: report.UnitCount, About: "threads per launch: grid x block"},
	{Key: "tiny", Title: "TINY", Unit: report.UnitText, About: "yes if THREADS is less than 8,192"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site with the most launches, and the number of other call sites",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "short name of the kernel, as in the table kernels",
	},
}

// shapeTable returns a table with one row per kernel and launch size. There may be maxLaunchKeys
// rows. If top is not 0, it adds only rows that can be among the first top rows.
func (sc *Scan) shapeTable(top int) report.Table {
	table := report.Table{
		Name: "shapes", Title: "sizes of launches", Columns: shapeColumns, Secondary: true,
		HideFirst: []string{"tiny", "site"},
	}
	short := sc.shortKernelNames()
	groups := sumLaunchesBy(sc, func(k launchKey) launchShape { return k.launchShape })
	shown := firstKeys(groups, top)
	gpuNs := sc.addGPUColumns(&table, totalGPUNs(groups))
	table.OmittedRows = len(groups) - len(shown)
	for _, shape := range shown {
		s := groups[shape]
		var threads any
		tiny := "no"
		if shape.hasSize() {
			threads = shape.threadCount()
		}
		if shape.isTiny() {
			tiny = "yes"
		}
		table.Add(report.JoinValues(sc.gpuValues(&s.gpu, gpuNs), report.Values{
			"launches":     s.Launches,
			"captured":     s.captured,
			"grid":         gridText(shape.grid),
			"block":        gridText(shape.block),
			"shared_bytes": int64(shape.shared),
			"threads":      threads,
			"tiny":         tiny,
			"site":         sc.mainSiteText(s),
			"kernel":       units.TextOrNil(sc.Names.List[shape.Kernel]),
			"kernel_short": short[shape.Kernel],
		}))
	}
	sortRows(
		&table,
		gpuNs,
		"launches",
		"captured",
		"kernel_short",
		"kernel",
		"threads",
		"grid",
		"block",
		"shared_bytes",
	)
	return table
}

// gridText formats a grid or block size as x×y×z, without trailing ×1.
func gridText(v [3]int32) string {
	if v[0] == otherShapesMark {
		return "(others)"
	}
	text := fmt.Sprintf("%d×%d×%d", v[0], v[1], v[2])
	for _, last := range []string{"×0", "×1"} {
		text = strings.TrimSuffix(strings.TrimSuffix(text, last), last)
	}
	return text
}

// streamColumns are the columns of Scan.streamTable.
var streamColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that neither failed nor were captured",
	},
	{
		Key: "launches_per_second", Title: "RATE/S", Unit: report.UnitRatio,
		About: "launches divided by the length of the window",
	},
	{
		Key: "tiny_launches", Title: "TINY", Unit: report.UnitCount,
		About: "part of LAUNCHES: kernels with fewer than 8,192 threads",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches on the stream that stream capture added to a graph",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the stream"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream handle; 0 is the default stream"},
}

// streamTable returns a table with one row per stream.
func (sc *Scan) streamTable() report.Table {
	table := report.Table{Name: "streams", Title: "launches by stream", Columns: streamColumns, Secondary: true}
	streams := sumLaunchesBy(sc, func(k launchKey) launchStream { return k.launchStream })
	for key, g := range sc.graphs {
		if streams[key.launchStream] == nil {
			streams[key.launchStream] = new(launchGroup)
		}
		streams[key.launchStream].Merge(g)
		if sc.times != nil {
			streams[key.launchStream].gpu.Add(sc.graphEstimate(&key), float64(g.Launches))
		}
	}
	gpuNs := sc.addGPUColumns(&table, totalGPUNs(streams))
	keys := slices.SortedFunc(maps.Keys(streams), func(a, b launchStream) int {
		return cmp.Or(
			cmp.Compare(streams[b].gpu.TotalNs(), streams[a].gpu.TotalNs()),
			cmp.Compare(streams[b].Launches, streams[a].Launches),
			cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.stream, b.stream),
		)
	})
	for _, key := range keys {
		s := streams[key]
		table.Add(report.JoinValues(sc.gpuValues(&s.gpu, gpuNs), report.Values{
			"launches":            s.Launches,
			"launches_per_second": sc.perSecond(sampling.RoundToLaunches(s.scaled)),
			"tiny_launches":       s.Tiny,
			"captured":            s.captured,
			"errors":              s.errors,
			"pid":                 int64(key.Pid),
			"device":              sc.T.OrdinalDeviceLabel(key.Pid, key.Device),
			"stream":              query.StreamName(key.stream),
		}))
	}
	processes.AddRankColumn(sc.T, &table)
	return table
}

// graphColumns are the columns of Scan.graphTable.
var graphColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "number of launches of the graph in the window",
	},
	{
		Key: "graph_kernels", Title: "KERNELS RUN", Unit: report.UnitCount,
		About: "kernels of the graph x launches; 0 if the creation of the graph is not in the recording",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "timed_launches", Title: "TIMED", Unit: report.UnitCount,
		About: "launches with a known duration of the call",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in timed launches: host time, not GPU time",
	},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average duration of a timed launch call"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the launches"},
	{Key: "graph", Title: "GRAPH", Unit: report.UnitText, About: "handle of the executable graph"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that launches the graph",
	},
}

// graphTable returns a table with one row per graph, stream and call site.
func (sc *Scan) graphTable() report.Table {
	table := report.Table{
		Name:      "graphs",
		Title:     "graphs",
		Columns:   graphColumns,
		Secondary: true,
		HideFirst: []string{"timed_launches", "host_avg_ns", "errors"},
	}
	gpu, gpuNs := sc.graphTimes()
	sc.addGPUColumns(&table, gpuNs)
	for key, g := range sc.graphs {
		table.Add(report.JoinValues(sc.gpuValues(gpu[key], gpuNs), report.Values{
			"launches":       g.Launches,
			"graph_kernels":  g.graphKernels,
			"errors":         g.errors,
			"timed_launches": g.timed,
			"host_sum_ns":    g.HostTotalNs(),
			"host_avg_ns":    g.hostAverageNs(),
			"pid":            int64(key.Pid),
			"stream":         query.StreamName(key.stream),
			"graph":          fmt.Sprintf("0x%x", uint64(key.graph)),
			"site":           sc.Names.List[key.site],
		}))
	}
	sortRows(
		&table,
		gpuNs,
		"launches",
		"graph_kernels",
		"pid",
		"graph",
		"stream",
		"site",
		"host_sum_ns",
		"errors",
		"timed_launches",
	)
	processes.AddRankColumn(sc.T, &table)
	return table
}
