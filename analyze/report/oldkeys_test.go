package report_test

import (
	"errors"
	"testing"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFormerKeys sorts a table and tests a condition by the former key of a column. Errors list new keys only.
func TestFormerKeys(t *testing.T) {
	testclass.Unit(t)
	column := report.Column{Key: "operations", OldKey: "works", Title: "OPERATIONS", Unit: report.UnitCount}
	table := report.Table{Columns: []report.Column{column}}
	for _, n := range []int64{2, 7} {
		table.Rows = append(table.Rows, report.Row{Cells: []any{n}})
	}
	for _, key := range []string{"operations", "works"} {
		if err := table.SortAndCut(key, 1); err != nil || table.Rows[0].Cells[0] != int64(7) {
			t.Errorf("sorted by %s: %v, %v", key, table.Rows, err)
		}
	}
	var unknown *report.SortError
	if err := table.SortAndCut("pauses", 0); !errors.As(err, &unknown) || len(unknown.Known) != 1 {
		t.Errorf("an unknown key: %v", err)
	}

	r := &report.Report{Totals: []report.Fact{{Column: column, Value: int64(3)}}}
	for _, text := range []string{"operations==3", "works==3"} {
		c, err := report.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		if holds, _, err := c.Holds(r); !holds || err != nil {
			t.Errorf("%s: %t, %v", text, holds, err)
		}
	}
	if names := r.NumberNames(); len(names) == 0 || names[0] != "operations" {
		t.Errorf("the numbers are %q", names)
	}
}
