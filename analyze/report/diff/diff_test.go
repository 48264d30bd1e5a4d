package diff_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func side(t *testing.T, recording *analyzetest.TestRecording, path string, make report.RunFunc, per string) *diff.Side {
	t.Helper()
	p, err := diff.ParseDivisor(per)
	if err != nil {
		t.Fatal(err)
	}
	s, err := diff.NewSide(recording.Timeline(), make, query.Options{MaxFrames: 12}, p)
	if err != nil {
		t.Fatal(err)
	}
	s.Path = path
	return s
}

func newDiffReport(t *testing.T, before, after *diff.Side, opt query.Options) *report.Report {
	t.Helper()
	r, err := diff.Run(before, after, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// launching returns a recording of some seconds, with launches of two kernels at a given rate.
func launching(t *testing.T, seconds, a, b int64) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = analyzetest.Epoch + seconds*analyzetest.Second
	for s := range seconds {
		for k, n := range []int64{a, b} {
			for i := range n {
				recording.AddCall(format.KindLaunch, "cuLaunchKernel", s*analyzetest.Second+i*analyzetest.Ms+int64(k)*analyzetest.Us, 2000).Kernel = []string{"a", "b"}[k]
			}
		}
	}
	return recording
}

func TestDiffByHand(t *testing.T) {
	testclass.Unit(t)
	before, after := launching(t, 10, 1, 3), launching(t, 20, 2, 3)
	after.AddCall(format.KindSync, "cuCtxSynchronize", analyzetest.Second, 5000)
	after.Meta.DriverVersion = "590.1"
	for per, want := range map[string]string{
		"":         "[changed new] [40 <nil>] [100 1] [60 1] [150 <nil>]",
		"second":   "[changed new] [4 <nil>] [5 0.05] [1 0.05] [25 <nil>]",
		"step=^a$": "[changed new] [4 <nil>] [2.5 0.025] [-1.5 0.025] [-37.5 <nil>]",
	} {
		name := map[string]string{"": "calls", "second": "calls_per_second", "step=^a$": "calls_per_step"}[per]
		r := newDiffReport(
			t,
			side(t, before, "before", summary.Run, per),
			side(t, after, "after", summary.Run, per),
			query.Options{},
		)
		got := fmt.Sprint(
			analyzetest.ColumnTexts(t, r, "calls", "row"),
			analyzetest.ColumnTexts(t, r, "calls", name+"_before"),
			analyzetest.ColumnTexts(t, r, "calls", name+"_after"),
			analyzetest.ColumnTexts(t, r, "calls", name+"_change"),
			analyzetest.ColumnTexts(t, r, "calls", name+"_change_pct"),
		)
		if got != want {
			t.Errorf("per %q: %s, want %s", per, got, want)
		}
		if got := fmt.Sprint(
			analyzetest.ColumnTexts(t, r, "setup", "what"),
			analyzetest.ColumnTexts(t, r, "setup", "after"),
		); got != "[driver] [590.1]" {
			t.Error(got)
		}
	}
	p, err := diff.ParseDivisor("step=c")
	if err != nil {
		t.Fatal(err)
	}
	var none *diff.NoStepLaunchError
	if _, err := diff.NewSide(before.Timeline(), summary.Run, query.Options{}, p); !errors.As(err, &none) {
		t.Errorf("steps of a kernel that there is not: %v", err)
	}
	for _, text := range []string{"hour", "step", "step=("} {
		if _, err := diff.ParseDivisor(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestDiffOfLeaks(t *testing.T) {
	testclass.Unit(t)
	before := analyzetest.TrainingRecording(t)
	after := analyzetest.TrainingRecording(t)
	for i := range int64(500) { // a new leak
		analyzetest.SetStackAndSite(
			after.AddAlloc(
				analyzetest.Second+i*100*analyzetest.Ms,
				analyzetest.Us,
				0x7e00_0000_0000+i*4*analyzetest.Mib,
				2*analyzetest.Mib,
			),
			9,
			"remember (train.cc:30)",
		)
	}
	after.AddStack(9, "remember", "main", "_start")
	after.Meta.DriverVersion, after.Meta.Stacks = "590.1", "dwarf"
	a, b := side(t, before, "before.parquet", leaks.Run, ""), side(t, after, "after.parquet", leaks.Run, "")
	r := newDiffReport(t, a, b, query.Options{Top: 20})
	analyzetest.CompareGoldenReports(t, r, "diff", 110)
	for name, want := range map[string]float64{
		"new_growing":       1,
		"new_exit_leak":     0,
		"growing_change":    1,
		"new":               1,
		"gone":              0,
		"changed":           0,
		"live_bytes_change": 1000 * float64(analyzetest.Mib),
	} {
		if v, ok, known := r.FindNumber(name); v != want || !ok || !known {
			t.Errorf("%s is %v (%v, %v), want %v", name, v, ok, known, want)
		}
	}
	back := newDiffReport(t, b, a, query.Options{Sort: "change"})
	if v, _, _ := back.FindNumber("gone_growing"); v != 1 {
		t.Errorf("the other way round %v rows are no longer growing", v)
	}
	if status := analyzetest.ColumnTexts(t, back, "leaks", "row"); status[len(status)-1] != "gone" {
		t.Errorf("by change: %v", status)
	}
	var wrong *report.SortError
	if _, err := diff.Run(a, b, query.Options{Sort: "colour"}); !errors.As(err, &wrong) {
		t.Error(err)
	}
	same := newDiffReport(t, a, a, query.Options{})
	if v, _, _ := same.FindNumber(
		"same",
	); v != float64(len(analyzetest.ColumnTexts(t, same, "leaks", "row"))) ||
		len(same.Tables[0].Rows)+len(same.Tables[1].Rows) > 0 {
		t.Errorf("a recording differs from itself: %v rows are the same", v)
	}
}

// TestDiffPairsWhatIsTheSameUnderAnotherNumber pairs rows whose stack ids, thread ids, process ids and
// stream handles differ between the recordings.
func TestDiffPairsWhatIsTheSameUnderAnotherNumber(t *testing.T) {
	testclass.Unit(t)
	make := func(pid int32, stack int32) *analyzetest.TestRecording {
		recording := analyzetest.NewTestRecording(t)
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
		)
		recording.AddRow(
			format.Row{
				Kind:    format.KindThread,
				Name:    "main",
				Pid:     pid,
				Tid:     pid,
				StartNs: analyzetest.Epoch,
				Device:  -1,
			},
		)
		recording.AddStack(stack, "load", "main")
		recording.AddStack(stack+1, "load", "other", "main")
		for i := range int32(2) {
			r := analyzetest.SetStackAndSite(
				recording.AddAlloc(
					analyzetest.Second+int64(i)*analyzetest.Ms,
					analyzetest.Us,
					0x1000+int64(i)*analyzetest.Mib,
					analyzetest.Mib,
				),
				stack+i,
				"load (train.cc:10)",
			)
			r.Pid, r.Tid, r.Stream = pid, pid, int64(pid)<<20
		}
		return recording
	}
	for _, by := range []string{"stack", "pid", "thread", "site"} {
		leakReport := func(tl *timeline.Timeline, opt query.Options) (*report.Report, error) {
			opt.GroupBy = by
			return leaks.Run(tl, opt)
		}
		r := newDiffReport(
			t,
			side(t, make(42, 1), "a", leakReport, ""),
			side(t, make(77, 5), "b", leakReport, ""),
			query.Options{},
		)
		for _, status := range analyzetest.ColumnTexts(t, r, "leaks", "row") {
			if status != "same" {
				t.Errorf("by %s: %v", by, analyzetest.ColumnTexts(t, r, "leaks", "row"))
			}
		}
	}
}

func TestEveryReportCanBeCompared(t *testing.T) {
	testclass.Unit(t)
	reports := map[string]report.RunFunc{
		"summary": summary.Run,
		"leaks":   leaks.Run,
		"stacks":  stacks.Run,
		"errors":  cudaerrors.Run,
		"xid":     xid.Run,
		"gpu":     gpu.Run,
		"oom":     oom.Run,
		"api":     api.Run,
		"kernels": kernels.Run,
		"copies":  copies.Run,
		"sync":    waits.Run,
		"gaps":    gaps.Run,
		"memory": func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
			return memory.RunWithOptions(t, memory.Options{Options: opt})
		},
		"hang": func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
			return hang.RunWithOptions(t, hang.Options{Options: opt})
		},
		"allocator": func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
			return allocator.RunWithOptions(t, allocator.Options{Options: opt})
		},
		"frag": func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
			r, _, err := frag.RunWithOptions(t, frag.Options{Options: opt})
			return r, err
		},
	}
	tapes := []*analyzetest.TestRecording{
		analyzetest.TrainingRecording(t),
		analyzetest.HostileRecording(t),
		analyzetest.CrashingRecording(t),
		analyzetest.NewTestRecording(t),
	}
	for name, make := range reports {
		for _, per := range []string{"", "second"} {
			var sides []*diff.Side
			for i, recording := range tapes {
				sides = append(sides, side(t, recording, fmt.Sprint(i, analyzetest.HostileName), make, per))
			}
			for _, a := range sides {
				for _, b := range sides {
					r := newDiffReport(t, a, b, query.Options{Top: 5})
					if a == b {
						if v, _, _ := r.FindNumber("changed"); v != 0 {
							t.Errorf("%s: a recording differs from itself", name)
						}
					}
					analyzetest.CheckSafeToPrint(t, r)
					if keys := r.NumberNames(); len(keys) != len(slices.Compact(slices.Sorted(slices.Values(keys)))) {
						t.Errorf("%s per %q: a number has the name of another: %q", name, per, keys)
					}
				}
			}
		}
	}
}

