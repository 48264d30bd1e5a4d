package hang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func newHangReport(t *testing.T, recording *analyzetest.TestRecording, opt hang.Options) *report.Report {
	t.Helper()
	r, err := hang.RunWithOptions(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHangVerdicts(t *testing.T) {
	testclass.Unit(t)
	const launch, sync = format.KindLaunch, format.KindSync
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string // verdict and confidence of each thread
	}{
		"works to the end": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 60*analyzetest.Second, launch, "cuLaunchKernel")
		}, "alive high"},
		"a call that does not end": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuStreamSynchronize")
		}, "hanging high"},
		"a call that just began": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 60*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddOpenCall(42, 42, 59900*analyzetest.Ms, sync, "cuStreamSynchronize")
		}, "alive high"},
		"such calls take long": {func(recording *analyzetest.TestRecording) {
			recording.AddCall(sync, "cuStreamSynchronize", analyzetest.Second, 20*analyzetest.Second)
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuStreamSynchronize")
		}, "waiting high"},
		"three times as long": {func(recording *analyzetest.TestRecording) {
			recording.AddCall(sync, "cuStreamSynchronize", analyzetest.Second, 10*analyzetest.Second)
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuStreamSynchronize")
		}, "hanging high"},
		"another thread makes progress": {func(recording *analyzetest.TestRecording) {
			recording.AddOpenCall(42, 42, 45*analyzetest.Second, sync, "cuStreamSynchronize")
			recording.AddWorkingThread(42, 43, 0, 60*analyzetest.Second, launch, "cuLaunchKernel")
		}, "waiting high, alive high"},
		"another thread makes progress for long": {func(recording *analyzetest.TestRecording) {
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuStreamSynchronize")
			recording.AddWorkingThread(42, 43, 0, 60*analyzetest.Second, launch, "cuLaunchKernel")
		}, "hanging medium, alive high"},
		"calls end": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
		}, "idle high"},
		"pauses are usual": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddWorkingThread(42, 42, 20*analyzetest.Second, 50*analyzetest.Second, launch, "cuLaunchKernel")
		}, "alive high"},
		"hardly ever did a thing": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 300*analyzetest.Ms, launch, "cuLaunchKernel")
		}, "idle medium"},
		"the process has ended": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 300*analyzetest.Ms, launch, "cuLaunchKernel")
			recording.AddExit(42, analyzetest.Second)
		}, "ended high"},
		"asks in a loop": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddEventQueryCount(30*analyzetest.Second, 30*analyzetest.Second, 30e6)
		}, "polling high"},
		"a watchdog asks": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddEventQueryCount(30*analyzetest.Second, 30*analyzetest.Second, 300)
		}, "idle high"},
		"asked while it was busy": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			recording.AddEventQueryCount(0, 30*analyzetest.Second, 30e6)
		}, "idle high"},
		"calls were lost meanwhile": {func(recording *analyzetest.TestRecording) {
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuCtxSynchronize")
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch + 40*analyzetest.Second, DurNs: analyzetest.Second, Value: 7})
		}, "hanging low"},
		"calls were lost before": {func(recording *analyzetest.TestRecording) {
			recording.AddOpenCall(42, 42, 30*analyzetest.Second, sync, "cuCtxSynchronize")
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch, DurNs: analyzetest.Second, Value: 7})
		}, "hanging high"},
		"may be inside of a launch": {func(recording *analyzetest.TestRecording) {
			recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, launch, "cuLaunchKernel")
			r := recording.AddCall(launch, "cuLaunchKernel", 31*analyzetest.Second, 0)
			r.Flags = format.FlagNoReturn
		}, "idle medium"},
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
		)
		c.tape(recording)
		r := newHangReport(t, recording, hang.Options{})
		var got []string
		levels := analyzetest.ColumnTexts(t, r, "threads", "confidence")
		for i, v := range analyzetest.ColumnTexts(t, r, "threads", "verdict") {
			got = append(got, v+" "+levels[i])
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %s, want %s", name, s, c.want)
		}
	}
}

func TestTheRankThatIsMissingIsNamed(t *testing.T) {
	testclass.Unit(t)
	r := newHangReport(
		t,
		analyzetest.FourRanksRecording(t),
		hang.Options{Options: query.Options{Top: 20, MaxFrames: 12}},
	)
	analyzetest.CompareGoldenReports(t, r, "hang", 110)
	if got := fmt.Sprint(
		analyzetest.ColumnTexts(t, r, "processes", "verdict"),
		analyzetest.ColumnTexts(t, r, "processes", "pid"),
	); got != "[hanging hanging hanging idle] [42 43 45 44]" {
		t.Error(got)
	}
	for i, odd := range analyzetest.ColumnTexts(t, r, "processes", "odd") {
		if (odd != "<nil>") != (i == 3) {
			t.Errorf("process %d: %s", i, odd)
		}
	}
	if text := string(
		analyzetest.RenderReport(t, r, render.Options{}),
	); !strings.Contains(text, "look at    44 train: "+
		"its last kernel launch was 2.10s before") ||
		!strings.Contains(
			text,
			"which spins until all peers take part",
		) ||
		!strings.Contains(text, "event 0xe1, recorded on stream 9 1.0ms before") {
		t.Error(text)
	}
}

