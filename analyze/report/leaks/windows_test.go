package leaks_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// tenthInWindows are windows of 100 ms in a tenth of the time.
var tenthInWindows = analyzetest.AllocatorWindows{Seed: 4, WindowNs: 100 * analyzetest.Ms, Share: 0.1, Refused: 0.05}

// runInWindows returns the report on a program in windows.
func runInWindows(t *testing.T, p *steppedProgram) (*timeline.Timeline, *report.Report) {
	t.Helper()
	p.recording.CutIntoWindows(tenthInWindows)
	tl := p.recording.Timeline()
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tl, r
}

// leakInWindows returns a program with a leak of 1 MiB in each n-th step of 30 ms, and temporaries of the same size.
func leakInWindows(t *testing.T, n int) *steppedProgram {
	return newScenario(t, 1, windowScenario{"leak", func(p *scenarioProgram) {
		p.every("leak", n, func(i int) { p.keep(i, analyzetest.Mib) })
	}})
}

func rowOf(t *testing.T, r *report.Report, site string) int {
	t.Helper()
	i := slices.Index(analyzetest.ColumnTexts(t, r, "leaks", "site"), site)
	if i < 0 {
		t.Fatalf("no row %s", site)
	}
	return i
}

func TestLeakInWindows(t *testing.T) {
	testclass.Unit(t)
	tl, r := runInWindows(t, leakInWindows(t, 1))
	row := &r.Tables[0].Rows[rowOf(t, r, "leak")]
	for _, part := range []string{"that windows saw live on; its share in the growth of their sizes is 1.9 GiB ± ", " of the time"} {
		if !strings.Contains(row.Evidence, part) {
			t.Errorf("no %q in %q", part, row.Evidence)
		}
	}
	if v := analyzetest.CellValue(t, r, rowOf(t, r, "temporaries"), "verdict"); v != "churn" {
		t.Errorf("temporaries: %v", v)
	}
	hits, err := rules.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(analyzetest.ColumnTexts(t, hits, "hits", "rule"), "growing-site")
	if i < 0 || !strings.Contains(analyzetest.ColumnTexts(t, hits, "hits", "what")[max(0, i)], " ± ") {
		t.Errorf("growing-site is hit %d", i)
	}
}

// TestUnseenLeak leaks in bursts that windows hardly see.
func TestUnseenLeak(t *testing.T) {
	testclass.Unit(t)
	p := newScenario(t, 1, windowScenario{"rare", func(p *scenarioProgram) {
		p.every("leak", 73, func(i int) {
			for range 20 {
				p.keep(i, 2*analyzetest.Mib)
			}
		})
	}})
	_, r := runInWindows(t, p)
	i := rowOf(t, r, unseenSite)
	if v := analyzetest.CellValue(t, r, i, "verdict"); v != "growing" {
		t.Errorf("%v: %s", v, r.Tables[0].Rows[i].Evidence)
	}
	rate := float64(analyzetest.CellValue(t, r, i, "growth_bytes_per_min").(int64))
	if want := p.leaks["leak"].perMinute(); rate < 0.8*want || rate > 1.2*want {
		t.Errorf("grows by %.0f, not by %.0f", rate, want)
	}
	if slices.Contains(analyzetest.ColumnTexts(t, r, "leaks", "site"), "leak") {
		if v := analyzetest.CellValue(t, r, rowOf(t, r, "leak"), "verdict"); v == "growing" {
			t.Error("the site of a burst in a window grows")
		}
	}
}

// TestSightingsWithoutStack leaks blocks. Each third of them has no stack: it may be of the site of the others.
func TestSightingsWithoutStack(t *testing.T) {
	testclass.Unit(t)
	p := newScenario(t, 1, windowScenario{"rationed", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) {
			if p.keep(i, 2*analyzetest.Mib); i%2 == 0 {
				p.Alloc(p.at(i, 0.7), 2*analyzetest.Mib, 0, "")
				p.leaks["leak"].bytes += 2 * analyzetest.Mib
			}
		})
	}})
	if margin := checkLeakWithoutStacks(t, p); margin < 0.25*p.leaks["leak"].perMinute() {
		t.Errorf("the margin is %.0f", margin)
	}
}

