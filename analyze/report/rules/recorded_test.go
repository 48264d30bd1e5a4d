package rules_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestEveryRuleDeclaresItsClasses fails for a new rule that is neither in NeededEventClasses nor in
// the list of this test.
func TestEveryRuleDeclaresItsClasses(t *testing.T) {
	testclass.Unit(t)
	// Rules that check calls of any class, or NVML samples.
	free := []string{"xid", "broken-context", "unchecked-error", "gpu-health", "throttling", "change"}
	for _, r := range rules.AllRules() {
		_, needs := rules.NeededEventClasses[r.ID]
		if needs == slices.Contains(free, r.ID) {
			t.Errorf("%s must be in NeededEventClasses, or in the list of this test", r.ID)
		}
	}
}

// TestReportsRefuseMissingClasses runs every report on recordings that lack some classes of calls.
func TestReportsRefuseMissingClasses(t *testing.T) {
	testclass.Unit(t)
	reports := map[string]func(*timeline.Timeline, query.Options) error{
		"kernels": func(tl *timeline.Timeline, o query.Options) error { _, err := kernels.Run(tl, o); return err },
		"copies":  func(tl *timeline.Timeline, o query.Options) error { _, err := copies.Run(tl, o); return err },
		"sync":    func(tl *timeline.Timeline, o query.Options) error { _, err := waits.Run(tl, o); return err },
		"gaps": func(tl *timeline.Timeline, o query.Options) error {
			_, err := gaps.RunWithOptions(tl, gaps.Options{Options: o})
			return err
		},
		"hang": func(tl *timeline.Timeline, o query.Options) error {
			_, err := hang.RunWithOptions(tl, hang.Options{Options: o})
			return err
		},
		"leaks": func(tl *timeline.Timeline, o query.Options) error { _, err := leaks.Run(tl, o); return err },
		"memory": func(tl *timeline.Timeline, o query.Options) error {
			_, err := memory.RunWithOptions(tl, memory.Options{Options: o})
			return err
		},
		"oom":     func(tl *timeline.Timeline, o query.Options) error { _, err := oom.Run(tl, o); return err },
		"api":     func(tl *timeline.Timeline, o query.Options) error { _, err := api.Run(tl, o); return err },
		"summary": func(tl *timeline.Timeline, o query.Options) error { _, err := summary.Run(tl, o); return err },
	}
	for _, c := range []struct {
		classes []string
		refused []string
	}{
		{nil, nil},
		{[]string{format.RecordMemory}, []string{"copies", "gaps", "hang", "kernels", "sync"}},
		{[]string{format.RecordAllocator}, []string{"copies", "gaps", "hang", "kernels", "memory", "oom", "sync"}},
		{[]string{format.RecordLaunch, format.RecordSync}, []string{"copies", "gaps", "leaks", "memory", "oom"}},
		{[]string{format.RecordCopy, format.RecordLaunch, format.RecordSync}, []string{"leaks", "memory", "oom"}},
	} {
		recording := analyzetest.SteadyRecording(t)
		recording.Meta.Classes = c.classes
		tl := recording.Timeline()
		var refused []string
		for name, report := range reports {
			var missing *quality.MissingClassError
			if err := report(tl, query.Options{}); errors.As(err, &missing) && missing.Report == name {
				refused = append(refused, name)
			} else if err != nil {
				t.Errorf("%v: %s: %v", c.classes, name, err)
			}
		}
		if slices.Sort(refused); !slices.Equal(refused, c.refused) {
			t.Errorf("classes %v: %v are refused, want %v", c.classes, refused, c.refused)
		}
	}
}

// TestRulesWithoutTheirCallsAreNotChecked checks that a rule without recorded calls has no number,
// not 0: the missing calls are no clean result.
func TestRulesWithoutTheirCallsAreNotChecked(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	recording.Meta.Classes = []string{format.RecordMemory}
	r := checked(t, recording, rules.Options{})
	values := make(map[string]any)
	for _, f := range r.Facts {
		values[f.Key] = f.Value
	}
	if values["gpu_idle"] != nil || values["growing_site"] == nil {
		t.Errorf("gpu_idle %v, growing_site %v: want absent and a number", values["gpu_idle"], values["growing_site"])
	}
	if n := values["rules_checked"].(int64); n >= int64(len(rules.AllRules())) || n == 0 {
		t.Errorf("rules_checked is %d, want fewer than all rules but more than 0", n)
	}
}
