package earlier_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestReportsWithAndWithoutEarlierBlocks compares reports on one recording with its blocks from before, without them, and
// with the reason why they are unknown.
func TestReportsWithAndWithoutEarlierBlocks(t *testing.T) {
	testclass.Unit(t)
	for _, blocks := range []string{
		analyzetest.EarlierBlocksRead, analyzetest.EarlierBlocksMissing, analyzetest.EarlierBlocksRefused,
	} {
		tl := analyzetest.AttachedRecording(t, blocks).Timeline()
		for name, run := range map[string]func(*timeline.Timeline, query.Options) (*report.Report, error){
			"leaks": leaks.Run, "memory": memory.Run, "frag": frag.Run, "oom": oom.Run, "allocator": allocator.Run,
			"summary": summary.Run,
		} {
			r, err := run(tl, query.Options{Top: 20, MaxFrames: 4})
			if err != nil {
				t.Fatal(err)
			}
			analyzetest.CompareGoldenReports(t, r, name+"-"+blocks, 130)
		}
	}
}
