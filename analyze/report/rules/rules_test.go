package rules_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// checked returns the report of rules about a synthetic recording.
func checked(t *testing.T, recording *analyzetest.TestRecording, opt rules.Options) *report.Report {
	t.Helper()
	tl := recording.Timeline()
	tl.Rec.Path = "run.parquet"
	r, err := rules.RunWithOptions(tl, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNoRuleFiresOnSteadyTraining(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	r := checked(t, recording, rules.Options{})
	if n := len(r.Tables[0].Rows); n > 0 {
		t.Errorf("%d hits:\n%s", n, analyzetest.RenderReport(t, r, render.Options{}))
	}
	analyzetest.CheckNumbers(
		t,
		r,
		map[string]float64{
			"hits":     0,
			"problems": 0,
			"rules_checked": float64(
				len(rules.AllRules()) - 14,
			), // they need GPU times, or rows of class host, collective or arguments
			"growing_site": 0,
		},
	)
	// No rule may fire if gpurec attached late, if NVML samples are missing, or if the calls that
	// pinned memory were not recorded: the copies still return at once.
	for name, change := range map[string]func(*analyzetest.TestRecording){
		"late": func(recording *analyzetest.TestRecording) {
			recording.RemoveRows(func(r *format.Row) bool { return r.Name == "cuInit" || r.MemoryKind == format.MemoryHost })
		},
		"no NVML": func(recording *analyzetest.TestRecording) {
			recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindNVML })
		},
		"no launch": func(recording *analyzetest.TestRecording) {
			recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindLaunch })
		},
		"nothing": func(recording *analyzetest.TestRecording) { recording.Rows = nil },
	} {
		recording := analyzetest.SteadyRecording(t)
		change(recording)
		if r := checked(t, recording, rules.Options{}); len(r.Tables[0].Rows) > 0 {
			t.Errorf("%s:\n%s", name, analyzetest.RenderReport(t, r, render.Options{}))
		}
	}
}

// TestEveryRuleFires has, for each rule, a recording in which the rule fires and a near miss in
// which it does not.
func TestEveryRuleFires(t *testing.T) {
	testclass.Unit(t)
	cases := rulecases.AllCases()
	for _, rule := range rules.AllRules() {
		c, ok := cases[rule.ID]
		if strings.HasPrefix(rule.ID, "exposed-") {
			continue // TestRulesUseGPUTimes
		}
		if !ok {
			t.Errorf("%s has no case", rule.ID)
			continue
		}
		t.Run(rule.ID, func(t *testing.T) {
			recording := analyzetest.SteadyRecording(t)
			c.Fires(recording)
			r := checked(t, recording, rules.Options{})
			names := analyzetest.ColumnTexts(t, r, "hits", "rule")
			i := slices.Index(names, rule.ID)
			if i < 0 {
				t.Fatalf(
					"does not fire; there are %v\n%s",
					names,
					analyzetest.RenderReport(t, r, render.Options{Width: 150}),
				)
			}
			for _, name := range names {
				if name != rule.ID && !slices.Contains(strings.Fields(c.Also), name) {
					t.Errorf("%s fires too:\n%s", name, analyzetest.RenderReport(t, r, render.Options{}))
				}
			}
			if where := analyzetest.ColumnTexts(t, r, "hits", "where")[i]; !strings.HasPrefix(where, c.Where) {
				t.Errorf("where %s, want %s", where, c.Where)
			}
			if severity := analyzetest.ColumnTexts(t, r, "hits", "severity")[i]; severity != c.Severity {
				t.Errorf("severity %s, want %s", severity, c.Severity)
			}
			if !slices.Contains(analyzetest.ColumnTexts(t, r, "evidence", "rule"), rule.ID) {
				t.Error("no evidence")
			}
			if advice := analyzetest.ColumnTexts(t, r, "hits", "advice")[i]; advice == "" ||
				strings.Count(advice, ". ") > 1 {
				t.Errorf("advice %q", advice)
			}
			if n, ok, _ := r.FindNumber(strings.ReplaceAll(rule.ID, "-", "_")); !ok || n < 1 {
				t.Errorf("--fail-on sees %v", n)
			}

			recording = analyzetest.SteadyRecording(t)
			c.Misses(recording)
			r = checked(t, recording, rules.Options{Rules: []string{rule.ID}})
			if len(r.Tables[0].Rows) > 0 {
				t.Errorf("the near miss fires:\n%s", analyzetest.RenderReport(t, r, render.Options{}))
			}
		})
	}
}

