package analyze

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
)

// checked applies rules to a made-up recording.
func checked(t *testing.T, tp *tape, opt rules.Options) *report.Report {
	t.Helper()
	tl := tp.timeline()
	tl.Rec.Path = "run.parquet"
	r, err := rules.Run(tl, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNothingFiresOnASteadyTraining(t *testing.T) {
	tp := steady(t)
	r := checked(t, tp, rules.Options{})
	if n := len(r.Tables[0].Rows); n > 0 {
		t.Errorf("%d hits:\n%s", n, rendered(t, r, render.Options{}))
	}
	numbers(t, r, map[string]float64{"hits": 0, "problems": 0, "rules_checked": float64(len(rules.All())), "growing_site": 0})
	// Nor if the recorder came late, NVML was off, or memory was pinned out of sight: the copies return at once.
	for name, change := range map[string]func(*tape){
		"late": func(tp *tape) {
			tp.without(func(r *format.Row) bool { return r.Name == "cuInit" || r.MemoryKind == format.MemoryHost })
		},
		"no NVML":   func(tp *tape) { tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML }) },
		"no launch": func(tp *tape) { tp.without(func(r *format.Row) bool { return r.Kind == format.KindLaunch }) },
		"nothing":   func(tp *tape) { tp.rows = nil },
	} {
		tp := steady(t)
		change(tp)
		if r := checked(t, tp, rules.Options{}); len(r.Tables[0].Rows) > 0 {
			t.Errorf("%s:\n%s", name, rendered(t, r, render.Options{}))
		}
	}
}

func TestEveryRuleFiresAndNearlyDoesNot(t *testing.T) {
	cases := ruleCases()
	for _, rule := range rules.All() {
		c, ok := cases[rule.Id]
		if !ok {
			t.Errorf("%s has no case", rule.Id)
			continue
		}
		t.Run(rule.Id, func(t *testing.T) {
			tp := steady(t)
			c.fires(tp)
			r := checked(t, tp, rules.Options{})
			names := cells(t, r, "hits", "rule")
			i := slices.Index(names, rule.Id)
			if i < 0 {
				t.Fatalf("does not fire; there are %v\n%s", names, rendered(t, r, render.Options{Width: 150}))
			}
			for _, name := range names {
				if name != rule.Id && !slices.Contains(strings.Fields(c.also), name) {
					t.Errorf("%s fires too:\n%s", name, rendered(t, r, render.Options{}))
				}
			}
			if where := cells(t, r, "hits", "where")[i]; !strings.HasPrefix(where, c.where) {
				t.Errorf("blames %s, want %s", where, c.where)
			}
			if severity := cells(t, r, "hits", "severity")[i]; severity != c.severity {
				t.Errorf("severity %s, want %s", severity, c.severity)
			}
			if !slices.Contains(cells(t, r, "evidence", "rule"), rule.Id) {
				t.Error("no evidence")
			}
			if advice := cells(t, r, "hits", "advice")[i]; advice == "" || strings.Count(advice, ". ") > 1 {
				t.Errorf("advice %q", advice)
			}
			if n, ok, _ := r.Number(strings.ReplaceAll(rule.Id, "-", "_")); !ok || n < 1 {
				t.Errorf("--fail-on sees %v", n)
			}

			tp = steady(t)
			c.misses(tp)
			r = checked(t, tp, rules.Options{Rules: []string{rule.Id}})
			if len(r.Tables[0].Rows) > 0 {
				t.Errorf("the near miss fires:\n%s", rendered(t, r, render.Options{}))
			}
		})
	}
}

