package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/internal/testclass"
)

// changeSeverities are the severities of rule change for the faults of a ChangeJob.
var changeSeverities = map[string]string{
	"clock": "notice", "temperature": "notice", "nvlink errors": "notice", "step time": "info",
	"launch rate": "info", "memory": "info", "pcie": "info",
}

// TestChangeOfJobs runs rule change on jobs with each fault, and on jobs without one.
func TestChangeOfJobs(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(1) {
		for _, fault := range slices.Sorted(maps.Keys(changeSeverities)) {
			j := analyzetest.NewChangeJob(seed, fault, "noise")
			recording := j.Recording(t)
			r := checked(t, recording, rules.Options{Rules: []string{"change"}})
			severities := analyzetest.ColumnTexts(t, r, "hits", "severity")
			if !slices.Equal(severities, []string{changeSeverities[fault]}) {
				t.Errorf("%s, seed %d: hits %v\n%s", fault, seed, severities,
					analyzetest.RenderReport(t, r, render.Options{Width: 200}))
			}
		}
		for _, quiet := range analyzetest.QuietJobs {
			recording := analyzetest.NewChangeJob(seed, "", quiet).Recording(t)
			r := checked(t, recording, rules.Options{Rules: []string{"change"}})
			if hits := analyzetest.ColumnTexts(t, r, "hits", "what"); len(hits) > 0 {
				t.Errorf("%s, seed %d: %v", quiet, seed, hits)
			}
		}
	}
}

// TestChangeNamesTheCause checks the summary of a fall of the clock: the clocks, the reason, and the launch rate.
func TestChangeNamesTheCause(t *testing.T) {
	testclass.Unit(t)
	j := analyzetest.NewChangeJob(3, "clock", "noise")
	r := checked(t, j.Recording(t), rules.Options{Rules: []string{"change"}})
	summary := strings.Join(analyzetest.ColumnTexts(t, r, "hits", "what"), "")
	for _, part := range []string{
		"SM clock fell from 1,965 MHz to ", fmt.Sprintf(" at %.1f s", float64(j.AtNs/1e8+1)/10), "sw power cap began",
		"launch rate -",
	} {
		if !strings.Contains(summary, part) {
			t.Errorf("%q lacks %q", summary, part)
		}
	}
}
