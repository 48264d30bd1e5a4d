package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

var kernelsColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "launches in the window that ran, neither failed nor captured; what graphs run is not in it"},
	{"share_pct", "SHARE%", UnitPercent, "share in all kernel launches; says nothing of GPU time"},
	{"launches_per_second", "RATE/S", UnitRatio, "launches (estimated_launches, where some were left out) by the length of the window"},
	{"tiny_launches", "TINY", UnitCount, "of LAUNCHES, those of less than 8,192 threads (grid times block): they leave a large GPU almost empty"},
	{"threads_avg", "THREADS", UnitCount, "average threads of a launch, grid times block"},
	{"shapes", "SHAPES", UnitCount, "different grids, blocks and shared memory"},
	{"captured", "CAPTURED", UnitCount, "launches that stream capture put into a graph instead"},
	{"errors", "ERRORS", UnitCount, "launches that returned an error"},
	{"timed_launches", "TIMED", UnitCount, "launches whose host time is known: HOST columns are of these"},
	{"host_sum_ns", "HOST SUM", UnitNs, "time that threads spent in timed launches, not GPU time"},
	{"host_avg_ns", "HOST AVG", UnitNs, "average of that"},
	{"estimated_host_sum_ns", "", UnitNs, "estimate: host_sum_ns if the other launches had taken as long on average"},
	{"sites", "", UnitCount, "places in the program that launch it"},
	{"site", "SITE", UnitText, "the place with most of the launches, and how many others there are"},
	{"kernel", "", UnitText, "demangled name"},
	{"kernel_short", "KERNEL", UnitText, "name with template arguments folded, #n where that is the same for several kernels; (unknown) where the recording has no name"},
}

// summed adds up counts that have a key in common, and names for each the place that most of the launches come from.
func summed[K comparable](u *kernelsUse, of func(launchKey) K) map[K]*launchGroup {
	groups := make(map[K]*launchGroup)
	for key, s := range u.counts {
		g := groups[of(key)]
		if g == nil {
			g = &launchGroup{sites: make(map[int32]int64), shapes: make(map[launchShape]bool)}
			groups[of(key)] = g
		}
		g.merge(s)
		g.sites[key.site] += s.launches + s.captured + s.errors
		g.shapes[key.launchShape] = true
	}
	return groups
}

// launchGroup are launches that are told together.
type launchGroup struct {
	launchStats
	sites  map[int32]int64
	shapes map[launchShape]bool
}

// site is the place that most of the launches come from, and how many others there are.
func (u *kernelsUse) site(g *launchGroup) string {
	best := int32(-1)
	for site, n := range g.sites {
		if best < 0 || n > g.sites[best] || n == g.sites[best] && u.names.List[site] < u.names.List[best] {
			best = site
		}
	}
	if len(g.sites) == 1 {
		return u.names.List[best]
	}
	return fmt.Sprintf("%s and %d more", u.names.List[best], len(g.sites)-1)
}

// table has a row per kernel.
func (u *kernelsUse) table() Table {
	table := Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelsColumns),
		Spare: []string{"threads_avg", "shapes", "host_avg_ns", "launches_per_second", "timed_launches", "host_sum_ns"}}
	kernels, sum := u.kernels(), u.sum()
	short := u.shortNames()
	for id, k := range kernels {
		var threads any
		if k.sized > 0 {
			threads = k.threads / k.sized
		}
		table.Rows = append(table.Rows, Row{Cells: []any{k.launches, units.Percent(k.launches, sum.launches), u.perSecond(sampling.Whole(k.scaled)), k.tiny, threads, int64(len(k.shapes)), k.captured, k.errors,
			k.timed, k.total(), k.avg(), k.estimated(), int64(len(k.sites)), u.site(k), units.Known(u.names.List[id]), short[id]}})
		if u.Weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(k.scaled))
		}
	}
	for key, n := range map[string]int64{"captured": sum.captured, "errors": sum.errors, "tiny_launches": sum.tiny} {
		if n == 0 {
			hide(table.Columns, key)
		}
	}
	if !u.untimed {
		hide(table.Columns, "timed_launches")
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[6], b.Cells[6]), compareCells(a.Cells[14], b.Cells[14]))
	})
	if u.Weights != nil {
		table.moveLast(estimatedLaunches, 1)
	}
	return table
}