func TestConfidenceOfRules(t *testing.T) {
	testclass.Unit(t)
	launchBound := func(recording *analyzetest.TestRecording) { rulecases.AllCases()["launch-bound"].Fires(recording) }
	for name, c := range map[string]struct {
		rule   string
		change func(*analyzetest.TestRecording)
		level  string
		reason string
	}{
		"complete recording": {"launch-bound", launchBound, "high", ""},
		"returns of some launches are not known": {"launch-bound", func(recording *analyzetest.TestRecording) {
			launchBound(recording)
			for i, r := range recording.Rows {
				if r.Kernel == "small_step" && i%2 == 0 {
					r.Flags, r.DurNs = format.FlagNoReturn, 0
				}
			}
		}, "medium", "of the launches was not recorded"},
		"no samples": {"launch-bound", func(recording *analyzetest.TestRecording) {
			launchBound(recording)
			recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindNVML })
		}, "low", "no samples"},
		"a few calls lost": {"launch-bound", func(recording *analyzetest.TestRecording) {
			launchBound(recording)
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch + analyzetest.Second, Value: 2000})
		}, "medium", "2,000 calls lost"},
		"many calls lost": {"launch-bound", func(recording *analyzetest.TestRecording) {
			launchBound(recording)
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch + analyzetest.Second, Value: 20000})
		}, "low", "20,000 calls lost"},
		"stacks inferred badly": {"launch-bound", func(recording *analyzetest.TestRecording) {
			launchBound(recording)
			recording.AddRow(format.Row{Kind: format.KindNote, Name: format.NoteStackInference, Message: `{"class":"launch","inferred":1000,"checked":100,"wrong":5,"wrong_estimated":50}`})
		}, "medium", "5% of inferred stacks"},
		"pageable, recorded from the start": {"memcpy-async-pageable", func(recording *analyzetest.TestRecording) {
			rulecases.AllCases()["memcpy-async-pageable"].Fires(recording)
		}, "high", ""},
		"pageable, gpurec attached later": {"memcpy-async-pageable", func(recording *analyzetest.TestRecording) {
			rulecases.AllCases()["memcpy-async-pageable"].Fires(recording)
			recording.RemoveRows(func(r *format.Row) bool { return r.Name == "cuInit" })
		}, "medium", "began after the program"},
		"a free with calls lost": {"invalid-free", func(recording *analyzetest.TestRecording) {
			rulecases.AllCases()["invalid-free"].Fires(recording)
			recording.AddRow(format.Row{Kind: format.KindLost, Name: report.LostMemoryClass, StartNs: analyzetest.Epoch + analyzetest.Second, Value: 3})
		}, "medium", "3 lost memory calls"},
		"few samples": {"low-sm-activity", func(recording *analyzetest.TestRecording) {
			rulecases.AllCases()["low-sm-activity"].Fires(recording)
			recording.RemoveRows(func(r *format.Row) bool {
				return r.Kind == format.KindNVML && (r.StartNs-analyzetest.Epoch)%(10*analyzetest.Second) != 0
			})
		}, "medium", "only 5 samples"},
		"too few samples": {"low-sm-activity", func(recording *analyzetest.TestRecording) {
			rulecases.AllCases()["low-sm-activity"].Fires(recording)
			recording.RemoveRows(func(r *format.Row) bool {
				return r.Kind == format.KindNVML && (r.StartNs-analyzetest.Epoch)%(20*analyzetest.Second) != 0
			})
		}, "", ""},
	} {
		recording := analyzetest.SteadyRecording(t)
		c.change(recording)
		r := checked(t, recording, rules.Options{Rules: []string{c.rule}})
		level, reasons := strings.Join(
			analyzetest.ColumnTexts(t, r, "hits", "confidence"),
			"",
		), strings.Join(
			analyzetest.ColumnTexts(t, r, "hits", "confidence_reasons"),
			"",
		)
		if level != c.level || !strings.Contains(reasons, c.reason) || c.reason == "" && len(reasons) > len("[]") {
			t.Errorf("%s: %s %s", name, level, reasons)
		}
	}
}

