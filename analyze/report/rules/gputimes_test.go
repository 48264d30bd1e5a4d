package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/internal/testclass"
)

// timedProgram is a program whose GPU times make rules fire, or not.
type timedProgram struct {
	step  func(th *gpuprogram.JobThread, main, side *gpuprogram.JobStream, event int64)
	fires []string // ids of rules
	where string   // of the first one
}

// launchMany launches kernels at a line.
func launchMany(
	th *gpuprogram.JobThread,
	line, n int,
	s *gpuprogram.JobStream,
	kernel string,
	grid int32,
	gpuNs, hostNs int64,
) {
	th.Line(line)
	for range n {
		th.Launch(s, kernel, grid, gpuNs)
		th.Compute(hostNs)
	}
}

var timedPrograms = map[string]timedProgram{
	"busy": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			launchMany(th, 10, 60, main, "gemm", 640, 100_000, 2000)
			th.Line(11)
			th.Synchronize(main)
		},
	},
	"host is late": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			launchMany(th, 20, 30, main, "gemm", 640, 50_000, 2000)
			th.Line(21)
			th.Compute(3_000_000)
		},
		fires: []string{"gpu-idle"}, where: "main (train.py:20)",
	},
	"launch bound": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			launchMany(th, 30, 100, main, "gemm", 640, 5000, 40_000)
		},
		fires: []string{"launch-bound"}, where: "main (train.py:30)",
	},
	"tiny kernels behind a full queue": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			launchMany(th, 40, 200, main, "tiny", 2, 30_000, 2000)
			th.Line(41)
			th.Synchronize(main)
		},
	},
	"tiny kernels": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			launchMany(th, 50, 100, main, "tiny", 2, 5000, 40_000)
		},
		fires: []string{"launch-bound", "tiny-kernels"}, where: "main (train.py:50)",
	},
	"copies": {
		step: func(th *gpuprogram.JobThread, main, _ *gpuprogram.JobStream, _ int64) {
			th.Line(60)
			th.Copy(main, activity.OpCopyToDevice, 16<<20, 1_500_000)
			launchMany(th, 61, 40, main, "gemm", 640, 100_000, 2000)
			th.Line(62)
			th.Synchronize(main)
		},
		fires: []string{"exposed-copies"}, where: "main (train.py:60)",
	},
	"collectives": {
		step: func(th *gpuprogram.JobThread, main, side *gpuprogram.JobStream, event int64) {
			launchMany(th, 70, 40, main, "gemm", 640, 100_000, 2000)
			th.Line(71)
			th.RecordEvent(main, event)
			th.WaitEvent(side, event)
			th.Launch(side, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24, 1_500_000)
			th.RecordEvent(side, event)
			th.WaitEvent(main, event)
			launchMany(th, 72, 10, main, "adam", 640, 50_000, 2000)
			th.Line(73)
			th.Synchronize(main)
		},
		fires: []string{"exposed-communication"}, where: "main (train.py:71)",
	},
}

// TestRulesUseGPUTimes runs the rules about lost GPU time on programs with GPU times.
func TestRulesUseGPUTimes(t *testing.T) {
	testclass.Unit(t)
	chosen := []string{"gpu-idle", "launch-bound", "tiny-kernels", "exposed-copies", "exposed-communication"}
	for name, p := range timedPrograms {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/full=%t", name, full), func(t *testing.T) {
				j := gpuprogram.NewJob(5, gpuprogram.Plan{Full: full})
				process := j.Process(0)
				th, main, side := process.Thread(), process.Stream(), process.Stream()
				th.Enter("train.py", "main")
				event := th.NewEvent()
				for fromNs := th.NowNs; th.NowNs < fromNs+3*analyzetest.Second/2; {
					for range 20 {
						p.step(th, main, side, event)
					}
					th.Line(99)
					th.Synchronize(main)
				}
				r := checked(t, j.Recording(t, 0), rules.Options{Rules: chosen})
				found := analyzetest.ColumnTexts(t, r, "hits", "rule")
				slices.Sort(found)
				if !slices.Equal(found, p.fires) {
					t.Fatalf(
						"%v fire, want %v\n%s",
						found,
						p.fires,
						analyzetest.RenderReport(t, r, render.Options{Width: 200}),
					)
				}
				if len(found) > 0 && !strings.HasPrefix(analyzetest.ColumnTexts(t, r, "hits", "where")[0], p.where) {
					t.Errorf("where %v, want %s", analyzetest.ColumnTexts(t, r, "hits", "where"), p.where)
				}
			})
		}
	}
}
