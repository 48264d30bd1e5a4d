package calls

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// KernelCounts counts kernels that ran, by launches and by graphs. A launch captured into a graph
// runs when the graph is launched.
type KernelCounts struct {
	// Launched counts kernel launches that ran, Captured those captured into graphs.
	Launched, Captured int64
	// GraphLaunches counts graph launches, GraphKernels the kernels in those graphs.
	GraphLaunches, GraphKernels int64
}

// AddLaunch counts a launch. For a graph launch, kernels is the number of kernels in the graph.
func (k *KernelCounts) AddLaunch(graph bool, kernels float64, result, flags int32) {
	const unfinished = format.FlagOpen | format.FlagAbandoned
	switch {
	case flags&unfinished != 0 || result != 0:
	case flags&format.FlagCaptured != 0:
		if !graph {
			k.Captured++
		}
	case graph:
		k.GraphLaunches++
		k.GraphKernels += max(0, min(units.RoundInt(kernels), maxGraphKernels))
	default:
		k.Launched++
	}
}

// maxGraphKernels is larger than the number of kernels in any graph. It bounds values of damaged
// files, so that sums do not overflow.
const maxGraphKernels = 1 << 30

// KernelsRun returns the number of launched kernels and of kernels in launched graphs.
func (k *KernelCounts) KernelsRun() int64 { return k.Launched + k.GraphKernels }

// String describes the counts in words. It returns "" if there were no kernels.
func (k *KernelCounts) String() string {
	if k.KernelsRun()+k.Captured == 0 {
		return ""
	}
	text := units.FormatCount(k.KernelsRun()) + " run"
	if k.GraphLaunches > 0 {
		text += fmt.Sprintf(
			": %s launched, %s by running %s",
			units.FormatCount(k.Launched),
			units.FormatCount(k.GraphKernels),
			units.CountWithNoun(k.GraphLaunches, "graph"),
		)
	}
	if k.Captured > 0 {
		text += fmt.Sprintf("; %s only captured into graphs", units.FormatCount(k.Captured))
	}
	return text
}

// ShortenKernelNames returns a unique short name for each kernel. If shortening makes several names
// equal, they are numbered in the order of their full names.
func ShortenKernelNames(kernels map[string]*CallStats) map[string]string {
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