// silentTape returns a recording of a process that makes no call.
func silentTape(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
	)
	return recording
}

func TestHangBeforeTheRecordingIsSilence(t *testing.T) {
	testclass.Unit(t)
	analyzetest.CompareGoldenReports(t, newHangReport(t, silentTape(t), hang.Options{}), "hangsilent", 110)
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string
	}{
		"silent": {func(*analyzetest.TestRecording) {}, "silent: process 42 train made no CUDA call in the recorded " +
			"1m0s"},
		"two": {func(recording *analyzetest.TestRecording) {
			recording.AddRow(format.Row{Kind: format.KindProcess, Name: "train", Pid: 43, StartNs: analyzetest.Epoch, Device: -1})
		}, "silent: 2 processes, such as 42 train, made no CUDA call"},
		"asks in a loop": {func(recording *analyzetest.TestRecording) {
			recording.AddEventQueryCount(0, 60*analyzetest.Second, 60e6)
		}, "polling: process 42 train made no CUDA call except 1,000,000 queries"},
		"a watchdog asks": {func(recording *analyzetest.TestRecording) {
			recording.AddEventQueryCount(0, 60*analyzetest.Second, 600)
		}, "silent: "},
		"has ended": {func(recording *analyzetest.TestRecording) { recording.AddExit(42, analyzetest.Second) }, "no call was recorded, " +
			"and all recorded processes ended"},
		"calls were lost": {func(recording *analyzetest.TestRecording) {
			recording.Meta.Calls = map[string]format.CallCount{"launch": {Seen: 7, Lost: 7}}
		}, "unknown: no call was recorded, and 7 calls lost"},
	} {
		recording := silentTape(t)
		c.tape(recording)
		r := newHangReport(t, recording, hang.Options{})
		result := fmt.Sprint(r.Facts[0].Value)
		if !strings.HasPrefix(result, c.want) {
			t.Errorf("%s: %s", name, result)
		}
		if advice := fmt.Sprint(
			r.Facts[1].Value,
		); strings.Contains(
			advice,
			"gpurec stacks -p 42 ",
		) == (name == "has ended") {
			t.Errorf("%s: advice %q", name, advice)
		}
	}
}

func TestHangOfOneSilentProcess(t *testing.T) {
	testclass.Unit(t)
	recording := silentTape(t)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "eval", Pid: 43, StartNs: analyzetest.Epoch, Device: -1},
	)
	recording.AddWorkingThread(44, 44, 0, 60*analyzetest.Second, format.KindLaunch, "cuLaunchKernel")
	r := newHangReport(t, recording, hang.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{43}}}})
	if result := fmt.Sprint(r.Facts[0].Value); r.NoMatch != nil || !strings.HasPrefix(result, "silent: process 43 "+
		"eval made no CUDA call") {
		t.Errorf("%v, %s", r.NoMatch, result)
	}
	if r = newHangReport(
		t,
		recording,
		hang.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{45}}}},
	); r.NoMatch == nil {
		t.Error("a process that is not in the recording matches")
	}
}

func TestHangLooksAtAnyMoment(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddWorkingThread(42, 42, 0, 10*analyzetest.Second, format.KindLaunch, "cuLaunchKernel")
	recording.AddCall(format.KindSync, "cuStreamSynchronize", 10*analyzetest.Second, 20*analyzetest.Second)
	recording.AddWorkingThread(
		42,
		42,
		30*analyzetest.Second,
		60*analyzetest.Second,
		format.KindLaunch,
		"cuLaunchKernel",
	)
	for to, want := range map[int64]string{
		5 * analyzetest.Second:  "alive",
		25 * analyzetest.Second: "hanging",
		60 * analyzetest.Second: "alive",
	} {
		r := newHangReport(
			t,
			recording,
			hang.Options{Options: query.Options{Filter: query.Filter{ToNs: analyzetest.Epoch + to}}},
		)
		if got := analyzetest.ColumnTexts(t, r, "threads", "verdict")[0]; got != want {
			t.Errorf("at %v: %s, want %s", to/analyzetest.Second, got, want)
		}
	}
	r := newHangReport(t, recording, hang.Options{})
	if got := analyzetest.ColumnTexts(t, r, "long_calls", "dur_ns"); fmt.Sprint(got) != "[20000000000]" {
		t.Error(got)
	}
	if n := len(
		analyzetest.ColumnTexts(
			t,
			newHangReport(t, recording, hang.Options{LongNs: 21 * analyzetest.Second}),
			"long_calls",
			"dur_ns",
		),
	); n != 0 {
		t.Errorf("%d long calls", n)
	}
}

func TestHangIsSafeAndFits(t *testing.T) {
	testclass.Unit(t)
	for _, recording := range []*analyzetest.TestRecording{analyzetest.HostileRecording(t), analyzetest.FourRanksRecording(t), analyzetest.NewTestRecording(t)} {
		r := newHangReport(t, recording, hang.Options{})
		analyzetest.CheckSafeToPrint(t, r)
	}
}
