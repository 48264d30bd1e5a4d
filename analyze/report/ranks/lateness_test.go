package ranks_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLatenessOverTime checks the lateness of a rank that is late from a step on, with and without GPU times: it agrees
// with the verdict, and other ranks are not late.
func TestLatenessOverTime(t *testing.T) {
	testclass.Unit(t)
	for _, noGPU := range []bool{false, true} {
		spec := rankjob.Spec{
			Seed: 3, Ranks: 4, Steps: 120, NoGPUTimes: noGPU,
			Faults: []rankjob.Fault{{Kind: rankjob.SlowHost, Rank: 1, FromStep: 60, Ns: 6 * analyzetest.Ms}},
		}
		s, err := ranks.FindIn(spec.Recording(t).Timeline(), query.Options{})
		if err != nil || len(s.Verdicts) != 1 {
			t.Fatalf("%d verdicts, error %v", len(s.Verdicts), err)
		}
		v := &s.Verdicts[0]
		for _, most := range []int{1000, 10} {
			list := s.Lateness(3, most)
			if len(list) != 3 || list[0].Name != "rank 1" || !list[0].IsLate || list[1].IsLate {
				t.Fatalf("%d ranks, the first is %s", len(list), list[0].Name)
			}
			for i := range list {
				l := &list[i]
				if n := len(l.Points); n > most || n*l.StepsPerPoint < s.Steps {
					t.Errorf("%s: %d points for %d steps each, %d steps", l.Name, n, l.StepsPerPoint, s.Steps)
				}
				for k, p := range l.Points {
					first, last := v.FromNs, v.FromNs-int64(2*v.StepNs)*int64(l.StepsPerPoint)
					isLate := p.LateNs > v.LateNs/2
					if l.IsLate && (p.AtNs >= first && !isLate || p.AtNs < last && isLate) || !l.IsLate && isLate {
						t.Errorf(
							"%s, point %d: late by %v, verdict %v since %d",
							l.Name,
							k,
							p.LateNs,
							v.LateNs,
							v.FromNs,
						)
					}
				}
			}
			end := &list[0].Points[len(list[0].Points)-1]
			if math.Abs(end.LateNs-v.LateNs) > v.LateNs/3 {
				t.Errorf("late by %v at the end, verdict %v", end.LateNs, v.LateNs)
			}
		}
	}
}

// TestLatenessOfRanksThatAreNotCompared checks that there are none.
func TestLatenessOfRanksThatAreNotCompared(t *testing.T) {
	testclass.Unit(t)
	for _, spec := range []rankjob.Spec{{Seed: 1, Ranks: 1, Steps: 60}, {Seed: 1, Ranks: 2, Steps: 2}} {
		s, err := ranks.FindIn(spec.Recording(t).Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if list := s.Lateness(8, 100); len(list) > 0 {
			t.Errorf("%d ranks of %+v", len(list), spec)
		}
	}
}
