package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/internal/testclass"
)

// allocLoopTexts returns the texts of a column for the rule alloc-in-loop.
func allocLoopTexts(t *testing.T, r *report.Report, table, column string) (list []string) {
	t.Helper()
	for i, rule := range analyzetest.ColumnTexts(t, r, table, "rule") {
		if rule == "alloc-in-loop" {
			list = append(list, analyzetest.ColumnTexts(t, r, table, column)[i])
		}
	}
	return list
}

// TestAllocLoopNamesTheLineThatEmptiesTheCache has 10 segments that are freed at the end of each
// step of 20 ms. Their 20 driver calls take 2 ms.
func TestAllocLoopNamesTheLineThatEmptiesTheCache(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		function, advice string
	}{
		"empty_cache": {"THCPModule_emptyCache", "Remove torch.cuda.empty_cache() from the loop:"},
		"allocator":   {"release_cached_blocks", "leave the allocator more memory"},
	} {
		t.Run(name, func(t *testing.T) {
			recording := analyzetest.SteadyRecording(t)
			recording.AddStack(7, "encode_batch", "main")
			recording.AddStack(8, c.function, "release_cache", "main")
			analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}).EmptyCacheInSteps(500, 20*analyzetest.Ms)
			r := checked(t, recording, rules.Options{})
			where := allocLoopTexts(t, r, "hits", "where")
			if !slices.Equal(where, []string{analyzetest.ReleaseCacheSite}) {
				t.Fatalf("where %v\n%s", where, analyzetest.RenderReport(t, r, render.Options{Width: 200}))
			}
			want := "segments of PyTorch's allocator are freed and allocated again, 10 at a time, 10.0% of the time in " +
				"these driver calls"
			if got := allocLoopTexts(t, r, "hits", "what")[0]; got != want {
				t.Errorf("summary %q, want %q", got, want)
			}
			if advice := allocLoopTexts(t, r, "hits", "advice")[0]; !strings.Contains(advice, c.advice) {
				t.Errorf("advice %q", advice)
			}
			if n := allocLoopTexts(t, r, "evidence", "count"); !slices.Equal(n, []string{"5000"}) {
				t.Errorf("count %v", n)
			}
		})
	}
}

func TestSegmentsThatStayAreNoAllocLoop(t *testing.T) {
	testclass.Unit(t)
	for name, run := range map[string]func(*analyzetest.CacheProgram){
		"emptied every second": func(p *analyzetest.CacheProgram) { p.EmptyCacheInSteps(50, analyzetest.Second) },
		"never emptied": func(p *analyzetest.CacheProgram) {
			p.Driver = true
			p.RunSteps(func(int64) { p.UseBriefly(20*analyzetest.Mib, 20*analyzetest.Mib) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			recording := analyzetest.SteadyRecording(t)
			run(analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}))
			r := checked(t, recording, rules.Options{})
			if where := allocLoopTexts(t, r, "hits", "where"); len(where) > 0 {
				t.Errorf("fires at %v", where)
			}
		})
	}
}

// TestAllocLoopNamesTheLineOfTheFrees has a loop that frees at another line than it allocates.
func TestAllocLoopNamesTheLineOfTheFrees(t *testing.T) {
	testclass.Unit(t)
	const ptr = 0x7d0000000000
	recording := analyzetest.SteadyRecording(t)
	for i := range int64(1000) {
		at := 2*analyzetest.Second + i*10*analyzetest.Ms
		analyzetest.SetStackAndSite(
			recording.AddAlloc(at, analyzetest.Us, ptr, analyzetest.Mib), 1, "train_step (train.cc:10)",
		)
		free := recording.AddFree(at+5*analyzetest.Ms, analyzetest.Us, ptr)
		analyzetest.SetStackAndSite(
			free,
			2,
			[]string{"drop (train.cc:30)", "drop (train.cc:30)", "end (train.cc:40)"}[i%3],
		)
	}
	r := checked(t, recording, rules.Options{})
	want := "cuMemAlloc_v2, freed within a second, 100 times per second, freed at drop (train.cc:30)"
	if got := allocLoopTexts(t, r, "evidence", "detail"); !slices.Equal(got, []string{want}) {
		t.Errorf("detail %v, want %q", got, want)
	}
}
