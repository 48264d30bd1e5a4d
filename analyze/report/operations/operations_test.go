package operations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/operations"
	"github.com/gpurec/gpurec/internal/testclass"
)

// record returns a recording of a program with two streams, and the program.
func record(t testing.TB) (*analyzetest.TestRecording, *gpuprogram.Program) {
	g := gpuprogram.Run(4, gpuprogram.Plan{
		Operations: 4000, Processes: 1, Threads: 1, Streams: 2, Kernels: 4, MeanNs: 20_000, PaceNs: 10_000, Idle: 0.05,
		Waits: 0.05, Full: true,
	})
	return g.Record(t), g
}

func run(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Report {
	t.Helper()
	r, err := operations.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOperationsOfEachChannel reads a program from a file, and compares the channels with the truth.
func TestOperationsOfEachChannel(t *testing.T) {
	testclass.Unit(t)
	recording, g := record(t)
	r := run(t, recording, query.Options{})
	channels := analyzetest.ColumnTexts(t, r, "channels", "channel")
	if len(channels) != len(g.Channels) {
		t.Errorf("got channels %v, want %d", channels, len(g.Channels))
	}
	calls := make(map[string]int64)
	for _, w := range g.Truth {
		calls[fmt.Sprint(w.Channel)]++
	}
	low, high := analyzetest.ColumnTexts(
		t,
		r,
		"channels",
		"busy_min_pct",
	), analyzetest.ColumnTexts(
		t,
		r,
		"channels",
		"busy_max_pct",
	)
	for i, operations := range analyzetest.ColumnTexts(t, r, "channels", "operations") {
		if operations != fmt.Sprint(calls[channels[i]]) {
			t.Errorf("channel %s: %s operations, want %d", channels[i], operations, calls[channels[i]])
		}
		var number int32
		var least, most float64
		if _, err := fmt.Sscan(channels[i]+" "+low[i]+" "+high[i], &number, &least, &most); err != nil {
			t.Fatal(err)
		}
		busy := 100 * float64(g.BusyNs(number)) / float64(r.Window.DurNs())
		if busy < least || busy > most || most-least > 10 {
			t.Errorf("channel %d was busy %.1f%%, got %.1f to %.1f", number, busy, least, most)
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{
		"channels": float64(
			len(g.Channels),
		),
		"paired_channels":     float64(len(g.Channels)),
		"operations":          float64(len(g.Truth)),
		"unpaired_operations": 0,
		"slips":               0,
		"conflicts":           0,
	})
}

func TestFilters(t *testing.T) {
	testclass.Unit(t)
	recording, g := record(t)
	for name, f := range map[string]struct {
		filter query.Filter
		want   func(stream int64) bool
	}{
		"process":         {query.Filter{Pids: []int32{g.Calls[0].Pid}}, func(int64) bool { return true }},
		"another process": {query.Filter{Pids: []int32{1}}, func(int64) bool { return false }},
		"another device":  {query.Filter{Devices: []int32{7}}, func(int64) bool { return false }},
		"stream":          {query.Filter{Streams: []int64{0x7000}}, func(s int64) bool { return s == 0x7000 }},
	} {
		t.Run(name, func(t *testing.T) {
			streams := make(map[int64]bool)
			for _, c := range g.Calls {
				if c.Op.IsOperation() && f.want(c.Stream) {
					streams[c.Stream] = true
				}
			}
			r := run(t, recording, query.Options{Filter: f.filter})
			if got := analyzetest.ColumnTexts(t, r, "streams", "stream"); len(got) != len(streams) {
				t.Errorf("got %q, want %d streams", got, len(streams))
			}
		})
	}
}

// TestWindow requires that only operations whose call starts in the window are counted.
func TestWindow(t *testing.T) {
	testclass.Unit(t)
	recording, g := record(t)
	middle := (g.Calls[0].StartNs + g.EndNs) / 2
	want := 0
	for _, c := range g.Calls {
		if c.Op.IsOperation() && c.StartNs >= middle {
			want++
		}
	}
	r := run(t, recording, query.Options{Filter: query.Filter{FromNs: middle}})
	analyzetest.CheckNumbers(t, r, map[string]float64{"operations": float64(want)})
}

func TestRecordingWithoutGPUTimes(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddLaunch(analyzetest.Second, analyzetest.Us, "gemm", 0, 0)
	r := run(t, recording, query.Options{})
	if text := fmt.Sprint(r.Facts[0].Value); !strings.Contains(text, "--gpu-time") {
		t.Errorf("the result is %q", text)
	}
}

func TestOperationsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	recording, _ := record(t)
	analyzetest.CompareGoldenReports(t, run(t, recording, query.Options{Top: 5}), "operations", 160)
}
