package kernels_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLinesOfBackward reports launches of an autograd thread for two lines of the program.
func TestLinesOfBackward(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.BackwardRecording(t)
	for _, want := range []string{analyzetest.CriticVia + " and 1 more", ""} {
		r, err := kernels.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		table := &r.Tables[0]
		if len(table.Rows) != 1 || table.Cell(&table.Rows[0], "launches") != int64(600) {
			t.Fatalf("rows %+v", table.Rows)
		}
		if has := report.ColumnIndex(table, "via") >= 0; has != (want != "") {
			t.Fatalf("the table has the column: %v", has)
		} else if has && table.Cell(&table.Rows[0], "via") != want {
			t.Errorf("via %v, want %s", table.Cell(&table.Rows[0], "via"), want)
		}
		for _, row := range recording.Rows {
			row.ViaStackID = 0
		}
	}
}
