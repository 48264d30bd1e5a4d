package html

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFlameGraphOfGPUTime compares the GPU time of each line in the flame graph with the truth. Each launch has
// its kernel as the leaf.
func TestFlameGraphOfGPUTime(t *testing.T) {
	testclass.Unit(t)
	j := gpuprogram.NewJob(6, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	th.Enter("train.py", "main")
	for range 500 {
		th.Line(7)
		th.Launch(stream, "gemm", 64, 70_000)
		th.Launch(stream, "gemm", 64, 70_000)
		th.Line(8)
		th.Launch(stream, "gemm", 64, 20_000)
		th.Launch(stream, "norm", 8, 10_000)
		th.Line(9)
		th.Launch(stream, "tail", 8, 3_000) // no operation waits for its end
		th.Synchronize(stream)
	}
	truth := make(map[string]float64)
	for _, w := range j.Operations {
		truth[w.Site] += float64(w.EndNs - w.StartNs)
	}
	tl := j.Recording(t, 0).Timeline()
	gpu, err := readGPUFlame(tl, &query.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	calls := newCallsOverTime(tl, &query.Filter{})
	var texts textTable
	root, _ := newFlameTree(
		tl,
		newFlameScan(tl, &query.Filter{}),
		calls,
		gpu,
		new(hostFlame),
		&query.FrameRules{},
		&texts,
	)
	got, leaves := make(map[string]float64), make(map[string]bool)
	var walk func(n *flameNodeJSON)
	walk = func(n *flameNodeJSON) {
		got[texts.List[n.Name]] += float64(n.Values[flameGPUTimeNs])
		if len(n.Children) == 0 {
			leaves[texts.List[n.Name]] = true
		}
		for i := range n.Children {
			walk(&n.Children[i])
		}
	}
	walk(&root)
	delete(truth, "main (train.py:9)")
	for site, ns := range truth {
		if math.Abs(got[site]-ns) > ns/20 {
			t.Errorf("%s: %.0f ns, truth %.0f; %v", site, got[site], ns, got)
		}
	}
	if len(leaves) != 3 || !leaves["[gpu] gemm"] || !leaves["[gpu] norm"] {
		t.Errorf("leaves %v", leaves)
	}
}
