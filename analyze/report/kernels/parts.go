package kernels

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
)

// GroupNames returns the values of Options.GroupBy that this report accepts, besides "": parts of a PyTorch program.
func GroupNames() []string { return slices.Clone(stack.OperatorGroups) }

// partColumns are the columns of Scan.partTable, besides those of GPU times.
var partColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches in the window that neither failed nor were captured; excludes kernels run by graphs",
	},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of LAUNCHES in all kernel launches"},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches that stream capture added to a graph and did not run",
	},
	{
		Key: "graph_kernels", Title: "IN GRAPHS", Unit: report.UnitCount,
		About: "kernels that launched graphs ran, by the stacks of the captured launches; not in LAUNCHES",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in timed launches: host time, not GPU time",
	},
	{Key: "kernels", Title: "KERNELS", Unit: report.UnitCount, About: "number of different kernels, by name"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "short name of the kernel with the most launches",
	},
	{
		Key: "part", Title: "PART", Unit: report.UnitText,
		About: "operator, autograd node, module path or phase, as --group-by says",
	},
}

// partOfRow returns the part of the program that row i is of, an index of Names. Operators of Triton have the name
// of their kernel.
func (sc *Scan) partOfRow(i int, kernel int32) int32 {
	part := sc.sites.PartOfRow(i, sc.groupBy)
	if sc.groupBy != "operator" || sc.Names.List[part] != stack.TritonOperator || sc.Names.List[kernel] == "" {
		return part
	}
	id, ok := sc.triton[kernel]
	if !ok {
		if sc.triton == nil {
			sc.triton = make(map[int32]int32)
		}
		id = sc.Names.NumberOf(stack.TritonOperator + ": " + sc.Names.List[kernel])
		sc.triton[kernel] = id
	}
	return id
}

// unknownNode is the part of kernels in graphs whose nodes are unknown.
const unknownNode = "(in a graph, not known)"

// addGraphParts adds the kernels that the graph launch of row i ran, by the stacks of the calls that added them to the
// graph. Of kernels whose stacks are not certain, the part is unknownNode.
func (sc *Scan) addGraphParts(i int, atNs, kernels int64) {
	if sc.groupBy == "" || kernels == 0 {
		return
	}
	if sc.parts == nil {
		sc.parts = make(map[int32]int64)
	}
	if v := sc.built.VersionAt(sc.Pid[i], sc.ptr[i], atNs); v != nil {
		stacks, certain := v.KernelStacks()
		sum := int64(0)
		for _, n := range stacks {
			sum += n
		}
		if certain && sum == kernels {
			for stack, n := range stacks {
				sc.parts[sc.sites.PartOfStack(stack, sc.groupBy)] += n
			}
			return
		}
	}
	sc.parts[sc.Names.NumberOf(unknownNode)] += kernels
}

// partTable returns a table with one row per part of the program.
func (sc *Scan) partTable() report.Table {
	table := report.Table{
		Name: "parts", Title: "launches by " + sc.groupBy, Columns: slices.Clone(partColumns), Keys: []string{"part"},
	}
	if sc.Weights != nil {
		table.Columns = report.InsertColumnAfter(table.Columns, "launches", report.EstimatedLaunchesColumn)
	}
	table.Columns[len(table.Columns)-1].Title = group.ColumnTitle(sc.groupBy)
	parts, sum := sumLaunchesBy(sc, func(k launchKey) int32 { return k.part }), sc.sumKernelLaunches()
	gpuNs := sc.addGPUColumns(&table, totalGPUNs(parts))
	kernels, short := sc.kernelsByPart(), sc.shortKernelNames()
	for id := range sc.parts {
		if parts[id] == nil {
			parts[id] = new(launchGroup)
		}
	}
	for id, p := range parts {
		values := report.Values{
			"launches": p.Launches, "share_pct": units.Percent(p.Launches, sum.Launches), "captured": p.captured,
			"graph_kernels": sc.parts[id], "host_sum_ns": p.HostTotalNs(), "kernels": int64(len(kernels[id])),
			"kernel_short": short[mostLaunched(kernels[id])], "part": sc.Names.List[id],
		}
		if sc.Weights != nil {
			values[report.EstimatedLaunchesColumn.Key] = sampling.RoundToLaunches(p.scaled)
		}
		table.Add(report.JoinValues(values, sc.gpuValues(&p.gpu, gpuNs)))
	}
	if sum.captured == 0 {
		report.HideTitle(table.Columns, "captured")
	}
	if len(sc.parts) == 0 {
		report.HideTitle(table.Columns, "graph_kernels")
	}
	sortRows(&table, gpuNs, "launches", "graph_kernels", "captured", "part")
	return table
}

// kernelsByPart returns the number of launches of each kernel, by part.
func (sc *Scan) kernelsByPart() map[int32]map[int32]int64 {
	parts := make(map[int32]map[int32]int64)
	for key, s := range sc.Counts {
		kernels := parts[key.part]
		if kernels == nil {
			kernels = make(map[int32]int64)
			parts[key.part] = kernels
		}
		kernels[key.Kernel] += s.Launches + s.captured + s.errors
	}
	return parts
}

// mostLaunched returns the kernel with the most launches, of equal ones that with the lowest number.
func mostLaunched(kernels map[int32]int64) int32 {
	best := int32(-1)
	for id, n := range kernels {
		if best < 0 || n > kernels[best] || n == kernels[best] && id < best {
			best = id
		}
	}
	return best
}
