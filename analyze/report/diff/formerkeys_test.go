package diff_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/operations"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFormerKeysOfChanges compares two recordings. The change of a column with a former key has a former key, too.
func TestFormerKeysOfChanges(t *testing.T) {
	testclass.Unit(t)
	side := func(seed uint64) *diff.Side {
		g := gpuprogram.Run(seed, gpuprogram.Plan{
			Operations: 500,
			Processes:  1,
			Threads:    1,
			Streams:    1,
			Kernels:    2,
			MeanNs:     20_000,
			PaceNs:     10_000,
			Full:       true,
		})
		s, err := diff.NewSide(g.Record(t).Timeline(), operations.Run, query.Options{}, diff.Divisor{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r, err := diff.Run(side(1), side(2), query.Options{Sort: "works_change"})
	if err != nil {
		t.Fatal(err)
	}
	value, ok, known := r.FindNumber("operations_after")
	former, formerOK, formerKnown := r.FindNumber("works_after")
	if value != former || !ok || !formerOK || !known || !formerKnown || value == 0 {
		t.Errorf("operations_after is %v, works_after %v", value, former)
	}
}
