package kernels

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
)

// ranLaunches returns the number of launches that ran, including an estimate of unrecorded launches.
func (s *LaunchStats) ranLaunches() float64 { return float64(s.scaled) / sampling.LaunchWeightUnit }

// kernelEstimate returns the GPU time of a launch of a group.
func (sc *Scan) kernelEstimate(key *launchKey) activity.Estimate {
	return sc.times.OfKernel(key.Pid, sc.Names.List[key.Kernel], key.grid, sc.Names.List[key.Site])
}

// graphEstimate returns the GPU time of a launch of a graph.
func (sc *Scan) graphEstimate(key *launchGraph) activity.Estimate {
	return sc.times.OfGraph(key.Pid, key.graph, sc.Names.List[key.site])
}

// totalGPUNs returns the GPU time of all groups, or 0 if it is unknown for many launches.
func totalGPUNs[K comparable](groups map[K]*launchGroup) float64 {
	var sum activity.TimeSum
	for _, g := range groups {
		sum.Merge(&g.gpu)
	}
	return sum.AllNs()
}

// graphTimes returns the GPU times of the graphs and their sum, which is 0 if it is unknown for many launches. The times
// are empty without GPU times.
func (sc *Scan) graphTimes() (times map[launchGraph]*activity.TimeSum, allNs float64) {
	var sum activity.TimeSum
	times = make(map[launchGraph]*activity.TimeSum)
	for key, g := range sc.graphs {
		times[key] = new(activity.TimeSum)
		if sc.times != nil {
			times[key].Add(sc.graphEstimate(&key), g.ranLaunches())
			sum.Merge(times[key])
		}
	}
	return times, sum.AllNs()
}

// sumGPUTimes returns the GPU time of all launches of kernels and graphs.
func (sc *Scan) sumGPUTimes() (sum activity.TimeSum) {
	for _, k := range sc.sumByKernel() {
		sum.Merge(&k.gpu)
	}
	graphs, _ := sc.graphTimes()
	for _, g := range graphs {
		sum.Merge(g)
	}
	return sum
}

// gpuFacts returns the facts of a recording with GPU times.
func (sc *Scan) gpuFacts() []report.Fact {
	sum := sc.sumGPUTimes()
	return report.NewFacts(gputime.FactColumns, report.Values{
		"gpu_text": gputime.Sentence(&sum, sc.Window, "kernels and graphs", "launches"),
	})
}

// addGPUColumns adds the columns of GPU times to a table if there are GPU times. It returns allNs, the GPU
// time of all rows.
func (sc *Scan) addGPUColumns(table *report.Table, allNs float64) float64 {
	if sc.times != nil {
		gputime.AddColumns(table)
	}
	return allNs
}

// gpuValues returns the values of the columns of GPU times, or none without GPU times.
func (sc *Scan) gpuValues(sum *activity.TimeSum, allNs float64) report.Values {
	if sc.times == nil {
		return nil
	}
	return gputime.Values(sum, allNs)
}

// sortRows sorts a table by GPU time if allNs, the GPU time of all rows, is known, then by keys.
func sortRows(table *report.Table, allNs float64, keys ...string) {
	if allNs > 0 {
		keys = slices.Insert(keys, 0, gputime.SumColumn)
	}
	table.Sort(keys...)
}

// lineColumns are the columns of Scan.lineTable, besides those of GPU times.
var lineColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches of the kernel by the call site, in the window, that neither failed nor were captured",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "short name of the kernel, as in the table kernels",
	},
	group.ViaColumn,
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the line of the program's own code that launches the kernel",
	},
}

// lineTable returns a table with one row per kernel and call site.
func (sc *Scan) lineTable() report.Table {
	table := report.Table{
		Name: "lines", Title: "GPU time by kernel and line", Columns: slices.Clone(lineColumns), Secondary: true,
		Keys: []string{"kernel", "site", group.ViaColumn.Key},
	}
	type line struct{ kernel, site, via int32 }
	lines := sumLaunchesBy(sc, func(k launchKey) line { return line{k.Kernel, k.Site, k.via} })
	gpuNs := sc.addGPUColumns(&table, totalGPUNs(lines))
	short := sc.shortKernelNames()
	for key, l := range lines {
		table.Add(report.JoinValues(sc.gpuValues(&l.gpu, gpuNs), report.Values{
			"launches":     l.Launches,
			"kernel":       units.TextOrNil(sc.Names.List[key.kernel]),
			"kernel_short": short[key.kernel],
			"site":         sc.Names.List[key.site],
			"via":          sc.mainViaText(l),
		}))
	}
	sortRows(&table, gpuNs, "launches", "kernel", "site", "via")
	table.DropEmptyColumn(group.ViaColumn.Key)
	return table
}
