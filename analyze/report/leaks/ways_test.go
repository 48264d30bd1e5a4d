package leaks_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const featureSite = "make_features (model.py:10)"

// wayCalls are the calls of featureSite from one stack.
type wayCalls struct {
	callers []string // innermost first, see analyzetest.ParseFrames; "/app/" is added
	blocks  int64    // allocations of 1 MiB, evenly over a minute
	freed   int64    // of 100 blocks, how many are freed
}

// Callers of the tests.
var (
	fromValidate = []string{"train.py:40 validate", "train.py:60 main"}
	fromTrain    = []string{"train.py:22 train_step", "train.py:61 main"}
)

// waysRecording returns a recording of a program that calls featureSite in several ways.
func waysRecording(t testing.TB, ways ...wayCalls) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	next := int64(0x7f0000000000)
	for i, w := range ways {
		id := int32(i + 1)
		lines := []string{
			"libcuda.so.580.95.05 cuMemAlloc_v2",
			"libtorch_cuda.so at::detail::empty_cuda",
			"/app/model.py:10 make_features",
		}
		for _, c := range w.callers {
			lines = append(lines, analyzetest.TorchDir+"nn/modules/module.py:1562 Module._call_impl",
				"libpython3.12.so.1.0 _PyEval_EvalFrameDefault", "/app/"+c)
		}
		lines = append(lines, "libpython3.12.so.1.0 Py_RunMain", "libc.so.6 __libc_start_main_impl")
		recording.AddStackRow(id, format.StackComplete, "", featureSite, analyzetest.ParseFrames(lines...))
		for b := range w.blocks {
			at := analyzetest.Second + b*58*analyzetest.Second/w.blocks + int64(i)*analyzetest.Us*10
			next += 2 * analyzetest.Mib
			analyzetest.SetStackAndSite(recording.AddAlloc(at, analyzetest.Us, next, analyzetest.Mib), id, featureSite)
			if b*w.freed/100 != (b+1)*w.freed/100 {
				recording.AddFree(at+50*analyzetest.Ms, analyzetest.Us, next)
			}
		}
	}
	return recording
}

