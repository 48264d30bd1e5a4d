package analyze_test

import (
	"io"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/format"
)

// FuzzHostRows adds two rows of class host with any values to a recording. Reports and exports must not fail. A
// thread waits at most for the whole window, and the profile of waits has the sum of the report.
func FuzzHostRows(f *testing.F) {
	f.Add(
		uint8(0),
		format.StateSleeping,
		`{"reason":"gil","owner_tid":-1}`,
		int64(5),
		int64(1<<62),
		1e300,
		int32(42),
		int32(903),
		int32(1),
	)
	f.Add(uint8(0), "levitating", `{"reason":`, int64(-1<<63), int64(-1<<63), -1.0, int32(0), int32(-1), int32(-1))
	f.Add(uint8(1), "", "", int64(1), int64(1<<62), 0.0, int32(43), int32(905), int32(0))
	f.Add(uint8(3), "", "sampled", int64(1), int64(5), 1e18, int32(-7), int32(0), int32(7))
	f.Add(uint8(4), format.HostRunning, "/a", int64(1), int64(5), 1e18, int32(42), int32(0), int32(7))
	kinds := []string{format.KindWait, format.KindCPUSample, format.KindThreadState, format.KindGC, format.KindHost}
	f.Fuzz(func(t *testing.T, kind uint8, name, message string, at, dur int64, value float64, tid, stack, flags int32) {
		recording := analyzetest.HostRecording(t)
		for _, start := range []int64{analyzetest.Epoch + at%(20*analyzetest.Second), at} {
			recording.AddRow(format.Row{
				Kind:    kinds[int(kind)%len(kinds)],
				Name:    name,
				Message: message,
				StartNs: start,
				DurNs:   dur,
				Value:   value,
				Pid:     42,
				Tid:     tid,
				StackID: stack,
				Flags:   flags,
				Result:  flags,
				CPU:     flags,
			})
		}
		tl := recording.Timeline()
		r, err := cpu.Run(tl, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		waited, _, _ := r.FindNumber("wait_ns")
		if most := 2 * 10e9; waited > most {
			t.Errorf("two threads waited %.0f ns in a window of 10 s", waited)
		}
		p, _, _, err := pprof.BuildProfile(tl, pprof.Options{Type: "off-cpu"})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, s := range p.Sample {
			sum += float64(s.Value[1])
		}
		if sum != waited {
			t.Errorf("the profile has %.0f ns, the report %.0f", sum, waited)
		}
		if _, err := perfetto.WriteTrace(tl, io.Discard, perfetto.Options{}); err != nil {
			t.Fatal(err)
		}
	})
}
