package analyze_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// callReports returns the reports about calls, with their main groupings.
func callReports(tl *timeline.Timeline) map[string]func(query.Options) (*report.Report, error) {
	return map[string]func(query.Options) (*report.Report, error){
		"api":        func(opt query.Options) (*report.Report, error) { return api.Run(tl, opt) },
		"kernels":    func(opt query.Options) (*report.Report, error) { return kernels.Run(tl, opt) },
		"copies":     func(opt query.Options) (*report.Report, error) { return copies.Run(tl, opt) },
		"sync":       func(opt query.Options) (*report.Report, error) { return waits.Run(tl, opt) },
		"api.site":   func(o query.Options) (*report.Report, error) { o.GroupBy = "site"; return api.Run(tl, o) },
		"api.stack":  func(o query.Options) (*report.Report, error) { o.GroupBy = "stack"; return api.Run(tl, o) },
		"api.thread": func(o query.Options) (*report.Report, error) { o.GroupBy = "thread"; return api.Run(tl, o) },
		"api.stream": func(o query.Options) (*report.Report, error) { o.GroupBy = "stream"; return api.Run(tl, o) },
		"gaps": func(o query.Options) (*report.Report, error) {
			return gaps.RunWithOptions(tl, gaps.Options{Options: o})
		},
	}
}

// callsTape returns a recording of 10 s with steps of 500 ms: a copy, launches and a
// synchronization. From 4 s to 5 s the program loads data.
func callsTape(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = analyzetest.Epoch + 10*analyzetest.Second
	recording.AddTwoGPUs()
	recording.AddStack(1, "launch_all", "train_step", "main", "_start")
	recording.AddStack(2, "wait_for_loss", "train_step", "main", "_start")
	recording.AddStack(3, "upload", "load_batch", "main", "_start")
	recording.AddPinned(0, 0x500000, 2*analyzetest.Mib)
	for step := range int64(16) {
		begin := step * 500 * analyzetest.Ms
		if step >= 8 {
			// from 4 s to 5 s the program loads data and launches nothing
			begin += analyzetest.Second
		}
		analyzetest.SetStackAndSite(
			recording.AddCopy(
				"cuMemcpyHtoDAsync_v2",
				"HtoD",
				begin+analyzetest.Ms,
				20*analyzetest.Us,
				0x7f0000000000,
				0x500000+4096,
				analyzetest.Mib,
			),
			3,
			"upload (train.cc:10)",
		)
		analyzetest.SetStackAndSite(
			recording.AddCopy(
				"cuMemcpyHtoD_v2",
				"HtoD",
				begin+2*analyzetest.Ms,
				analyzetest.Ms,
				0x7f0000000000,
				0x900000,
				10*analyzetest.Mib,
			),
			3,
			"upload (train.cc:10)",
		)
		for k := range int64(4) {
			l := recording.AddLaunch(
				begin+10*analyzetest.Ms+k*100*analyzetest.Us,
				10*analyzetest.Us,
				[]string{"gemm<float>(int)", "add"}[k%2],
				7,
				1,
			)
			l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 128, 2, 1, 256, 1, 1
			if k%2 == 1 {
				l.GridX, l.GridY, l.BlockX, l.SharedBytes = 4, 1, 64, 2048
			}
			analyzetest.SetStackAndSite(l, 1, "launch_all (train.cc:10)")
			if step == 0 {
				l.Flags = format.FlagCaptured
			}
			if step > 8 && k == 3 {
				l.Flags, l.DurNs = format.FlagNoReturn, 0
			}
		}
		g := recording.AddCall(format.KindLaunch, "cuGraphLaunch", begin+11*analyzetest.Ms, 30*analyzetest.Us)
		g.Ptr, g.Value, g.Stream = 0x6000, 3, 9
		analyzetest.SetStackAndSite(
			recording.AddSync("cuStreamSynchronize", begin+12*analyzetest.Ms, 400*analyzetest.Ms, 7, 0),
			2,
			"wait_for_loss (train.cc:10)",
		)
	}
	for i := range int64(60) { // a burst of small copies: 60 copies, 100 us apart
		analyzetest.SetStackAndSite(
			recording.AddCopy(
				"cuMemcpyDtoH_v2",
				"DtoH",
				9500*analyzetest.Ms+i*100*analyzetest.Us,
				10*analyzetest.Us,
				0x800000,
				0x7f0000000000,
				4,
			),
			3,
			"upload (train.cc:10)",
		)
	}
	for i := range int64(30) { // a loop of synchronizations, 10 ms apart
		recording.AddSync("cuEventSynchronize", 9600*analyzetest.Ms+i*10*analyzetest.Ms, 5*analyzetest.Ms, 0, 0).Ptr = 0xe0
	}
	recording.AddSync("cuEventQuery", 9590*analyzetest.Ms, analyzetest.Us, 0, calls.ResultNotReady)
	recording.AddCall(format.KindLaunch, "cuLaunchKernel", 9599*analyzetest.Ms, 5*analyzetest.Us).Result = 1
	open := recording.AddSync("cuCtxSynchronize", 9950*analyzetest.Ms, 50*analyzetest.Ms, 0, 0)
	open.Flags = format.FlagOpen
	for i := range int64(20) { // samples of NVML index 1, which is ordinal 0 of the process
		value := 80.0
		if i == 9 || i == 10 { // samples of the time from 4 s to 5 s
			value = 0
		}
		recording.AddNVMLSample(1, i*500*analyzetest.Ms, catalog.MetricSMActive, value)
	}
	return recording
}