// kernels sums launches up by kernel.
func (u *kernelsUse) kernels() map[int32]*launchGroup {
	return summed(u, func(k launchKey) int32 { return k.kernel })
}

// shortNames gives each kernel a short name of its own.
func (u *kernelsUse) shortNames() map[int32]string {
	byName := make(map[string]*calls.Stats)
	for key := range u.counts {
		byName[u.names.List[key.kernel]] = nil
	}
	short := make(map[int32]string)
	for full, s := range calls.ShortKernels(byName) {
		if full == "" {
			s = catalog.UnknownKernel
		}
		short[u.names.Ids[full]] = s
	}
	return short
}

// sum adds up kernels; graphs are not in it, but in their table.
func (u *kernelsUse) sum() (sum launchStats) {
	for _, s := range u.counts {
		sum.merge(s)
	}
	return sum
}

// perSecond is a rate over the window, nil if that has no length.
func (u *kernelsUse) perSecond(n int64) any {
	if u.Window.DurNs() == 0 {
		return nil
	}
	return float64(n) / (float64(u.Window.DurNs()) / 1e9)
}

func (u *kernelsUse) totals() []Fact {
	sum := u.sum()
	var graphs, graphKernels, busiest int64
	for _, g := range u.graphs {
		graphs += g.launches
		graphKernels += g.graphKernels
		sum.errors += g.errors
		sum.timed += g.timed
		sum.hostNs = units.EndOf(sum.hostNs, g.hostNs)
	}
	for _, n := range u.seconds {
		busiest = max(busiest, n)
	}
	totals := fill(kernelsTotals, sum.launches, int64(len(u.kernels())), sum.tiny, units.Percent(sum.tiny, sum.launches), sum.captured, graphs, graphKernels, sum.errors,
		u.perSecond(sampling.Whole(sum.scaled)), busiest, sum.timed, sum.total())
	if u.Weights != nil {
		totals = append(totals, estimateOf(estimatedLaunches, "launches by estimate", sum.scaled))
	}
	return totals
}

var shapeColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "launches in the window that ran"},
	{"captured", "", UnitCount, "launches that were captured"},
	{"grid", "GRID", UnitText, "blocks"},
	{"block", "BLOCK", UnitText, "threads of a block"},
	{"shared_bytes", "SHARED", UnitBytes, "dynamic shared memory of a block"},
	{"threads", "THREADS", UnitCount, "grid times block"},
	{"tiny", "TINY", UnitText, "yes if that is less than 8,192"},
	{"site", "SITE", UnitText, "the place in the program with most of them, and how many others there are"},
	{"kernel", "", UnitText, "demangled name"},
	{"kernel_short", "KERNEL", UnitText, "as above"},
}

