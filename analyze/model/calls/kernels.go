package calls

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// KernelWork counts kernels that were put to work: by launches that ran, and by
// graphs. A launch that stream capture puts into a graph runs when the graph does.
type KernelWork struct {
	Launched, Captured          int64
	GraphLaunches, GraphKernels int64
}

// Add counts a launch; kernels is what a graph holds.
func (w *KernelWork) Add(graph bool, kernels float64, result, flags int32) {
	const unfinished = format.FlagOpen | format.FlagAbandoned
	switch {
	case flags&unfinished != 0 || result != 0:
	case flags&format.FlagCaptured != 0:
		if !graph {
			w.Captured++
		}
	case graph:
		w.GraphLaunches++
		w.GraphKernels += max(0, min(units.RoundInt(kernels), maxGraphKernels))
	default:
		w.Launched++
	}
}

// maxGraphKernels is more than a graph holds: sums of what stands in a damaged file
// stay in the range of numbers.
const maxGraphKernels = 1 << 30

// Run is how many kernels ran, as far as is known.
func (w *KernelWork) Run() int64 { return w.Launched + w.GraphKernels }

func (w *KernelWork) String() string {
	if w.Run()+w.Captured == 0 {
		return ""
	}
	text := units.Count(w.Run()) + " run"
	if w.GraphLaunches > 0 {
		text += fmt.Sprintf(
			": %s launched, %s by running %s",
			units.Count(w.Launched),
			units.Count(w.GraphKernels),
			units.Plural(w.GraphLaunches, "graph"),
		)
	}
	if w.Captured > 0 {
		text += fmt.Sprintf("; %s only captured into graphs", units.Count(w.Captured))
	}
	return text
}

// ShortKernels gives each kernel a short name of its own: kernels whose names differ
// only in what was left out are numbered in the order of their full names.
func ShortKernels(kernels map[string]*Stats) map[string]string {
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
