package steps_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/steps"
)

// BenchmarkSteps computes the report for a million launches in steps of 100.
func BenchmarkSteps(b *testing.B) {
	const launches, perStep = 1_000_000, 100
	recording := analyzetest.NewTestRecording(b)
	recording.AddStack(1, "libcuda.so.580.95.05 cuLaunchKernel", "train.py:10 forward")
	recording.AddStack(2, "libcuda.so.580.95.05 cuLaunchKernel", "train.py:11 forward")
	for i := range int64(launches) {
		kernel, stack := "gemm", int32(1)
		if i%perStep >= perStep/2 {
			kernel, stack = "axpy", 2
		}
		recording.AddLaunch(i*20*us, 3*us, kernel, 0, 0).StackID = stack
	}
	recording.Meta.EndNs = recording.Meta.StartNs + launches*20*us
	tl := recording.Timeline()
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		r, err := steps.Run(tl, query.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if n, _, _ := r.FindNumber("steps"); n != launches/perStep {
			b.Fatalf("%v steps", n)
		}
	}
}
