package hosttime_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPartsOfRandomRowsAddUp checks that the parts of any span add up to it, whatever the rows are.
func TestPartsOfRandomRowsAddUp(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		number := func() int64 {
			switch r.IntN(12) {
			case 0:
				return math.MinInt64 / 4
			case 1:
				return math.MaxInt64 / 4
			case 2:
				return -r.Int64N(analyzetest.Second)
			}
			return r.Int64N(3 * analyzetest.Second)
		}
		var rows []format.Row
		for range 200 {
			kind := []string{format.KindWait, format.KindCPUSample, format.KindGC, format.KindHost}[r.IntN(4)]
			name := []string{format.StateRunnable, format.StateSleeping, "?"}[r.IntN(3)]
			if kind == format.KindHost {
				name = []string{format.HostRunning, format.HostRunnable, format.HostThrottledNs}[r.IntN(3)]
			}
			row := hostRow(kind, name, number(), number())
			row.Value, row.StackID = float64(number()), r.Int32N(5)
			if r.IntN(20) == 0 {
				row.Value = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
			}
			row.Message = []string{
				`{"reason":"gil"}`, `{"reason":7}`, "", `{"reason":"poll"}`, `{"ended_by":"thread"}`,
				`{"reason":"condition","ended_by":"sender"}`, `{"reason":"lock","ended_by":"signal","owner_pid":42,"owner_tid":44}`,
			}[r.IntN(7)]
			row.Tid += r.Int32N(4)
			row.WakerPid, row.WakerTid, row.RanNs = row.Pid, thread.Tid+r.Int32N(5), number()
			row.Flags = r.Int32N(4)
			if name == format.HostThrottledNs {
				row.Tid = 0
			}
			rows = append(rows, row)
		}
		h := historyOf(t, rows)
		for range 200 {
			from := analyzetest.Epoch + r.Int64N(3*analyzetest.Second)
			to := from + 1 + r.Int64N(analyzetest.Second)
			sum := int64(0)
			for _, p := range h.Explain(thread.Pid, thread.Tid, from, to) {
				sum += p.Ns
				if p.Ns < 0 || p.CertainNs < 0 || p.CertainNs > p.Ns {
					t.Fatalf("seed %d: part %+v", seed, p)
				}
			}
			if sum != to-from {
				t.Fatalf("seed %d: the parts of %d ns add up to %d ns", seed, to-from, sum)
			}
		}
	}
}
