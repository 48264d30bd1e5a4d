package memory_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLinesOfBackward reports holders of memory that an autograd thread allocated for two lines of the program.
func TestLinesOfBackward(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.BackwardRecording(t)
	r, err := memory.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	held := make(map[any]any)
	for i := range r.Tables {
		table := &r.Tables[i]
		if table.Name != "holders" {
			continue
		}
		for k := range table.Rows {
			held[table.Cell(&table.Rows[k], "via")] = table.Cell(&table.Rows[k], "bytes")
		}
	}
	if len(held) != 2 || held[analyzetest.ModelVia] != 2*analyzetest.Mib ||
		held[analyzetest.CriticVia] != 100*analyzetest.Mib && held[analyzetest.CriticVia] != 99*analyzetest.Mib {
		t.Errorf("held %v", held)
	}
}
