package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// kernelWork counts kernels that were put to work: by launches that ran, and by
// graphs. A launch that stream capture puts into a graph runs when the graph does.
type kernelWork struct {
	launched, captured          int64
	graphLaunches, graphKernels int64
}

// add counts a launch; kernels is what a graph holds.
func (w *kernelWork) add(graph bool, kernels float64, result, flags int32) {
	const unfinished = format.FlagOpen | format.FlagAbandoned
	switch {
	case flags&unfinished != 0 || result != 0:
	case flags&format.FlagCaptured != 0:
		if !graph {
			w.captured++
		}
	case graph:
		w.graphLaunches++
		w.graphKernels += max(0, min(units.RoundInt(kernels), maxGraphKernels))
	default:
		w.launched++
	}
}

// maxGraphKernels is more than a graph holds: sums of what stands in a damaged file
// stay in the range of numbers.
const maxGraphKernels = 1 << 30

// run is how many kernels ran, as far as is known.
func (w *kernelWork) run() int64 { return w.launched + w.graphKernels }

func (w *kernelWork) String() string {
	if w.run()+w.captured == 0 {
		return ""
	}
	text := units.Count(w.run()) + " run"
	if w.graphLaunches > 0 {
		text += fmt.Sprintf(": %s launched, %s by running %s", units.Count(w.launched), units.Count(w.graphKernels), units.Plural(w.graphLaunches, "graph"))
	}
	if w.captured > 0 {
		text += fmt.Sprintf("; %s only captured into graphs", units.Count(w.captured))
	}
	return text
}

var kernelColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "launches of the kernel in the window that ran; how long it ran on the GPU is not known, and what graphs launch is not in it"},
	{"captured", "CAPTURED", UnitCount, "launches that stream capture put into a graph instead"},
	{"errors", "ERRORS", UnitCount, "launches that returned an error"},
	{"host_sum_ns", "HOST SUM", UnitNs, "sum of the time threads spent launching it, not GPU time; of the launches whose duration is known, see calls"},
	{"kernel_short", "KERNEL", UnitText, "name with template arguments folded, #n where that is the same for several kernels"},
	{"kernel", "", UnitText, "demangled name"},
}

func (u *callUse) kernelTable() Table {
	table := Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns)}
	short := shortKernels(u.kernels)
	captured := false
	for name, s := range u.kernels {
		table.Rows = append(table.Rows, Row{Cells: []any{s.calls - s.captured, s.captured, s.errors, s.hostNs, short[name], name}})
		if u.weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.scaled)-s.captured)
		}
		captured = captured || s.captured > 0
	}
	if !captured {
		hide(table.Columns, "captured")
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[1], b.Cells[1]), strings.Compare(a.Cells[5].(string), b.Cells[5].(string)))
	})
	if u.weights != nil {
		table.moveLast(estimatedLaunches, 1)
	}
	return table
}

// shortKernels gives each kernel a short name of its own: kernels whose names differ
// only in what was left out are numbered in the order of their full names.
func shortKernels(kernels map[string]*callStats) map[string]string {
	same := make(map[string][]string)
	for full := range kernels {
		s := symbolize.ShortKernel(full)
		same[s] = append(same[s], full)
	}
	short := make(map[string]string, len(kernels))
	for s, list := range same {
		slices.Sort(list)
		for i, full := range list {
			short[full] = s
			if len(list) > 1 {
				short[full] = fmt.Sprintf("%s #%d", s, i+1)
			}
		}
	}
	return short
}
