package cpu_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/format"
)

// BenchmarkCPU reports 200,000 waits and as many CPU samples.
func BenchmarkCPU(b *testing.B) {
	recording := analyzetest.NewTestRecording(b)
	for i := range int64(200_000) {
		at := i * 250 * analyzetest.Us
		recording.AddWait(
			42,
			at,
			100*analyzetest.Us,
			0,
			format.StateSleeping,
			0,
			format.WaitFact{Reason: format.ReasonGIL},
		)
		recording.AddCPUSample(42, at+150*analyzetest.Us, 20*analyzetest.Ms, 0)
	}
	tl := recording.Timeline()
	b.ResetTimer()
	for range b.N {
		if _, err := cpu.Run(tl, query.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
