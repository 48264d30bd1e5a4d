package streams_test

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/streams"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second, us = analyzetest.Second, analyzetest.Us

// busy returns a recording with work on several streams: launches, a copy and a memset on the
// legacy default stream, one launch and a wait on another stream, a captured launch, a failed
// launch, and waits and queries of events, which belong to no stream.
func busy(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(10) {
		recording.AddLaunch(second+i*us, us, "gemm", 0, 0)
	}
	recording.AddCopy("cuMemcpyHtoD_v2", "HtoD", 2*second, us, 0x1000, 0x2000, 4096).Stream = 0
	recording.AddCall(format.KindMemset, "cuMemsetD8Async", 2*second+us, us).Stream = 0
	other := recording.AddLaunch(3*second, us, "relu", 0x7000, 0)
	other.Tid = 43
	recording.AddLaunch(3*second+us, us, "relu", 0x7000, 0).Flags = format.FlagCaptured
	recording.AddLaunch(3*second+2*us, us, "relu", 0x7000, 0).Result = 700
	recording.AddSync("cuStreamSynchronize", 4*second, 5*us, 0x7000, 0)
	recording.AddSync("cuEventSynchronize", 5*second, us, 0, 0)
	recording.AddCall(format.KindAPI, "cuStreamQuery", 5*second+us, us).Stream = 0x7000
	return recording
}

func TestOperationsAreCountedByStream(t *testing.T) {
	testclass.Unit(t)
	r, err := streams.Run(busy(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string][]string{
		"stream":         {"legacy default", "0x7000"},
		"operations":     {"12", "1"},
		"operations_pct": {fmt.Sprint(100 * 12.0 / 13), fmt.Sprint(100 * 1.0 / 13)},
		"launches":       {"10", "1"},
		"copies":         {"1", "0"},
		"copied_bytes":   {"4096", "0"},
		"fills":          {"1", "0"},
		"captured":       {"0", "1"},
		"waits":          {"0", "1"},
		"wait_sum_ns":    {"0", "5000"},
		"threads":        {"1", "2"},
		"first_ns":       {"1000000000", "3000000000"},
		"finding":        {"may hold others up", ""},
	} {
		if got := analyzetest.ColumnTexts(t, r, "streams", column); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %q, want %q", column, got, want)
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"streams": 2, "operations": 13, "may_hold_up": 1, "only_one": 0})
}

func TestFindings(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		make func(recording *analyzetest.TestRecording)
		want []string // finding by stream
	}{
		"nothing": {func(*analyzetest.TestRecording) {}, nil},
		"one stream": {
			func(recording *analyzetest.TestRecording) { recording.AddLaunch(second, us, "k", 0x7000, 0) },
			[]string{"0x7000: only one"},
		},
		"the legacy default stream alone": {
			func(recording *analyzetest.TestRecording) { recording.AddLaunch(second, us, "k", 0, 0) },
			[]string{"legacy default: only one"},
		},
		"two streams": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(second, us, "k", 0x7000, 0)
			recording.AddLaunch(2*second, us, "k", 0x8000, 0)
		}, []string{"0x7000: ", "0x8000: "}},
		"CU_STREAM_LEGACY and another stream": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(second, us, "k", 1, 0)
			recording.AddLaunch(2*second, us, "k", 0x8000, 0)
		}, []string{"0x8000: ", "legacy default: may hold others up"}},
		"per-thread default streams and another stream": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(second, us, "k", 0, 0).Flags = format.FlagPerThreadStream
			recording.AddLaunch(second, us, "k", 2, 0)
			recording.AddLaunch(2*second, us, "k", 0x8000, 0)
		}, []string{"default of each thread: ", "0x8000: "}},
		"a stream that was only waited for": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(second, us, "k", 0, 0)
			recording.AddSync("cuStreamSynchronize", 2*second, us, 0x8000, 0)
		}, []string{"legacy default: only one", "0x8000: "}},
		"two processes with one stream each": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(second, us, "k", 0, 0)
			recording.AddLaunch(second, us, "k", 0x8000, 0).Pid = 43
		}, []string{"legacy default: only one", "0x8000: only one"}},
	} {
		t.Run(name, func(t *testing.T) {
			recording := analyzetest.NewTestRecording(t)
			c.make(recording)
			r, err := streams.Run(recording.Timeline(), query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			findings := analyzetest.ColumnTexts(t, r, "streams", "finding")
			for i, stream := range analyzetest.ColumnTexts(t, r, "streams", "stream") {
				got = append(got, stream+": "+findings[i])
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStreamsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	r, err := streams.Run(busy(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "streams", 120)
}
