package analyze_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// sampledTape returns a recording of a training of 60 s. It launches two kernels every 100 ms and
// synchronizes. From 6 s on, launches are recorded for 1 s in 10.
func sampledTape(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.AddTwoGPUs()
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
	)
	recording.AddStack(1, "launch_all", "train_step", "main", "_start")
	for at60 := int64(0); at60 < 60*analyzetest.Second; at60 += 100 * analyzetest.Ms {
		if at60 < 6*analyzetest.Second || at60/analyzetest.Second%10 == 5 {
			for k, kernel := range []string{"gemm<float>(int)", "add"} {
				l := analyzetest.SetStackAndSite(
					recording.AddLaunch(at60+int64(k)*analyzetest.Ms, 10*analyzetest.Us, kernel, 7, 1),
					1,
					"launch_all (train.cc:10)",
				)
				l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 128, 2, 1, 256, 1, 1
			}
		}
		recording.AddSync("cuStreamSynchronize", at60+50*analyzetest.Ms, 40*analyzetest.Ms, 7, 0)
	}
	recording.AddSamplingGaps(
		analyzetest.SamplingGap{From: 6 * analyzetest.Second, To: 15 * analyzetest.Second},
		analyzetest.SamplingGap{From: 16 * analyzetest.Second, To: 25 * analyzetest.Second},
		analyzetest.SamplingGap{From: 26 * analyzetest.Second, To: 35 * analyzetest.Second},
		analyzetest.SamplingGap{From: 36 * analyzetest.Second, To: 45 * analyzetest.Second},
		analyzetest.SamplingGap{From: 46 * analyzetest.Second, To: 55 * analyzetest.Second},
		analyzetest.SamplingGap{From: 56 * analyzetest.Second, To: 0},
	)
	return recording
}

func TestSampledLaunchesAreEstimated(t *testing.T) {
	testclass.Unit(t)
	tl := sampledTape(t).Timeline()
	for name, want := range map[string]map[string]float64{
		// Launches are recorded for 6 + 5 s of 60 s. There are 20 launches and 10 synchronizations
		// per second.
		"kernels": {"launches": 220, "estimated_launches": 1200, "launches_per_second": 20, "launches_recorded_ns": 11e9, "max_overhead_pct": 5, "overhead_seen_pct": 12.5},
		"api":     {"calls": 220 + 600, "estimated_calls": 1200 + 600, "estimated_total_ns": 1200*10e3 + 600*40e6},
		"gaps":    {"launches": 220},
	} {
		r, err := callReports(tl)[name](query.Options{Top: 8})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CheckNumbers(t, r, want)
		checkReport(t, name, r)
		if text := string(
			analyzetest.RenderReport(t, r, render.Options{}),
		); !strings.Contains(
			text,
			"launches recorded "+
				"11.0 of 60.0 s (--max-overhead)",
		) {
			t.Errorf("%s does not mention --max-overhead:\n%s", name, text)
		}
		if !strings.Contains(strings.Join(r.Notes, "\n"), "launches recorded 11.0 of 60.0 s") {
			t.Errorf("%s has notes %q", name, r.Notes)
		}
		if name == "kernels" {
			analyzetest.CompareGoldenReports(t, r, "sampled.kernels", 110)
		}
	}
	summaryReport, err := summary.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(
		analyzetest.ColumnTexts(t, summaryReport, "kernels", "estimated_launches"),
		" ",
	); got != "600 600" {
		t.Errorf("summary: kernels %s", got)
	}
	var trace bytes.Buffer
	if _, err := perfetto.WriteTrace(
		tl,
		&trace,
		perfetto.Options{},
	); err != nil ||
		!bytes.Contains(trace.Bytes(), []byte("launches not recorded (--max-overhead)")) {
		t.Errorf("the trace does not mark the gaps, error %v", err)
	}
}

