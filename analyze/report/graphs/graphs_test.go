package graphs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/graphs"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	ms, us, mib   = analyzetest.Ms, analyzetest.Us, analyzetest.Mib
	stream        = int64(0x7000)
	firstExec     = int64(0xb100)
	unusedExec    = int64(0xb200)
	earlierExec   = int64(0xb900)
	captureSite   = "capture (train.py:10)"
	launchSite    = "step (train.py:20)"
	evaluateSite  = "evaluate (train.py:30)"
	capturedBytes = 6 * mib
)

// record returns a recording of a program with four executable graphs. The first was captured with two kernels, a copy
// and a memset, and its handle is used again for a graph without a capture. The second is never launched, and the
// third is older than the recording.
func record(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	at := int64(0)
	call := func(kind, name, site string, ptr, src int64) *format.Row {
		at += ms
		r := analyzetest.SetStackAndSite(recording.AddCall(kind, name, at, 10*us), 0, site)
		r.Stream, r.Ptr, r.SrcPtr = stream, ptr, src
		return r
	}
	captured := func(kind, name string) *format.Row {
		r := call(kind, name, captureSite, 0, 0)
		r.Flags = format.FlagCaptured
		return r
	}
	alloc := func(kind string, bytes int64) *format.Row {
		at += ms
		r := recording.AddAlloc(at, 10*us, 0x7f0000000000+at, bytes)
		r.MemoryKind = kind
		return r
	}
	alloc(format.MemoryDevice, 64*mib) // before the capture
	call(format.KindAPI, "cuStreamBeginCapture_v2", captureSite, 0, 0)
	captured(format.KindLaunch, "cuLaunchKernel").Kernel = "gemm"
	captured(format.KindLaunch, "cuLaunchKernel").Kernel = "gemm"
	alloc(format.MemoryDevice, 4*mib)
	alloc(format.MemoryPhysical, 2*mib)
	alloc(format.MemoryHost, 32*mib)           // not on the GPU
	alloc(format.MemoryDevice, 16*mib).Tid = 7 // another thread
	captured(format.KindMemcpy, "cuMemcpyDtoDAsync_v2").CopyKind = "DtoD"
	captured(format.KindMemset, "cuMemsetD8Async")
	call(format.KindAPI, "cuStreamEndCapture", captureSite, 0xa1, 0)
	call(format.KindAPI, "cuGraphInstantiateWithFlags", "other (train.py:11)", firstExec, 0xa1)
	call(format.KindAPI, "cuGraphInstantiateWithFlags", "other (train.py:11)", unusedExec, 0xa1)
	call(format.KindAPI, "cuGraphDestroy", captureSite, 0xa1, 0)
	alloc(format.MemoryDevice, 128*mib) // after the capture
	for range 3 {
		call(format.KindLaunch, "cuGraphLaunch", launchSite, firstExec, 0)
	}
	call(format.KindLaunch, "cuGraphLaunch", evaluateSite, firstExec, 0).DurNs = 50 * us
	call(format.KindLaunch, "cuGraphLaunch", launchSite, firstExec, 0).Result = 1
	call(format.KindAPI, "cuGraphAddKernelNode_v2", launchSite, 0xe1, 0xa2).Kernel = "relu"
	call(format.KindAPI, "cuGraphInstantiateWithFlags", launchSite, firstExec, 0xa2) // the handle is used again
	call(format.KindLaunch, "cuGraphLaunch", launchSite, firstExec, 0)
	call(format.KindLaunch, "cuGraphLaunch", launchSite, earlierExec, 0)
	call(format.KindLaunch, "cuLaunchKernel", launchSite, 0, 0).Kernel = "relu"
	return recording
}

func run(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Report {
	t.Helper()
	r, err := graphs.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGraphs(t *testing.T) {
	testclass.Unit(t)
	r := run(t, record(t), query.Options{})
	for column, want := range map[string][]string{
		"graph":          {"0xb100", "0xb100", "0xb900", "0xb200"},
		"launches":       {"4", "1", "1", "0"},
		"errors":         {"1", "0", "0", "0"},
		"kernels":        {"2", "1", "<nil>", "2"},
		"copies":         {"1", "0", "<nil>", "1"},
		"fills":          {"1", "0", "<nil>", "1"},
		"other_nodes":    {"0", "0", "<nil>", "0"},
		"captured_bytes": {fmt.Sprint(capturedBytes), "<nil>", "<nil>", fmt.Sprint(capturedBytes)},
		"host_avg_ns":    {"18000", "10000", "10000", "<nil>"},
		"site":           {captureSite, launchSite, "<nil>", captureSite},
		"launch_site":    {launchSite + " and 1 more", launchSite, launchSite, "<nil>"},
	} {
		if got := analyzetest.ColumnTexts(t, r, "graphs", column); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", column, got, want)
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{
		"graphs": 4, "unused_graphs": 1, "launches": 6, "errors": 1, "host_sum_ns": 110_000,
	})
	analyzetest.CompareGoldenReports(t, r, "graphs", 200)
}

func TestFilters(t *testing.T) {
	testclass.Unit(t)
	recording := record(t)
	for name, c := range map[string]struct {
		filter query.Filter
		want   []string
	}{
		"another process": {query.Filter{Pids: []int32{1}}, nil},
		"thread":          {query.Filter{Tids: []int32{42}}, []string{"0xb100", "0xb100", "0xb900"}},
		"stream":          {query.Filter{Streams: []int64{0x8000}}, nil},
		"late":            {query.Filter{FromNs: analyzetest.Epoch + 22*ms + 500*us}, []string{"0xb100", "0xb900"}},
	} {
		r := run(t, recording, query.Options{Filter: c.filter})
		if got := analyzetest.ColumnTexts(t, r, "graphs", "graph"); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if c.want == nil && r.NoMatch == nil {
			t.Errorf("%s: no reason is given", name)
		}
	}
}

// TestGPUTimes compares the GPU times of graphs with those of a simulated GPU.
func TestGPUTimes(t *testing.T) {
	testclass.Unit(t)
	g := gpuprogram.Run(5, gpuprogram.Plan{
		Operations: 4000, Processes: 1, Threads: 1, Streams: 1, Kernels: 3, MeanNs: 20_000, PaceNs: 10_000,
		Waits: 0.02, Full: true,
	})
	r := run(t, g.Record(t), query.Options{})
	if got := analyzetest.ColumnTexts(
		t,
		r,
		"graphs",
		"gpu_times",
	); len(got) == 0 ||
		!slices.Contains(got, "estimated") {
		t.Errorf("GPU times of graphs: %q", got)
	}
}

func TestNoGraphs(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddLaunch(ms, us, "gemm", stream, 0)
	r := run(t, recording, query.Options{})
	if len(r.Tables[0].Rows) > 0 || r.Facts[0].Value != "no graph was instantiated or launched in the window" {
		t.Errorf("got %v, %v", r.Facts, r.Tables[0].Rows)
	}
}
