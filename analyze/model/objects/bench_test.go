package objects_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/objects"
)

// BenchmarkRead replays a recording in which two of three calls create or destroy an event.
func BenchmarkRead(b *testing.B) {
	const steps = 100_000
	recording := analyzetest.NewTestRecording(b)
	for i := range int64(steps) {
		at, context := 30*i*analyzetest.Us, 1+i%2
		for k, name := range []string{"cuEventCreate", "cuStreamGetCaptureInfo", "cuEventDestroy_v2"} {
			ptr := int64(0xe000 + 0x40*(i%512))
			row := analyzetest.SetContext(
				recording.AddAPICall(name, at+int64(k)*10*analyzetest.Us, ptr, 0),
				context,
				-1,
			)
			row.StackID = int32(i % 16)
		}
	}
	tl := recording.Timeline()
	b.ResetTimer()
	for b.Loop() {
		if _, err := objects.Read(tl, func(*objects.Change) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*steps), "ns/call")
}