// TestSeverityOfRules checks that the severity of a hit depends on its consequences.
func TestSeverityOfRules(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(*analyzetest.TestRecording)
		want   string // hits
	}{
		"work in a broken context": {func(recording *analyzetest.TestRecording) {
			for i := range int64(5) {
				recording.AddFullLaunch(59_950*analyzetest.Ms+i*analyzetest.Us, "after").Result = 700
			}
		}, "problem broken-context, problem unchecked-error"},
		"frees in a broken context": {func(recording *analyzetest.TestRecording) {
			for i := range int64(50) {
				recording.AddFree(59_950*analyzetest.Ms+i*analyzetest.Us, analyzetest.Us, 0x1000).Result = 700
			}
		}, "problem broken-context"},
		"corrected errors": {func(recording *analyzetest.TestRecording) {
			recording.AddNVMLSample(1, 30*analyzetest.Second, "ecc_corrected_volatile_errors", 5)
			recording.AddNVMLSample(1, 31*analyzetest.Second, "ecc_corrected_volatile_errors", 6)
		}, "notice gpu-health"},
		"a problem of an unused GPU": {func(recording *analyzetest.TestRecording) {
			recording.AddNVMLSample(0, 30*analyzetest.Second, "remapped_rows_failure", 1)
		}, "problem gpu-health"},
		"the power cap half of the time": {func(recording *analyzetest.TestRecording) {
			recording.ChangeSamples(catalog.MetricClockEventReasons, func(i int) float64 { return float64(4 * (i % 2)) })
		}, "info throttling"},
		"wild pointers, freed once": {func(recording *analyzetest.TestRecording) {
			recording.AddFree(30*analyzetest.Second, analyzetest.Us, 0x1000).Result = fault.ResultInvalidValue
		}, "notice invalid-free"},
		"a retry that succeeds": {func(recording *analyzetest.TestRecording) {
			recording.AddAlloc(30*analyzetest.Second, analyzetest.Us, 0, 20<<30).Result = calls.ResultOutOfMemory
			recording.AddAlloc(31*analyzetest.Second, analyzetest.Us, 0x700000000000, 20<<30)
			recording.AddFree(32*analyzetest.Second, analyzetest.Us, 0x700000000000)
		}, "notice out-of-memory"},
		"polling": {func(recording *analyzetest.TestRecording) {
			recording.Meta.EndNs = analyzetest.Epoch + 120*analyzetest.Second
			recording.AddEventQueryCount(10*analyzetest.Second, 110*analyzetest.Second, 110_000)
		}, "notice hang"},
	} {
		recording := analyzetest.SteadyRecording(t)
		c.change(recording)
		r := checked(t, recording, rules.Options{})
		var got []string
		for i, rule := range analyzetest.ColumnTexts(t, r, "hits", "rule") {
			got = append(got, analyzetest.ColumnTexts(t, r, "hits", "severity")[i]+" "+rule)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

// TestIdleBetweenSamples checks a GPU that each sample finds busy for a part of its time only. The graphics
// activity shows this, and the share of samples without activity does not.
func TestIdleBetweenSamples(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		activePct float64
		hits      []string
	}{{10, []string{"gpu-idle"}}, {81, nil}} {
		recording := analyzetest.SteadyRecording(t)
		recording.ChangeSamples(catalog.MetricSMActive, analyzetest.ConstantSamples(c.activePct/2))
		for at := analyzetest.Second; at <= 60*analyzetest.Second; at += analyzetest.Second / 2 {
			recording.AddNVMLSample(1, at, catalog.MetricGraphicsActive, c.activePct)
		}
		r := checked(t, recording, rules.Options{})
		if got := analyzetest.ColumnTexts(t, r, "hits", "rule"); !slices.Equal(got, c.hits) {
			t.Errorf("%v %% active: %v fire, want %v", c.activePct, got, c.hits)
		}
	}
}

func TestIdleWithoutSamples(t *testing.T) {
	testclass.Unit(t)
	for name, waits := range map[string]bool{"the thread waits for the GPU": true, "the thread loads data": false} {
		recording := analyzetest.NewTestRecording(t)
		for i := range int64(200) {
			recording.AddFullLaunch(i*200*analyzetest.Ms, "gemm")
			if waits {
				recording.AddSync("cuStreamSynchronize", i*200*analyzetest.Ms+analyzetest.Ms, 190*analyzetest.Ms, 7, 0)
			}
		}
		names := analyzetest.ColumnTexts(t, checked(t, recording, rules.Options{}), "hits", "rule")
		if slices.Contains(names, "gpu-idle") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

// TestLaunchBoundNeedsNoWaits checks that launch-bound does not fire for a process that waits for
// the GPU: launching is not its bottleneck, however low the SM activity is.
func TestLaunchBoundNeedsNoWaits(t *testing.T) {
	testclass.Unit(t)
	for name, waits := range map[string]bool{"it waits": true, "it does not": false} {
		recording := analyzetest.SteadyRecording(t)
		rulecases.AllCases()["launch-bound"].Fires(recording)
		if waits {
			for i := range int64(40) {
				recording.AddSync(
					"cuStreamSynchronize",
					2*analyzetest.Second+i*100*analyzetest.Ms,
					50*analyzetest.Ms,
					7,
					0,
				)
			}
		}
		names := analyzetest.ColumnTexts(t, checked(t, recording, rules.Options{}), "hits", "rule")
		if slices.Contains(names, "launch-bound") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

func TestRuleFilter(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	r := checked(t, recording, rules.Options{Rules: []string{"growing-site", "hang"}})
	if got := strings.Join(analyzetest.ColumnTexts(t, r, "hits", "rule"), " "); got != "growing-site" {
		t.Errorf("hits %s", got)
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"rules_checked": 2, "growing_site": 1, "hang": 0})
	if _, ok, isKnown := r.FindNumber("xid"); ok || !isKnown {
		t.Error("a rule that was not checked has a number")
	}
	_, err := rules.RunWithOptions(recording.Timeline(), rules.Options{Rules: []string{"groing-site"}})
	var unknown *rules.UnknownRuleError
	if !errors.As(err, &unknown) ||
		!strings.Contains(err.Error(), `no rule "groing-site"; the rules are xid, broken-context, out-of-memory`) {
		t.Error(err)
	}
	r = checked(
		t,
		analyzetest.TrainingRecording(t),
		rules.Options{Options: query.Options{Suppressions: analyzetest.ParseSuppressions(t, "leak:log_metrics")}},
	)
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing_site": 0})
	if got := analyzetest.ColumnTexts(t, r, "suppressions_used", "template"); fmt.Sprint(got) != "[log_metrics]" {
		t.Errorf("suppressions used %s", got)
	}
	r = checked(
		t,
		analyzetest.TrainingRecording(t),
		rules.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{7}}}},
	)
	if r.NoMatch == nil || len(r.Tables[0].Rows) > 0 {
		t.Errorf("a filter for another process leaves hits, or no NoMatch: %v", r.NoMatch)
	}
}

// TestHangNamesTheMissingRank checks that a hit of several hanging ranks names the rank that they
// wait for, although that rank does not hang.
func TestHangNamesTheMissingRank(t *testing.T) {
	testclass.Unit(t)
	r := checked(t, analyzetest.FourRanksRecording(t), rules.Options{Rules: []string{"hang"}})
	if what := analyzetest.ColumnTexts(t, r, "hits", "what")[0]; what != "hanging: 3 processes, for up to 20.00s; check "+
		"process 44 train: its last kernel launch was 2.10s before that of the first of the 3 others" {
		t.Error(what)
	}
	if where := analyzetest.ColumnTexts(t, r, "evidence", "where"); len(where) != 4 || where[3] != "process 44 train" {
		t.Errorf("evidence %v", where)
	}
}

func TestSuppressionsHideExitLeaks(t *testing.T) {
	testclass.Unit(t)
	for name, want := range map[string]float64{"somewhere_else": 1, "train_step": 0} {
		recording := analyzetest.SteadyRecording(t)
		rulecases.AllCases()["exit-leak"].Fires(recording)
		r := checked(
			t,
			recording,
			rules.Options{Options: query.Options{Suppressions: analyzetest.ParseSuppressions(t, "leak:"+name)}},
		)
		analyzetest.CheckNumbers(t, r, map[string]float64{"exit_leak": want})
	}
}

func TestRulesAreDescribed(t *testing.T) {
	testclass.Unit(t)
	seen := make(map[string]bool)
	for _, r := range rules.AllRules() {
		if seen[r.ID] || r.About == "" || r.Report == "" || strings.ToLower(r.ID) != r.ID ||
			strings.ContainsAny(r.ID, "_ ") {
			t.Errorf("rule %+v", r)
		}
		seen[r.ID] = true
	}
}

func TestShellWord(t *testing.T) {
	testclass.Unit(t)
	for path, want := range map[string]string{"run.parquet": "run.parquet", "/a b": "'/a b'", "it's": `'it'\''s'`, "": "''", "$(x)": "'$(x)'"} {
		if got := rules.QuoteShellWord(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

func TestRulesGoldens(t *testing.T) {
	testclass.Unit(t)
	analyzetest.CompareGoldenReports(
		t,
		checked(t, rulecases.TroubledRecording(t), rules.Options{Options: query.Options{Top: 20, MaxFrames: 12}}),
		"rules",
		130,
	)
	analyzetest.CompareGolden(
		t,
		"rules.steady.table",
		analyzetest.RenderReport(
			t,
			checked(t, analyzetest.SteadyRecording(t), rules.Options{}),
			render.Options{Width: 130},
		),
	)
	tl := rulecases.TroubledRecording(t).Timeline()
	r, err := summary.Run(tl, query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGolden(t, "rules.summary.table", analyzetest.RenderReport(t, r, render.Options{Width: 130}))
}