func TestConfidenceOfRules(t *testing.T) {
	launchBound := func(tp *tape) { ruleCases()["launch-bound"].fires(tp) }
	for name, c := range map[string]struct {
		rule   string
		change func(*tape)
		level  string
		reason string
	}{
		"as it should be": {"launch-bound", launchBound, "high", ""},
		"returns of some launches are not known": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			for i, r := range tp.rows {
				if r.Kernel == "small_step" && i%2 == 0 {
					r.Flags, r.DurNs = format.FlagNoReturn, 0
				}
			}
		}, "medium", "only the entry is known"},
		"no samples": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML })
		}, "low", "no samples"},
		"a few calls lost": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + second, Value: 2000})
		}, "medium", "2,000 calls lost"},
		"many calls lost": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + second, Value: 20000})
		}, "low", "20,000 calls lost"},
		"stacks inferred badly": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindNote, Name: format.NoteStackInference, Message: `{"class":"launch","inferred":1000,"checked":100,"wrong":5,"wrong_estimated":50}`})
		}, "medium", "5% of inferred stacks"},
		"pageable, seen from the start": {"memcpy-async-pageable", func(tp *tape) { ruleCases()["memcpy-async-pageable"].fires(tp) }, "high", ""},
		"pageable, seen from later on": {"memcpy-async-pageable", func(tp *tape) {
			ruleCases()["memcpy-async-pageable"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Name == "cuInit" })
		}, "medium", "began after the program"},
		"a free with calls lost": {"invalid-free", func(tp *tape) {
			ruleCases()["invalid-free"].fires(tp)
			tp.add(format.Row{Kind: format.KindLost, Name: report.LostMemory, StartNs: epoch + second, Value: 3})
		}, "medium", "3 calls that allocate or free were lost"},
		"few samples": {"low-sm-activity", func(tp *tape) {
			ruleCases()["low-sm-activity"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML && (r.StartNs-epoch)%(10*second) != 0 })
		}, "medium", "only 5 samples"},
		"too few samples": {"low-sm-activity", func(tp *tape) {
			ruleCases()["low-sm-activity"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML && (r.StartNs-epoch)%(20*second) != 0 })
		}, "", ""},
	} {
		tp := steady(t)
		c.change(tp)
		r := checked(t, tp, rules.Options{Rules: []string{c.rule}})
		level, reasons := strings.Join(cells(t, r, "hits", "confidence"), ""), strings.Join(cells(t, r, "hits", "confidence_reasons"), "")
		if level != c.level || !strings.Contains(reasons, c.reason) || c.reason == "" && len(reasons) > len("[]") {
			t.Errorf("%s: %s %s", name, level, reasons)
		}
	}
}

