package html

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/symbolize"
)

// launchOrigin identifies launches of one kernel or graph from one stack.
type launchOrigin struct {
	stack, label int32
	op           activity.Op
}

// gpuFlame sums up the estimated GPU time of kernels and graphs by stack.
type gpuFlame struct {
	activity *activity.Activity // nil without GPU times
	ns       map[launchOrigin]float64
}

// readGPUFlame sums up the GPU times of the operations that pass the filter.
func readGPUFlame(t *timeline.Timeline, f *query.Filter) (*gpuFlame, error) {
	g := &gpuFlame{ns: make(map[launchOrigin]float64)}
	if len(t.Facts.Channels) == 0 {
		return g, nil
	}
	w := f.NarrowWindow(t.RecordingWindow())
	a, err := activity.Of(t, w)
	if err != nil {
		return nil, err
	}
	g.activity = a
	for i := range a.Launches {
		l := &a.Launches[i]
		estimate := a.EstimateOf(l.Pid, l.Op, l.Label)
		if estimate.Quality == activity.Unknown ||
			!f.PassesCaller(l.Pid, l.Tid, l.Device, activity.RecordedHandle(l.Stream)) {
			continue
		}
		g.ns[launchOrigin{l.Stack, l.Label, l.Op}] += float64(l.Operations) * estimate.MeanNs
	}
	return g, nil
}

// nameOf returns the name of a kernel or graph.
func (g *gpuFlame) nameOf(key launchOrigin) string {
	if key.label < 0 {
		return catalog.UnknownKernelName
	}
	l := &g.activity.Labels[key.label]
	if key.op == activity.OpGraph {
		return fmt.Sprintf("graph 0x%x", uint64(l.Graph))
	}
	return cmp.Or(symbolize.ShortKernel(l.Kernel), catalog.UnknownKernelName)
}

// addTo adds the GPU times to the flame graph, with the kernel or graph as the leaf of each stack.
func (g *gpuFlame) addTo(b *flameBuilder) {
	keys := make([]launchOrigin, 0, len(g.ns))
	for key := range g.ns {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b launchOrigin) int { // so that the texts have the same numbers each time
		return cmp.Or(cmp.Compare(a.stack, b.stack), cmp.Compare(a.op, b.op), cmp.Compare(a.label, b.label))
	})
	for _, key := range keys {
		v := flameValues{flameGPUTimeNs: int64(g.ns[key])}
		of := stack.Pair{Stack: key.stack}
		b.addStack(of, &v)
		b.addLeaf(of, "[gpu] "+g.nameOf(key), &v)
	}
}

// addLeaf adds values to a frame below the leaf of a stack that addStack has added.
func (b *flameBuilder) addLeaf(of stack.Pair, name string, v *flameValues) {
	leaf := b.childOf(b.paths[of][len(b.paths[of])-1], b.texts.addText(name), frameKindOther)
	for i := range v {
		leaf.values[i] += v[i]
	}
}
