package report_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestConditions(t *testing.T) {
	testclass.Unit(t)
	r, err := leaks.Run(analyzetest.TrainingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"growing>0":                             true,
		"growing > 1":                           false,
		"growing==1 && retained==1":             true,
		"growing==1 && retained==2":             false,
		"growing>5 || live_bytes>1GiB":          true,
		"growing>5 && lost_events>0 || churn=1": true,
		"live_bytes>100MiB":                     true,
		"live_bytes<=100 MiB":                   false,
		"lost_events!=0":                        false,
		"oom_in_ns<1h":                          true,
		"oom_in_ns<10min":                       false,
		"truncated_tail==1":                     false,
		"unsymbolized_frames_pct>=0.5%":         false,
	} {
		c, err := report.ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, because, err := c.Holds(r)
		if err != nil || got != want || got != (because != "") {
			t.Errorf("%s: got %v (%s), %v", text, got, because, err)
		}
	}
}

func TestConditionsThatAreWrong(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]string{
		"":               "has no comparison",
		"growing":        "has no comparison",
		"growing>":       "not a number",
		"growing>many":   "not a number",
		"growing>1 pint": "unknown unit",
		"growing!1":      "no operator",
		">1":             "not a valid name",
		"Growing>1":      "not a valid name",
		"growing>1 &&":   "has no comparison",
		"growing>1e999":  "not a number",
		"growing>NaN":    "not a number",
	} {
		if _, err := report.ParseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c, err := report.ParseCondition("growng>0")
	if err != nil {
		t.Fatal(err)
	}
	var unknown *report.UnknownNameError
	if _, _, err := c.Holds(
		&report.Report{},
	); !errors.As(err, &unknown) ||
		!strings.Contains(err.Error(), "lost_events") {
		t.Errorf("unknown name: %v", err)
	}
}

func TestAnUnknownNumberFulfilsNothing(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAlloc(1, 1, 0x1000, 64)
	r, err := leaks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"oom_in_ns<1h", "oom_in_ns>=0", "oom_in_ns!=5"} {
		c, err := report.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		if holds, _, err := c.Holds(r); holds || err != nil {
			t.Errorf("%s holds without NVML samples (%v)", text, err)
		}
	}
}

func FuzzFailOn(f *testing.F) {
	for _, s := range []string{
		"growing>0",
		"live_bytes>100MiB || lost_events>0",
		"a>=1&&b<2",
		"x==1.5e3%",
		"||",
		"=",
		"a>.",
		"a>1\x00",
	} {
		f.Add(s)
	}
	testReport := new(report.Report)
	for _, c := range leaks.LeakTotalColumns {
		testReport.Totals = append(testReport.Totals, report.Fact{Column: c, Value: int64(1)})
	}
	testReport.Totals[len(testReport.Totals)-1].Value = nil // unknown
	f.Fuzz(func(t *testing.T, text string) {
		c, err := report.ParseCondition(text)
		if (err == nil) == (c == nil) {
			t.Fatalf("condition %v, error %v", c, err)
		}
		if c != nil {
			holds, because, err := c.Holds(testReport)
			if err != nil && (holds || because != "") {
				t.Fatal("a result and an error")
			}
		}
	})
}
