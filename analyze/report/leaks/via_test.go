package leaks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/internal/testclass"
)

// runLeaks returns the table of leaks of a recording.
func runLeaks(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Table {
	t.Helper()
	r, err := leaks.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return &r.Tables[0]
}

// TestLinesOfBackwardAreSeparate reports memory that an autograd thread allocates at one site for two lines.
func TestLinesOfBackwardAreSeparate(t *testing.T) {
	testclass.Unit(t)
	for _, by := range []string{"site", "stack"} {
		table := runLeaks(t, analyzetest.BackwardRecording(t), query.Options{GroupBy: by, MaxFrames: 8})
		verdicts := make(map[any]any)
		for i := range table.Rows {
			row := &table.Rows[i]
			if name, _ := table.Cell(row, by).(string); !strings.HasPrefix(name, analyzetest.GradientSite) {
				t.Errorf("by %s: site %q", by, name)
			}
			via := table.Cell(row, "via")
			verdicts[via] = table.Cell(row, "verdict")
			if last := row.Stack[len(row.Stack)-1]; last.Func+" (train.cc:10)" != via {
				t.Errorf("by %s: the stack of %v ends in %s", by, via, last.Func)
			}
		}
		if len(table.Rows) != 2 || verdicts[analyzetest.ModelVia] != "churn" ||
			verdicts[analyzetest.CriticVia] != "growing" {
			t.Errorf("by %s: %d rows, verdicts %v", by, len(table.Rows), verdicts)
		}
		if !slices.Equal(table.Keys, []string{by, "via"}) {
			t.Errorf("by %s: keys %q", by, table.Keys)
		}
	}
}

// TestOtherGroupsHaveNoVia groups by what has no second site, and reports a recording without such sites.
func TestOtherGroupsHaveNoVia(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.BackwardRecording(t)
	byThread := runLeaks(t, recording, query.Options{GroupBy: "thread"})
	for _, r := range recording.Rows {
		r.ViaStackID = 0
	}
	for by, table := range map[string]*report.Table{"thread": byThread, "site": runLeaks(t, recording, query.Options{})} {
		if report.ColumnIndex(table, "via") >= 0 || len(table.Rows) != 1 || !slices.Equal(table.Keys, []string{by}) {
			t.Errorf(
				"by %s: %d rows, keys %q, column %d",
				by,
				len(table.Rows),
				table.Keys,
				report.ColumnIndex(table, "via"),
			)
		}
	}
}
