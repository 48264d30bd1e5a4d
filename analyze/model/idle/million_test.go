package idle_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/query"
)

// BenchmarkMillionOperations computes the idle time of a program with a million operations, after its activity.
func BenchmarkMillionOperations(b *testing.B) {
	g := gpuprogram.Run(5, gpuprogram.Plan{
		Operations: 1_000_000, Processes: 1, Threads: 2, Streams: 4, OneThread: true, Kernels: 40, MeanNs: 20_000,
		PaceNs: 40_000, Idle: 0.05, Waits: 0.02, Full: true,
	})
	t := g.Record(b).Timeline()
	if _, err := activity.Of(t, t.RecordingWindow()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := idle.Compute(t, idle.Options{Filter: new(query.Filter)})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.Devices[0].Operations), "operations")
	}
}