// TestNothingIsEstimatedWhereNothingWasSampled checks that reports on complete recordings have no
// estimates.
func TestNothingIsEstimatedWhereNothingWasSampled(t *testing.T) {
	testclass.Unit(t)
	r, err := kernels.Run(callsTape(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(
		analyzetest.RenderReport(t, r, render.Options{Format: "json"}),
	); strings.Contains(text, "estimated_launches") ||
		strings.Contains(text, "launches_recorded_ns") {
		t.Error(text)
	}
}

func TestWeightsOfLaunches(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		times  []analyzetest.SamplingGap
		window analyzetest.SamplingGap
		want   string // weights in the middle of each 10 s; "-" in a gap
	}{
		"in the middle":    {[]analyzetest.SamplingGap{{From: 20 * analyzetest.Second, To: 30 * analyzetest.Second}}, analyzetest.SamplingGap{From: 0, To: 60 * analyzetest.Second}, "1 1.5 - 1.5 1 1"},
		"at the beginning": {[]analyzetest.SamplingGap{{From: 0, To: 10 * analyzetest.Second}}, analyzetest.SamplingGap{From: 0, To: 60 * analyzetest.Second}, "- 2 1 1 1 1"},
		"at the end":       {[]analyzetest.SamplingGap{{From: 40 * analyzetest.Second, To: 0}}, analyzetest.SamplingGap{From: 0, To: 60 * analyzetest.Second}, "1 1 2 2 - -"},
		"two":              {[]analyzetest.SamplingGap{{From: 10 * analyzetest.Second, To: 20 * analyzetest.Second}, {From: 30 * analyzetest.Second, To: 50 * analyzetest.Second}}, analyzetest.SamplingGap{From: 0, To: 60 * analyzetest.Second}, "1.5 - 2.5 - - 2"},
		"of a window":      {[]analyzetest.SamplingGap{{From: 10 * analyzetest.Second, To: 50 * analyzetest.Second}}, analyzetest.SamplingGap{From: 20 * analyzetest.Second, To: 60 * analyzetest.Second}, "1 - - - - 4"},
		"outside of it":    {[]analyzetest.SamplingGap{{From: 50 * analyzetest.Second, To: 60 * analyzetest.Second}}, analyzetest.SamplingGap{From: 0, To: 50 * analyzetest.Second}, "nothing"},
		"all of it":        {[]analyzetest.SamplingGap{{From: 0, To: 0}}, analyzetest.SamplingGap{From: 0, To: 60 * analyzetest.Second}, "1 1 1 1 1 1"},
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddSamplingGaps(c.times...)
		tl := recording.Timeline()
		w := tl.LaunchWeights(
			query.Window{FromNs: analyzetest.Epoch + c.window.From, ToNs: analyzetest.Epoch + c.window.To},
		)
		var got []string
		for s := int64(5); s < 60 && w != nil; s += 10 {
			ns := analyzetest.Epoch + s*analyzetest.Second
			if tl.UnrecordedLaunchNs(ns, ns+1) > 0 && name != "all of it" {
				got = append(got, "-")
				continue
			}
			got = append(got, fmt.Sprint(float64(w.WeightAt(ns))/sampling.LaunchWeightUnit))
		}
		if w == nil {
			got = []string{"nothing"}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

// TestEstimatesFollowOtherCalls has a program that runs faster while its launches are not recorded.
// The number of other calls shows by how much.
func TestEstimatesFollowOtherCalls(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for ns := int64(0); ns < 60*analyzetest.Second; ns += 20 * analyzetest.Ms {
		if inGap := ns >= 10*analyzetest.Second && ns < 19*analyzetest.Second; !inGap {
			for k := range int64(4) {
				recording.AddLaunch(ns+k*analyzetest.Ms, analyzetest.Us, "gemm", 7, 1)
			}
			recording.AddSync("cuStreamSynchronize", ns+10*analyzetest.Ms, analyzetest.Us, 7, 0)
		} else {
			recording.AddSync("cuStreamSynchronize", ns+5*analyzetest.Ms, analyzetest.Us, 7, 0)
			recording.AddSync("cuStreamSynchronize", ns+10*analyzetest.Ms, analyzetest.Us, 7, 0)
			recording.AddSync("cuStreamSynchronize", ns+15*analyzetest.Ms, analyzetest.Us, 7, 0)
		}
	}
	recording.AddSamplingGaps(analyzetest.SamplingGap{From: 10 * analyzetest.Second, To: 19 * analyzetest.Second})
	r, err := kernels.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CheckNumbers(
		t,
		r,
		map[string]float64{"launches": 51 * 50 * 4, "estimated_launches": 51*50*4 + 9*50*3*4},
	)
}

// TestEstimatesOfProgramsWithFewCalls has a program that makes few calls other than launches. All
// sampling gaps together show how much faster it runs while its launches are not recorded.
func TestEstimatesOfProgramsWithFewCalls(t *testing.T) {
	testclass.Unit(t)
	const period, window = 2500 * analyzetest.Ms, 500 * analyzetest.Ms
	recording := analyzetest.NewTestRecording(t)
	for ns := int64(0); ns < 24*period; ns += 25 * analyzetest.Ms { // four times as fast in gaps
		inWindow := ns%period < window
		if inWindow && ns%(100*analyzetest.Ms) != 0 {
			continue
		}
		recording.AddSync("cuStreamSynchronize", ns, analyzetest.Us, 7, 0)
		for k := int64(1); inWindow && k <= 10; k++ {
			recording.AddLaunch(ns+k*analyzetest.Ms, analyzetest.Us, "gemm", 7, 1)
		}
	}
	for ns := int64(0); ns < 24*period; ns += period {
		recording.AddSamplingGaps(analyzetest.SamplingGap{From: ns + window, To: ns + period})
	}
	r, err := kernels.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"launches": 24 * 50, "estimated_launches": 24 * (50 + 800)})
}

// TestEstimatesIgnoreCallsOfTheStart checks that calls that a program makes only while it starts, and
// getters whose probes are removed, do not change the estimate.
func TestEstimatesIgnoreCallsOfTheStart(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for ns := int64(0); ns < 3*analyzetest.Second; ns += 20 * analyzetest.Ms {
		for k := int64(1); k <= 4; k++ {
			if ns < 100*analyzetest.Ms {
				recording.AddAPICall("cuKernelGetFunction", ns+k*analyzetest.Ms, 0xf, 0)
				recording.AddAPICall("cuLibraryGetKernel", ns+k*analyzetest.Ms, 0xf, 0)
			}
			if ns < 500*analyzetest.Ms || ns >= 2500*analyzetest.Ms {
				recording.AddLaunch(ns+k*analyzetest.Ms, analyzetest.Us, "gemm", 7, 1)
			}
		}
		recording.AddSync("cuStreamSynchronize", ns+10*analyzetest.Ms, analyzetest.Us, 7, 0)
	}
	recording.AddSamplingGaps(analyzetest.SamplingGap{From: 500 * analyzetest.Ms, To: 2500 * analyzetest.Ms})
	r, err := kernels.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"launches": 200, "estimated_launches": 600})
}

