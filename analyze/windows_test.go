package analyze_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/blocks"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestReportsOfWindows compares the reports of a training with golden files. Its allocator events were recorded for a
// part of the time.
func TestReportsOfWindows(t *testing.T) {
	testclass.Unit(t)
	recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 0)
	recording.CutIntoWindows(analyzetest.AllocatorWindows{Seed: 1, WindowNs: 250 * analyzetest.Ms, Share: 0.1})
	tl := recording.Timeline()
	opt := query.Options{Top: 10, MaxFrames: 8}
	type run = func(*timeline.Timeline, query.Options) (*report.Report, error)
	for command, run := range map[string]run{
		"allocator": allocator.Run, "frag": frag.Run, "memory": memory.Run, "oom": oom.Run, "summary": summary.Run,
		"blocks": blocks.Run,
	} {
		r, err := run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		text := analyzetest.RenderReport(t, r, render.Options{Width: 110})
		analyzetest.CompareGolden(t, "windows."+command+".table", text)
	}
}
