package render

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestHeadingOfARowWithoutLabel names a row whose last column is absent by its first text.
func TestHeadingOfARowWithoutLabel(t *testing.T) {
	testclass.Unit(t)
	table := report.Table{Columns: []report.Column{
		{Key: "pid", Unit: report.UnitID},
		{Key: "owner", Title: "OWNER", Unit: report.UnitText},
		{Key: "pool", Title: "POOL", Unit: report.UnitText},
		{Key: "blocks", Unit: report.UnitCount},
		{Key: "segments", Unit: report.UnitCount},
	}}
	for _, c := range []struct {
		cells []any
		want  any
	}{
		{[]any{int64(1), "driver", nil, int64(2), nil}, "driver"},
		{[]any{int64(1), "PyTorch", "default", int64(2), int64(3)}, int64(3)},
		{[]any{int64(1), nil, nil, nil, nil}, nil},
	} {
		if got := headingLabel(&table, &report.Row{Cells: c.cells}); got != c.want {
			t.Errorf("cells %v: %v, want %v", c.cells, got, c.want)
		}
	}
}