// checkLeakWithoutStacks checks the growth of a leak, a part of it without stacks. It returns the margin, bytes per minute.
func checkLeakWithoutStacks(t *testing.T, p *steppedProgram) (margin float64) {
	t.Helper()
	_, r := runInWindows(t, p)
	i := rowOf(t, r, "leak")
	if v := analyzetest.CellValue(t, r, i, "verdict"); v != "growing" {
		t.Errorf("%v: %s", v, r.Tables[0].Rows[i].Evidence)
	}
	rate, want := float64(analyzetest.CellValue(t, r, i, "growth_bytes_per_min").(int64)), p.leaks["leak"].perMinute()
	margin = float64(analyzetest.CellValue(t, r, i, "growth_plus_minus_bytes_per_min").(int64))
	if math.Abs(rate-want) > margin {
		t.Errorf("grows by %.0f ± %.0f, not by %.0f", rate, margin, want)
	}
	if v := analyzetest.CellValue(t, r, rowOf(t, r, timeline.NoStackSite), "verdict"); v == "growing" {
		t.Error("blocks without a stack grow")
	}
	return margin
}

// TestStreamWithoutStacks leaks blocks of one size on two streams. Those of one stream have no stack.
func TestStreamWithoutStacks(t *testing.T) {
	testclass.Unit(t)
	p := newScenario(t, 1, windowScenario{"streams", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) {
			if p.keep(i, 2*analyzetest.Mib); i%3 == 0 {
				p.AllocIn(42, 7, p.at(i, 0.7), 2*analyzetest.Mib, 0, "")
				p.leaks["leak"].bytes += 2 * analyzetest.Mib
			}
		})
	}})
	checkLeakWithoutStacks(t, p)
}

// TestCallersInWindows splits a site whose callers keep and free its blocks.
func TestCallersInWindows(t *testing.T) {
	testclass.Unit(t)
	p := newEmptyProgram(t, rand.New(rand.NewPCG(verdictSeed, 3)), 30*analyzetest.Ms)
	for id, caller := range []string{"/app/train.py:40 validate", "/app/train.py:22 train_step"} {
		p.recording.AddStackRow(int32(id+1), format.StackComplete, "", featureSite, analyzetest.ParseFrames(
			"libtorch_cuda.so at::detail::empty_cuda",
			"/app/model.py:10 make_features",
			caller,
			"/app/train.py:60 main",
		))
	}
	for _, at := range p.starts {
		p.Alloc(at, analyzetest.Mib, 1, featureSite)
		p.Free(at+10*analyzetest.Ms, p.Alloc(at+5*analyzetest.Ms, analyzetest.Mib, 2, featureSite))
	}
	p.Run()
	_, r := runInWindows(t, p)
	for site, want := range map[string]string{
		featureSite + " from validate (train.py:40)":   "growing",
		featureSite + " from train_step (train.py:22)": "churn",
	} {
		if v := analyzetest.CellValue(t, r, rowOf(t, r, site), "verdict"); v != want {
			t.Errorf("%s: %v", site, v)
		}
	}
}

// TestDiffOfWindows compares the growth of two recordings with its margins.
func TestDiffOfWindows(t *testing.T) {
	testclass.Unit(t)
	side := func(n int, seed uint64) *diff.Side {
		p := leakInWindows(t, n)
		cut := tenthInWindows
		cut.Seed = seed
		p.recording.CutIntoWindows(cut)
		s, err := diff.NewSide(p.recording.Timeline(), leaks.Run, query.Options{}, diff.Divisor{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := side(2, 1)
	for n, isKnown := range map[int]bool{2: false, 1: true} {
		r, err := diff.Run(before, side(n, 7), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(analyzetest.ColumnTexts(t, r, "leaks", "site"), "leak")
		change := analyzetest.ColumnTexts(t, r, "leaks", "growth_bytes_per_min_change")[i]
		margin := analyzetest.ColumnTexts(t, r, "leaks", "growth_bytes_per_min_change_plus_minus")[i]
		if (change != "<nil>") != isKnown || margin == "<nil>" {
			t.Errorf("a leak in each %d. step: change %s ± %s", n, change, margin)
		}
	}
}
