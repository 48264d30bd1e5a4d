package idle_test

import (
	"regexp"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestOfComputesAFilterOnce checks that views of a Timeline share the result of equal filters, and only of
// these.
func TestOfComputesAFilterOnce(t *testing.T) {
	testclass.Unit(t)
	j := gpuprogram.NewJob(1, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	for range 50 {
		th.Launch(stream, "gemm", 64, 50_000)
		th.Synchronize(stream)
	}
	tl := j.Recording(t, 0).Timeline()
	of := func(f query.Filter, maxCalls int64) *idle.Result {
		r, err := idle.Of(tl.NewView(), &f, maxCalls)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	kernels := []query.Filter{{Kernel: regexp.MustCompile("gemm")}, {Kernel: regexp.MustCompile("gemm")}}
	if of(kernels[0], 0) != of(kernels[1], 0) || of(query.Filter{}, 7) != of(query.Filter{MinBytes: 9}, 7) {
		t.Error("equal filters have different results")
	}
	seen := make(map[*idle.Result]int)
	for i, f := range []query.Filter{
		{},
		kernels[0],
		{Kernel: regexp.MustCompile("axpy")},
		{Pids: []int32{1}},
		{Tids: []int32{1}},
		{Devices: []int32{1}},
		{Streams: []int64{1}},
		{FromNs: tl.RecordingWindow().FromNs + 1},
		{ToNs: tl.RecordingWindow().ToNs - 1},
	} {
		r := of(f, 0)
		if before, ok := seen[r]; ok {
			t.Errorf("filters %d and %d have the same result", before, i)
		}
		seen[r] = i
	}
}