func TestSiteIsSplitWhereACallerSeparates(t *testing.T) {
	testclass.Unit(t)
	kept := func(blocks int64, callers ...string) wayCalls { return wayCalls{callers, blocks, 0} }
	freed := func(blocks int64, callers ...string) wayCalls { return wayCalls{callers, blocks, 100} }
	mixed := func(share int64, callers ...string) wayCalls { return wayCalls{callers, 200, share} }
	nested := func(n int, outer ...string) []string {
		return append(slices.Repeat([]string{"model.py:30 walk"}, n), outer...)
	}
	for name, c := range map[string]struct {
		ways []wayCalls
		want string // CALLER:VERDICT of each row, sorted; "whole" for an unsplit site
	}{
		"one kept, one freed": {
			[]wayCalls{kept(100, fromValidate...), freed(600, fromTrain...)},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"a leak of one in a hundred": {
			[]wayCalls{kept(60, fromValidate...), freed(6000, fromTrain...)},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"four ways": {
			[]wayCalls{
				kept(100, "a.py:1 a"), freed(100, "b.py:2 b"), freed(100, "c.py:3 c"), freed(100, "d.py:4 d"),
			},
			"a (a.py:1):growing b (b.py:2):churn c (c.py:3):churn d (d.py:4):churn",
		},
		"five ways": {[]wayCalls{
			kept(100, "a.py:1 a"), freed(100, "b.py:2 b"), freed(100, "c.py:3 c"), freed(100, "d.py:4 d"),
			freed(100, "e.py:5 e"),
		}, "whole:growing"},
		"three ways, two of them kept": {
			[]wayCalls{kept(100, "a.py:1 a"), kept(100, "b.py:2 b"), freed(100, "c.py:3 c")},
			"a (a.py:1):growing b (b.py:2):growing c (c.py:3):churn",
		},
		"all kept":          {[]wayCalls{kept(100, fromValidate...), kept(100, fromTrain...)}, "whole:growing"},
		"all freed":         {[]wayCalls{freed(100, fromValidate...), freed(100, fromTrain...)}, "whole:churn"},
		"60 % against 40 %": {[]wayCalls{mixed(60, fromValidate...), mixed(40, fromTrain...)}, "whole:growing"},
		"94 % freed":        {[]wayCalls{kept(100, fromValidate...), mixed(94, fromTrain...)}, "whole:growing"},
		"95 % freed, 5 % freed": {
			[]wayCalls{mixed(5, fromValidate...), mixed(95, fromTrain...)},
			"train_step (train.py:22):retained validate (train.py:40):growing",
		},
		"6 % of the kept freed": {[]wayCalls{mixed(6, fromValidate...), freed(100, fromTrain...)}, "whole:growing"},
		"19 blocks are kept":    {[]wayCalls{kept(19, fromValidate...), freed(600, fromTrain...)}, "whole:growing"},
		"20 blocks are kept": {
			[]wayCalls{kept(20, fromValidate...), freed(600, fromTrain...)},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"19 blocks are freed":  {[]wayCalls{kept(600, fromValidate...), freed(19, fromTrain...)}, "whole:growing"},
		"one stack keeps some": {[]wayCalls{mixed(50, fromTrain...)}, "whole:growing"},
		"two lines of one function": {
			[]wayCalls{kept(100, "train.py:40 run"), freed(100, "train.py:22 run")},
			"run (train.py:22):churn run (train.py:40):growing",
		},
		"a common helper": {
			[]wayCalls{
				kept(100, "data.py:5 prepare", "train.py:40 validate"), freed(100, "data.py:5 prepare", "train.py:22 train_step"),
			},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"a helper of one of the ways": {
			[]wayCalls{
				kept(100, "data.py:5 prepare", "train.py:40 validate"), freed(100, "train.py:22 train_step"),
			},
			"prepare (data.py:5):growing train_step (train.py:22):churn",
		},
		"a helper and no helper": {
			[]wayCalls{
				kept(100, "data.py:5 prepare", "train.py:40 validate"), freed(100, "data.py:5 prepare", "train.py:25 train_step"),
				freed(100, "train.py:22 train_step", "train.py:60 main"),
			},
			"train_step (train.py:22):churn train_step (train.py:25):churn validate (train.py:40):growing",
		},
		"two helpers": {
			[]wayCalls{
				kept(15, "data.py:5 one", "train.py:40 validate"), freed(15, "data.py:5 one", "train.py:22 train_step"),
				kept(15, "data.py:9 two", "train.py:40 validate"), freed(15, "data.py:9 two", "train.py:22 train_step"),
			},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"too many lines of a helper": {
			[]wayCalls{
				kept(50, "data.py:1 prepare", "train.py:40 validate"), kept(50, "data.py:2 prepare", "train.py:40 validate"),
				kept(50, "data.py:3 prepare", "train.py:40 validate"), freed(50, "data.py:4 prepare", "train.py:22 train_step"),
				freed(50, "data.py:5 prepare", "train.py:22 train_step"),
			},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"recursion": {
			[]wayCalls{
				kept(10, nested(1, fromValidate...)...), kept(10, nested(2, fromValidate...)...), kept(10, nested(7, fromValidate...)...),
				freed(10, nested(1, fromTrain...)...), freed(10, nested(3, fromTrain...)...), freed(10, nested(4, fromTrain...)...),
			},
			"train_step (train.py:22):churn validate (train.py:40):growing",
		},
		"no caller in a stack": {[]wayCalls{kept(100), freed(100, fromTrain...)}, "whole:growing"},
		"library callers only": {
			[]wayCalls{
				kept(100, "/venv/lib/python3.12/site-packages/torch/a.py:1 a"), freed(100, "/venv/lib/python3.12/site-packages/torch/b.py:2 b"),
			},
			"whole:growing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			testclass.Unit(t)
			var rows []string
			for site, verdict := range verdicts(t, waysRecording(t, c.ways...), query.Options{}) {
				caller, split := strings.CutPrefix(site, featureSite+" from ")
				if !split {
					caller = "whole"
				}
				rows = append(rows, caller+":"+verdict)
			}
			slices.Sort(rows)
			if got := strings.Join(rows, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// keptAndFreed is a program in which validate leaks and train_step does not.
func keptAndFreed(t testing.TB) *analyzetest.TestRecording {
	return waysRecording(t, wayCalls{fromValidate, 100, 0}, wayCalls{fromTrain, 600, 100})
}

func TestWaysAddUpToTheSite(t *testing.T) {
	testclass.Unit(t)
	r, err := leaks.Run(keptAndFreed(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string]string{
		"live_count": "[100 0]", "allocs": "[100 600]", "frees": "[0 600]",
		"live_bytes": fmt.Sprint([]int64{100 * analyzetest.Mib, 0}),
	} {
		if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "leaks", column)); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
	for i, caller := range []string{"validate", "train_step"} {
		if !slices.ContainsFunc(r.Tables[0].Rows[i].Stack, func(f report.Frame) bool { return f.Func == caller }) {
			t.Errorf("row %d has another stack than that of %s", i, caller)
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing": 1, "churn": 1, "allocs": 700})
}

func TestOtherGroupsAreNotSplit(t *testing.T) {
	testclass.Unit(t)
	for by, want := range map[string]string{
		"stack":    "[" + featureSite + " #1 " + featureSite + " #2]",
		"function": "[make_features]",
		"size":     "[1048576 B]",
	} {
		got := slices.Sorted(maps.Keys(verdicts(t, keptAndFreed(t), query.Options{GroupBy: by})))
		if fmt.Sprint(got) != want {
			t.Errorf("--group-by %s: %s, want %s", by, got, want)
		}
	}
}

func TestSuppressedCallerLeavesTheSiteWhole(t *testing.T) {
	testclass.Unit(t)
	s := analyzetest.ParseSuppressions(t, "leak:^validate$")
	got := verdicts(t, keptAndFreed(t), query.Options{Suppressions: s})
	if want := map[string]string{featureSite: "churn"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRulesAndSummaryNameTheWay(t *testing.T) {
	testclass.Unit(t)
	const want = featureSite + " from validate (train.py:40)"
	hits, err := rules.Run(keptAndFreed(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if where := analyzetest.ColumnTexts(t, hits, "evidence", "where"); !slices.Contains(where, want) {
		t.Errorf("rules name %s, want %s", where, want)
	}
	r, err := summary.Run(keptAndFreed(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sites := analyzetest.ColumnTexts(t, r, "leaks", "site"); sites[0] != want {
		t.Errorf("the summary names %s, want %s", sites, want)
	}
}

func TestDiffPairsWays(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		after wayCalls
		want  string
	}{
		"validate leaks more": {wayCalls{fromValidate, 200, 0}, "[changed same]"},
		// The site is one row in the recording in which it does not separate.
		"validate is fixed": {wayCalls{fromValidate, 100, 100}, "[gone gone new]"},
	} {
		sides := make([]*diff.Side, 2)
		for i, validate := range []wayCalls{{fromValidate, 100, 0}, c.after} {
			var err error
			tl := waysRecording(t, validate, wayCalls{fromTrain, 600, 100}).Timeline()
			if sides[i], err = diff.NewSide(tl, leaks.Run, query.Options{}, diff.Divisor{}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := diff.Run(sides[0], sides[1], query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows := analyzetest.ColumnTexts(t, r, "leaks", "row")
		slices.Sort(rows)
		if got := fmt.Sprint(rows); got != c.want {
			t.Errorf("%s: rows %s, want %s", name, got, c.want)
		}
	}
}