// TestSwitchesOfADamagedFile checks that impossible sampling notes cause no panic and no impossible
// numbers.
func TestSwitchesOfADamagedFile(t *testing.T) {
	testclass.Unit(t)
	recording := sampledTape(t)
	recording.AddSamplingSwitch(-analyzetest.Epoch, format.SampledCalls, false)
	recording.AddSamplingSwitch(math.MaxInt64-analyzetest.Epoch, format.SampledCalls, true)
	recording.AddSamplingSwitch(30*analyzetest.Second, format.SampledCalls, false)
	recording.AddSamplingSwitch(30*analyzetest.Second, format.SampledCalls, true)
	recording.AddSamplingSwitch(30*analyzetest.Second, "colours", false)
	for _, text := range []string{"", "{", `{"class":"copy","what":"calls"}`, `{"class":7}`} {
		recording.AddRow(
			format.Row{
				Kind:    format.KindNote,
				Name:    format.NoteSampling,
				StartNs: analyzetest.Epoch + 31*analyzetest.Second,
				Message: text,
			},
		)
	}
	tl := recording.Timeline()
	for name, make := range callReports(tl) {
		r, err := make(query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkReport(t, name, r)
		if l := r.Quality.Launches; l.LaunchesNs < 0 || l.LaunchesNs > l.OfNs || l.StacksNs < 0 || l.StacksNs > l.OfNs {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestNoGapsWhereLaunchesWereNotRecorded checks that a sampling gap is not an idle gap; a recorded
// time without launches is.
func TestNoGapsWhereLaunchesWereNotRecorded(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for _, ns := range []int64{0, 1, 2, 12, 13, 15, 16, 17} {
		recording.AddLaunch(ns*analyzetest.Second, 10*analyzetest.Us, "gemm", 7, 1)
	}
	recording.AddSamplingGaps(
		analyzetest.SamplingGap{
			From: 2*analyzetest.Second + 500*analyzetest.Ms,
			To:   11*analyzetest.Second + 500*analyzetest.Ms,
		},
	)
	r, err := gaps.RunWithOptions(recording.Timeline(), gaps.Options{MinGapNs: 1500 * analyzetest.Ms})
	if err != nil {
		t.Fatal(err)
	}
	// The idle gap lasts from 13 s to 15 s. From 2 s to 12 s launches were not recorded. 17 s minus
	// 9 s without recording remain.
	analyzetest.CheckNumbers(
		t,
		r,
		map[string]float64{"gaps": 1, "gap_max_ns": 2e9 - 10e3, "gap_pct": 100 * (2e9 - 10e3) / (8e9 + 10e3)},
	)
}

func TestHangWhereLaunchesWereNotRecorded(t *testing.T) {
	testclass.Unit(t)
	const launch, sync = format.KindLaunch, format.KindSync
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string
	}{
		"silent since the start of a sampling gap": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 51*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddSamplingGaps(analyzetest.SamplingGap{From: 51 * analyzetest.Second, To: 0})
		}, "alive low"},
		"silent before a sampling gap": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddSamplingGaps(analyzetest.SamplingGap{From: 51 * analyzetest.Second, To: 0})
		}, "idle medium"},
		"silent in a sampling gap": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 10*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddWorkingThread(42, 42, 19*analyzetest.Second, 20*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddWorkingThread(42, 42, 29*analyzetest.Second, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddSamplingGaps(analyzetest.SamplingGap{From: 10 * analyzetest.Second, To: 19 * analyzetest.Second}, analyzetest.SamplingGap{From: 20 * analyzetest.Second, To: 29 * analyzetest.Second}, analyzetest.SamplingGap{From: 30 * analyzetest.Second, To: 39 * analyzetest.Second})
		}, "idle medium"},
		"the program makes no launches": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 51*analyzetest.Second, sync, "cuStreamSynchronize")
			recording.AddSamplingGaps(analyzetest.SamplingGap{From: 51 * analyzetest.Second, To: 0})
		}, "idle high"},
		"the thread is in a call": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 50*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddOpenCall(42, 42, 50*analyzetest.Second, sync, "cuStreamSynchronize")
			recording.AddSamplingGaps(analyzetest.SamplingGap{From: 51 * analyzetest.Second, To: 0})
		}, "hanging high"},
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
		)
		c.tape(recording)
		r, err := hang.RunWithOptions(recording.Timeline(), hang.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := analyzetest.ColumnTexts(t, r, "threads", "verdict")[0] + " " + analyzetest.ColumnTexts(t, r, "threads", "confidence")[0]
		if got != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, c.want, analyzetest.RenderReport(t, r, render.Options{}))
		}
	}
}