// Of the same trouble, how bad it is depends on what came of it.
func TestSeverityOfRules(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tape)
		want   string // hits
	}{
		"work in a broken context": {func(tp *tape) {
			for i := range int64(5) {
				tp.big(59_950*ms+i*us, "after").Result = 700
			}
		}, "problem broken-context, problem unchecked-error"},
		"tidying up in a broken context": {func(tp *tape) {
			for i := range int64(50) {
				tp.free(59_950*ms+i*us, us, 0x1000).Result = 700
			}
		}, "problem broken-context"},
		"corrected errors": {func(tp *tape) {
			tp.nvml(1, 30*second, "ecc_corrected_volatile_errors", 5)
			tp.nvml(1, 31*second, "ecc_corrected_volatile_errors", 6)
		}, "notice gpu-health"},
		"trouble of a GPU that nobody used": {func(tp *tape) { tp.nvml(0, 30*second, "remapped_rows_failure", 1) }, "problem gpu-health"},
		"the power cap half of the time": {func(tp *tape) {
			tp.resample(catalog.MetricReasons, func(i int) float64 { return float64(4 * (i % 2)) })
		}, "info throttling"},
		"wild pointers, freed once": {func(tp *tape) { tp.free(30*second, us, 0x1000).Result = fault.ResultInvalidValue }, "notice invalid-free"},
		"memory that was had in the end": {func(tp *tape) {
			tp.alloc(30*second, us, 0, 20<<30).Result = calls.ResultOutOfMemory
			tp.alloc(31*second, us, 0x700000000000, 20<<30)
			tp.free(32*second, us, 0x700000000000)
		}, "notice out-of-memory"},
		"polling": {func(tp *tape) {
			tp.meta.EndNs = epoch + 120*second
			tp.counted(10*second, 110*second, 110_000)
		}, "notice hang"},
	} {
		tp := steady(t)
		c.change(tp)
		r := checked(t, tp, rules.Options{})
		var got []string
		for i, rule := range cells(t, r, "hits", "rule") {
			got = append(got, cells(t, r, "hits", "severity")[i]+" "+rule)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

// A GPU that idles is seen in the gaps alone where there is no NVML, if nobody waited for it.
func TestIdleWithoutSamples(t *testing.T) {
	for name, waits := range map[string]bool{"the thread waits for the GPU": true, "the thread loads data": false} {
		tp := newTape(t)
		for i := range int64(200) {
			tp.big(i*200*ms, "gemm")
			if waits {
				tp.synced("cuStreamSynchronize", i*200*ms+ms, 190*ms, 7, 0)
			}
		}
		names := cells(t, checked(t, tp, rules.Options{}), "hits", "rule")
		if slices.Contains(names, "gpu-idle") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

// A process that waits for the GPU is not held up by launching, however little of the GPU its kernels fill.
func TestLaunchBoundDoesNotWait(t *testing.T) {
	for name, waits := range map[string]bool{"it waits": true, "it does not": false} {
		tp := steady(t)
		ruleCases()["launch-bound"].fires(tp)
		if waits {
			for i := range int64(40) {
				tp.synced("cuStreamSynchronize", 2*second+i*100*ms, 50*ms, 7, 0)
			}
		}
		names := cells(t, checked(t, tp, rules.Options{}), "hits", "rule")
		if slices.Contains(names, "launch-bound") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

func TestRuleFilter(t *testing.T) {
	tp := training(t)
	r := checked(t, tp, rules.Options{Rules: []string{"growing-site", "hang"}})
	if got := strings.Join(cells(t, r, "hits", "rule"), " "); got != "growing-site" {
		t.Errorf("hits %s", got)
	}
	numbers(t, r, map[string]float64{"rules_checked": 2, "growing_site": 1, "hang": 0})
	if _, ok, isKnown := r.Number("xid"); ok || !isKnown {
		t.Error("a rule that was not checked has a number")
	}
	_, err := rules.Run(tp.timeline(), rules.Options{Rules: []string{"groing-site"}})
	var unknown *rules.UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), `no rule "groing-site"; there are xid, broken-context, hang`) {
		t.Error(err)
	}
	r = checked(t, training(t), rules.Options{Options: query.Options{Suppressions: parsedSuppressions(t, "leak:log_metrics")}})
	numbers(t, r, map[string]float64{"growing_site": 0})
	if got := cells(t, r, "suppressions_used", "template"); fmt.Sprint(got) != "[log_metrics]" {
		t.Errorf("suppressions used %s", got)
	}
	r = checked(t, training(t), rules.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{7}}}})
	if r.NoMatch == nil || len(r.Tables[0].Rows) > 0 {
		t.Errorf("nobody's hits: %v", r.NoMatch)
	}
}

// Of ranks that hang, the one that they wait for is named, although it does not hang.
func TestHangNamesTheRankThatIsMissing(t *testing.T) {
	r := checked(t, ranks(t), rules.Options{Rules: []string{"hang"}})
	if what := cells(t, r, "hits", "what")[0]; what != "hanging: 3 processes, for up to 20.00s; look at process 44 train: it launched its last kernel 2.10s before the first of the 3 others did" {
		t.Error(what)
	}
	if where := cells(t, r, "evidence", "where"); len(where) != 4 || where[3] != "process 44 train" {
		t.Errorf("evidence %v", where)
	}
}

func TestSuppressionsHideExitLeaks(t *testing.T) {
	for name, want := range map[string]float64{"somewhere_else": 1, "train_step": 0} {
		tp := steady(t)
		ruleCases()["exit-leak"].fires(tp)
		r := checked(t, tp, rules.Options{Options: query.Options{Suppressions: parsedSuppressions(t, "leak:"+name)}})
		numbers(t, r, map[string]float64{"exit_leak": want})
	}
}

func TestRulesAreDescribed(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range rules.All() {
		if seen[r.Id] || r.About == "" || r.Report == "" || strings.ToLower(r.Id) != r.Id || strings.ContainsAny(r.Id, "_ ") {
			t.Errorf("rule %+v", r)
		}
		seen[r.Id] = true
	}
}

func TestShellWord(t *testing.T) {
	for path, want := range map[string]string{"run.parquet": "run.parquet", "/a b": "'/a b'", "it's": `'it'\''s'`, "": "''", "$(x)": "'$(x)'"} {
		if got := rules.ShellWord(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

// troubled is a training with several kinds of trouble.
func troubled(t testing.TB) *tape {
	tp := steady(t)
	for _, name := range []string{"growing-site", "unchecked-error", "small-copies", "xid"} {
		ruleCases()[name].fires(tp)
	}
	tp.resample(catalog.MetricReasons, func(i int) float64 { return float64(32 * (i / 100)) })
	return tp
}

func TestRulesLookAsBefore(t *testing.T) {
	goldens(t, checked(t, troubled(t), rules.Options{Options: query.Options{Top: 20, MaxFrames: 12}}), "rules", 130)
	golden(t, "rules.steady.table", rendered(t, checked(t, steady(t), rules.Options{}), render.Options{Width: 130}))
	tl := troubled(t).timeline()
	r, err := summary.Run(tl, query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "rules.summary.table", rendered(t, r, render.Options{Width: 130}))
}