func TestReportsOfCalls(t *testing.T) {
	testclass.Unit(t)
	tl := callsTape(t).Timeline()
	for name, make := range callReports(tl) {
		r, err := make(query.Options{Top: 8, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CompareGoldenReports(t, r, "calls."+name, 110)
	}
}

func TestNumbersOfCallsByHand(t *testing.T) {
	testclass.Unit(t)
	tl := callsTape(t).Timeline()
	for name, want := range map[string]map[string]float64{
		// 16 steps have 2 copies, 4 launches, a graph launch and a synchronization. There are also
		// 60 small copies, 30 synchronizations, a query, a failed launch, an open synchronization
		// and a cuMemHostAlloc.
		"api": {"calls": 16*8 + 60 + 30 + 1 + 1 + 1 + 1, "timed_calls": 222 - 7 - 1, "errors": 1, "open_calls": 1},
		// 4 of the 64 launches are captured. Half of the others have 4 blocks of 64 threads.
		"kernels": {
			"launches":            60,
			"captured_launches":   4,
			"tiny_launches":       30,
			"tiny_pct":            50,
			"graph_launches":      16,
			"graph_kernels":       48,
			"errors":              1,
			"kernels":             3,
			"launches_per_second": 6, "peak_launches_per_second": 8, "timed_launches": 64 - 7 + 16 + 1,
		},
		"copies": {
			"copies":                32 + 60,
			"bytes":                 float64(16*11*analyzetest.Mib + 240),
			"blocking_copies":       16 + 60,
			"unknown_memory_copies": 16 + 60,
			"bursts":                1,
			"burst_copies":          60,
			"host_sum_ns":           float64(16*(20*analyzetest.Us+analyzetest.Ms) + 60*10*analyzetest.Us),
		},
		"sync": {"waits": 16 + 30 + 1, "wait_sum_ns": float64(16*400*analyzetest.Ms + 30*5*analyzetest.Ms), "loops": 1, "loop_waits": 30, "open_waits": 1, "open_ns": float64(50 * analyzetest.Ms)},
		// A gap follows each graph launch but the last. In the captured step, the graph launch is
		// the only work.
		"gaps": {"gaps": 15, "gap_max_ns": float64(1500*analyzetest.Ms - 1000*analyzetest.Us - 30*analyzetest.Us), "launches": 60 + 16, "idle_gaps": 0},
	} {
		r, err := callReports(tl)[name](query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CheckNumbers(t, r, want)
	}
	copyReport, err := copies.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The bandwidth of 10 MiB in 1 ms. Small and asynchronous copies have none.
	if got := strings.Join(
		analyzetest.ColumnTexts(t, copyReport, "copies", "bandwidth_bytes_per_second"),
		" ",
	); got != "10485760000 <nil> <nil>" {
		t.Errorf("bandwidth %s", got)
	}
	if got := strings.Join(
		analyzetest.ColumnTexts(t, copyReport, "copies", "host_memory"),
		" ",
	); got != "unknown unknown "+
		"pinned" {
		t.Errorf("host memory %s", got)
	}
	gapReport, err := gaps.RunWithOptions(tl, gaps.Options{Options: query.Options{Top: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"doing":      "outside CUDA",
		"waiting_ns": "400000000",
		"copying_ns": "1020000",
		"gpu":        "partly",
		"ended_by":   "gemm<float>(int)",
		"device":     "0 NVIDIA H200",
	} {
		if got := strings.Join(analyzetest.ColumnTexts(t, gapReport, "gaps", key), " "); got != want {
			t.Errorf("column %s of the longest gap: %q, want %q", key, got, want)
		}
	}
}

func TestBusyInAGap(t *testing.T) {
	testclass.Unit(t)
	s := &metric.Series{
		AtNs:   []int64{0, 500 * analyzetest.Ms, 1000 * analyzetest.Ms, 1500 * analyzetest.Ms, 2000 * analyzetest.Ms},
		Values: []float64{90, 100, 0, 50, 100},
	}
	for _, c := range []struct {
		fromMs, toMs int64
		want         gaps.BusyBounds
		word         string
	}{
		{500, 1000, gaps.BusyBounds{MinPct: 0, MaxPct: 0, Ok: true}, gaps.GPUStateIdle},
		{0, 500, gaps.BusyBounds{MinPct: 100, MaxPct: 100, Ok: true}, gaps.GPUStateBusy},
		{500, 1500, gaps.BusyBounds{MinPct: 25, MaxPct: 25, Ok: true}, gaps.GPUStatePartly},
		// 250 ms of busy time can be inside or outside the interval.
		{1100, 1300, gaps.BusyBounds{MinPct: 0, MaxPct: 100, Ok: true}, gaps.GPUStateUnsure},
		{2100, 2200, gaps.BusyBounds{}, ""}, // no NVML sample covers the interval
		{1900, 2200, gaps.BusyBounds{}, ""}, // samples cover a third of the interval
	} {
		if got := gaps.BusyBoundsFromAverages(
			s,
			c.fromMs*analyzetest.Ms,
			c.toMs*analyzetest.Ms,
		); got != c.want ||
			got.GPUState() != c.word {
			t.Errorf("%d to %d ms: %+v %s, want %+v %s", c.fromMs, c.toMs, got, got.GPUState(), c.want, c.word)
		}
	}
	// The utilization samples at 1.0 s and 1.5 s each cover the second before.
	if got := gaps.BusyBoundsFromInsideSamples(
		s,
		0,
		1500*analyzetest.Ms,
	); got != (gaps.BusyBounds{MinPct: 25, MaxPct: 25, Ok: true}) {
		t.Errorf("by utilization %+v", got)
	}
	if got := gaps.BusyBoundsFromInsideSamples((*metric.Series)(nil), 0, 1); got.Ok {
		t.Error("busy without samples")
	}
}

func TestBurstDetector(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		at            string
		joined, began int64
	}{
		"too few":                {"0 1", 0, 0},
		"just enough":            {"0 5 10", 3, 1},
		"too slow":               {"0 5 11", 0, 0},
		"longer burst":           {"0 5 10 12 14", 5, 1},
		"two bursts":             {"0 1 2 50 51 52", 6, 2},
		"overlapping bursts":     {"0 5 10 16 20 21", 6, 2},
		"slow events in between": {"0 1 2 40 80 81 82", 6, 2},
	} {
		var detector calls.BurstDetector
		var joined, began int64
		for _, field := range strings.Fields(c.at) {
			var ns int64
			fmt.Sscan(field, &ns)
			n, new := detector.AddEvent(ns, 3, 10)
			joined += n
			if new {
				began++
			}
		}
		if joined != c.joined || began != c.began {
			t.Errorf("%s: %d in %d, want %d in %d", name, joined, began, c.joined, c.began)
		}
	}
}

func TestHostMemoryOfCopies(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddPinned(10*analyzetest.Ms, 0x1000, 0x1000)
	recording.AddMemoryCall(format.KindAlloc, format.MemoryManaged, 10*analyzetest.Ms, 0x8000, 0x1000)
	free := recording.AddFree(20*analyzetest.Ms, analyzetest.Us, 0x1000)
	free.Name, free.MemoryKind = "cuMemFreeHost", format.MemoryHost
	recording.AddPinned(30*analyzetest.Ms, 0x1800, 0x100)
	var want []string
	copied := func(at, ptr int64, host string) {
		recording.AddCopy(
			"cuMemcpyHtoD_v2",
			"HtoD",
			at,
			analyzetest.Us,
			0x7f0000000000,
			ptr,
			int64(len(want)+1)*analyzetest.Mib/8,
		)
		want = append(want, host)
	}
	copied(5*analyzetest.Ms, 0x1000, hostmem.HostKindUnknown)
	copied(12*analyzetest.Ms, 0x1000, hostmem.HostKindPinned)
	copied(13*analyzetest.Ms, 0x1fff, hostmem.HostKindPinned)
	copied(14*analyzetest.Ms, 0x2000, hostmem.HostKindUnknown)
	copied(15*analyzetest.Ms, 0x8800, hostmem.HostKindManaged)
	copied(25*analyzetest.Ms, 0x1800, hostmem.HostKindUnknown)
	copied(35*analyzetest.Ms, 0x1800, hostmem.HostKindPinned)
	copied(36*analyzetest.Ms, 0x1000, hostmem.HostKindUnknown)
	host, _, err := hostmem.Read(recording.Timeline())
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, r := range recording.Rows {
		if r.Kind == format.KindMemcpy {
			if got := host.KindAt(r.StartNs, 42, r.SrcPtr); got != want[i] {
				t.Errorf("copy %d: %s, want %s", i, got, want[i])
			}
			i++
		}
	}
	if got := host.KindAt(analyzetest.Epoch+40*analyzetest.Ms, 43, 0x1800); got != hostmem.HostKindUnknown {
		t.Errorf("pointer of another process: %s", got)
	}
}

func TestCallReportsAreSafeRepeatableAndExplained(t *testing.T) {
	testclass.Unit(t)
	hostiles := analyzetest.HostileRecording(t)
	analyzetest.SetStackAndSite(
		hostiles.AddCall(format.KindSync, analyzetest.HostileName, 4*analyzetest.Second, 1),
		1,
		analyzetest.HostileName,
	)
	analyzetest.SetStackAndSite(
		hostiles.AddCopy(analyzetest.HostileName, analyzetest.HostileName, 5*analyzetest.Second, 1, 1, 1, 1<<62),
		1,
		analyzetest.HostileName,
	)
	launch := analyzetest.SetStackAndSite(
		hostiles.AddCall(format.KindLaunch, "cuLaunchKernel", 6*analyzetest.Second, 1<<62),
		1,
		analyzetest.HostileName,
	)
	launch.Kernel, launch.GridX, launch.GridY, launch.GridZ, launch.BlockX = analyzetest.HostileName, 1<<31-1, 1<<31-1, 1<<31-1, 1<<31-1
	for tape, recording := range map[string]*analyzetest.TestRecording{
		"hostile":   hostiles,
		"callsTape": callsTape(t),
		"training":  analyzetest.TrainingRecording(t),
		"surface":   analyzetest.AllMemoryKindsRecording(t),
		"crash":     analyzetest.CrashingRecording(t),
		"empty":     analyzetest.NewTestRecording(t),
	} {
		rec := recording.WriteAndOpen()
		before := make(map[string]string)
		for range 3 {
			tl, err := timeline.Open(rec)
			if err != nil {
				t.Fatal(err)
			}
			for name, make := range callReports(tl) {
				r, err := make(query.Options{Top: 3, MaxFrames: 5})
				if err != nil {
					t.Fatal(err)
				}
				now := string(analyzetest.RenderReport(t, r, render.Options{Format: "json"}))
				if old, ok := before[name]; ok && old != now {
					t.Errorf("report %s of tape %s differs in the second run:\n%s\n%s", name, tape, old, now)
				}
				before[name] = now
				checkReport(t, tape+" "+name, r)
			}
		}
	}
}

// checkReport checks that a report fits every width, has no control characters, and explains how
// each value is computed.
func checkReport(t *testing.T, name string, r *report.Report) {
	t.Helper()
	if !json.Valid(analyzetest.RenderReport(t, r, render.Options{Format: "json"})) {
		t.Errorf("%s: not JSON", name)
	}
	for _, f := range []string{"table", "md"} {
		for _, width := range []int{80, 100, 132} {
			for line := range strings.Lines(string(analyzetest.RenderReport(t, r, render.Options{Format: f, Width: width}))) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); f == "table" && n > width {
					t.Errorf("%s at %d: a line of %d characters: %s", name, width, n, line)
				}
				if strings.ContainsFunc(
					line,
					func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Cf, c) },
				) ||
					f == "md" && strings.Contains(line, "<script>") {
					t.Errorf("%s as %s: %q", name, f, line)
				}
			}
		}
	}
}

func BenchmarkAPI(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := api.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkAPIBySite(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		_, err := api.Run(tl, query.Options{Top: 20, GroupBy: "site"})
		return err
	})
}

func BenchmarkKernels(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := kernels.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkCopies(b *testing.B) {
	benchReport(
		b,
		func(tl *timeline.Timeline) error { _, err := copies.Run(tl, query.Options{Top: 20}); return err },
	)
}

func BenchmarkSync(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := waits.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkGaps(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		_, err := gaps.RunWithOptions(tl, gaps.Options{Options: query.Options{Top: 20}, MinGapNs: 1000})
		return err
	})
}
