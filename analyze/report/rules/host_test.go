package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// hostPrograms are delays of a training step, with the rule that fires.
var hostPrograms = map[string]struct {
	delay func(*gpuprogram.JobThread, int64)
	rule  string
}{
	"no delay": {delay: func(*gpuprogram.JobThread, int64) {}},
	"workers": {func(t *gpuprogram.JobThread, ns int64) {
		t.BlockIn(ns, format.WaitFact{Reason: format.ReasonPoll}, gpuprogram.DataLoaderFrames()...)
	}, "dataloader-bound"},
	"data set in this process": {func(t *gpuprogram.JobThread, ns int64) {
		t.Enter("/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_next_data")
		t.Enter("/app/data.py", "__getitem__")
		t.Work(ns)
		t.Leave()
		t.Leave()
	}, "dataloader-bound"},
	"garbage":   {(*gpuprogram.JobThread).Collect, "gc-pause"},
	"GIL":       {blockFor(format.WaitFact{Reason: format.ReasonGIL}), "gil-bound"},
	"limit":     {blockFor(format.WaitFact{Reason: format.ReasonThrottled}), "cpu-throttled"},
	"run queue": {blockFor(format.WaitFact{Reason: format.ReasonRunQueue}), "oversubscribed-cpu"},
	"file":      {blockFor(format.WaitFact{Reason: format.ReasonPageFault, Target: "/data/a"}), "io-bound"},
	"sleep":     {delay: blockFor(format.WaitFact{Reason: format.ReasonSleep})},
	"own work":  {delay: (*gpuprogram.JobThread).Work},
}

func blockFor(f format.WaitFact) func(*gpuprogram.JobThread, int64) {
	return func(t *gpuprogram.JobThread, ns int64) { t.Block(ns, f) }
}

// TestHostRules checks that a delay of the host makes its rule fire and no other, and that a short one makes
// none fire.
func TestHostRules(t *testing.T) {
	testclass.Unit(t)
	var chosen []string
	for _, p := range hostPrograms {
		if p.rule != "" && !slices.Contains(chosen, p.rule) {
			chosen = append(chosen, p.rule)
		}
	}
	for name, p := range hostPrograms {
		for _, ns := range []int64{analyzetest.Ms, 12 * analyzetest.Ms} { // of a step of 50 ms
			t.Run(fmt.Sprintf("%s/%d", name, ns), func(t *testing.T) {
				j := gpuprogram.NewJob(3, gpuprogram.Plan{Full: true})
				j.RecordHost(gpuprogram.HostRecorder{})
				process := j.Process(0)
				if p.rule == "cpu-throttled" {
					process.Throttle("/pod", 1)
				}
				th, stream := process.Thread(), process.Stream()
				th.Enter("/app/train.py", "main")
				for range 60 {
					th.Line(10)
					p.delay(th, ns)
					launchMany(th, 20, 45, stream, "gemm", 640, 1_000_000, 2000)
					th.Line(30)
					th.Synchronize(stream)
				}
				r := checked(t, j.Recording(t, 0), rules.Options{Rules: chosen})
				found := analyzetest.ColumnTexts(t, r, "hits", "rule")
				var want []string
				if p.rule != "" && ns > 2*analyzetest.Ms {
					want = []string{p.rule}
				}
				if !slices.Equal(found, want) {
					t.Fatalf(
						"%v fire, want %v\n%s",
						found,
						want,
						analyzetest.RenderReport(t, r, render.Options{Width: 200}),
					)
				}
				if len(want) == 0 {
					return
				}
				line := "main (train.py:10)"
				if name == "data set in this process" {
					line = "__getitem__ (data.py:1)"
				}
				if where := analyzetest.ColumnTexts(t, r, "hits", "where")[0]; !strings.HasPrefix(where, line) {
					t.Errorf("where %s, want %s", where, line)
				}
			})
		}
	}
}