// shapeTable has a row per kernel and size of launch.
func (u *kernelsUse) shapeTable() Table {
	table := Table{Name: "shapes", Title: "sizes of launches", Columns: shapeColumns, Aside: true, Spare: []string{"tiny", "site"}}
	short := u.shortNames()
	for shape, s := range summed(u, func(k launchKey) launchShape { return k.launchShape }) {
		var threads any
		tiny := "no"
		if shape.known() {
			threads = shape.threads()
		}
		if shape.tiny() {
			tiny = "yes"
		}
		table.Rows = append(table.Rows, Row{Cells: []any{s.launches, s.captured, extent(shape.grid), extent(shape.block), int64(shape.shared), threads, tiny,
			u.site(s), units.Known(u.names.List[shape.kernel]), short[shape.kernel]}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		order := compareCells(a.Cells[0], b.Cells[0])
		for _, i := range []int{1, 9, 8, 5, 2, 3, 4} {
			order = cmp.Or(order, compareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	return table
}

// extent writes a grid or block as x×y×z, without trailing ones.
func extent(v [3]int32) string {
	if v[0] == manySizes {
		return "(others)"
	}
	text := fmt.Sprintf("%d×%d×%d", v[0], v[1], v[2])
	for _, one := range []string{"×0", "×1"} {
		text = strings.TrimSuffix(strings.TrimSuffix(text, one), one)
	}
	return text
}

var kernelStreamColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "kernel and graph launches in the window that ran"},
	{"launches_per_second", "RATE/S", UnitRatio, "these by the length of the window"},
	{"tiny_launches", "TINY", UnitCount, "of LAUNCHES, kernels of less than 8,192 threads"},
	{"captured", "CAPTURED", UnitCount, "launches on the stream that were captured into a graph"},
	{"errors", "ERRORS", UnitCount, "launches that returned an error"},
	{"pid", "PID", UnitID, "process"},
	{"device", "DEVICE", UnitText, "CUDA device"},
	{"stream", "STREAM", UnitText, "stream handle; 0 is the default stream"},
}

// streamTable has a row per stream.
func (u *kernelsUse) streamTable() Table {
	table := Table{Name: "streams", Title: "launches by stream", Columns: kernelStreamColumns, Aside: true}
	streams := summed(u, func(k launchKey) launchStream { return k.launchStream })
	for key, g := range u.graphs {
		if streams[key.launchStream] == nil {
			streams[key.launchStream] = new(launchGroup)
		}
		streams[key.launchStream].merge(g)
	}
	keys := slices.SortedFunc(maps.Keys(streams), func(a, b launchStream) int {
		return cmp.Or(cmp.Compare(streams[b].launches, streams[a].launches), cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device), cmp.Compare(a.stream, b.stream))
	})
	for _, key := range keys {
		s := streams[key]
		table.Rows = append(table.Rows, Row{Cells: []any{s.launches, u.perSecond(sampling.Whole(s.scaled)), s.tiny, s.captured, s.errors, int64(key.pid), u.T.OrdinalLabel(key.pid, key.device), query.StreamName(key.stream)}})
	}
	addRanks(u.T, &table)
	return table
}

var graphColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "times the graph ran in the window"},
	{"graph_kernels", "KERNELS RUN", UnitCount, "kernels that it holds, times that, as far as its making was recorded; 0 where it was not"},
	{"errors", "ERRORS", UnitCount, "launches that returned an error"},
	{"timed_launches", "TIMED", UnitCount, "launches whose host time is known"},
	{"host_sum_ns", "HOST SUM", UnitNs, "time that threads spent in these, not GPU time"},
	{"host_avg_ns", "HOST AVG", UnitNs, "average of that"},
	{"pid", "PID", UnitID, "process"},
	{"stream", "STREAM", UnitText, "stream it was launched on"},
	{"graph", "GRAPH", UnitText, "handle of the executable graph"},
	{"site", "SITE", UnitText, "the place in the program that launches it"},
}

// graphTable has a row per graph, stream and place that launches it.
func (u *kernelsUse) graphTable() Table {
	table := Table{Name: "graphs", Title: "graphs", Columns: graphColumns, Aside: true, Spare: []string{"timed_launches", "host_avg_ns", "errors"}}
	for key, g := range u.graphs {
		table.Rows = append(table.Rows, Row{Cells: []any{g.launches, g.graphKernels, g.errors, g.timed, g.total(), g.avg(),
			int64(key.pid), query.StreamName(key.stream), fmt.Sprintf("0x%x", uint64(key.graph)), u.names.List[key.site]}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		order := 0
		for _, i := range []int{0, 1, 6, 8, 7, 9, 4, 2, 3} {
			order = cmp.Or(order, compareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	addRanks(u.T, &table)
	return table
}