// TestDiffOfRowsOfAnyValue checks that a damaged file gives an error or a result.
func TestDiffOfRowsOfAnyValue(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i, v := range []int64{0, 1, -1, 1<<63 - 1, -1 << 63, analyzetest.Epoch} {
		for k, kind := range []string{
			format.KindAlloc,
			format.KindLaunch,
			format.KindSync,
			format.KindCount,
			format.KindNVML,
		} {
			r := recording.AddRow(
				format.Row{
					Kind:    kind,
					Name:    analyzetest.HostileName,
					StartNs: v,
					DurNs:   -v,
					Pid:     int32(i),
					Tid:     int32(v),
					Bytes:   v,
					Flags:   int32(v) ^ int32(k),
					Ptr:     int64(i),
					Stream:  v,
					Value:   float64(v),
				},
			)
			r.Kernel = analyzetest.HostileName
		}
	}
	recording.Meta.StartNs, recording.Meta.EndNs = -1<<63, 1<<63-1
	hung := func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		return hang.RunWithOptions(t, hang.Options{Options: opt})
	}
	for _, make := range []report.RunFunc{hung, leaks.Run, summary.Run} {
		a, b := side(t, recording, "a", make, "second"), side(t, analyzetest.NewTestRecording(t), "b", make, "second")
		for _, r := range []*report.Report{newDiffReport(t, a, b, query.Options{}), newDiffReport(t, b, a, query.Options{})} {
			analyzetest.CheckSafeToPrint(t, r)
			for _, f := range render.ListFormats() {
				if err := render.WriteReport(io.Discard, r, render.Options{Format: f}); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
