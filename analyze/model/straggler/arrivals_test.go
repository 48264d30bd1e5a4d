package straggler

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// arrivalJob returns the steps of ranks that are compared by the starts of collectives. change sets a step of a rank
// that is late by ms. Launches are recorded in a fifth of the time.
func arrivalJob(ranks, steps int, change func(rank, step int, s *Step) (lateMs float64)) []Series {
	r := rand.New(rand.NewPCG(5, 8)) //nolint:gosec // a seed that repeats
	all := make([]Series, ranks)
	for i := range all {
		all[i] = Series{Rank: i, IsNumbered: true, Basis: BasisArrivals}
	}
	for step := range steps {
		late, latest := make([]float64, ranks), 0.0
		list := make([]Step, ranks)
		for i := range all {
			list[i] = Step{CopyBytes: 1 << 20, CopyNs: ms / 2, CoveredNs: 2 * ms, KernelNs: 1 * ms, Kernels: 10}
			late[i] = change(i, step, &list[i]) + 0.2*r.Float64()
			latest = max(latest, late[i])
		}
		for i := range all {
			dur := 10 + latest
			list[i].AtNs, list[i].DurNs = int64(step)*100*ms, int64(dur*ms)
			list[i].CollectiveNs, list[i].BlockedNs = int64((latest-late[i])*ms), int64((dur-5)*ms)
			all[i].Steps = append(all[i].Steps, list[i])
		}
	}
	return all
}

// TestReasonsByArrivals checks the cause of a rank whose GPU begins the collectives late.
func TestReasonsByArrivals(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		cause  Cause
		change func(s *Step)
	}{
		"host":                    {CauseHost, func(s *Step) { s.BlockedNs = 0 }},
		"kernels":                 {CauseGPU, func(s *Step) { s.KernelNs = 2 * ms }},
		"kernels of unknown time": {CauseGPU, func(s *Step) { s.KernelNs = 0 }},
		"more kernels":            {CauseWork, func(s *Step) { s.KernelNs, s.Kernels = 2*ms, 20 }},
		"copies":                  {CauseCopies, func(s *Step) { s.CopyNs = 5 * ms }},
		"copies of unknown time":  {CauseCopies, func(s *Step) { s.CopyBytes = 400 << 20 }},
	} {
		t.Run(name, func(t *testing.T) {
			all := arrivalJob(8, 200, func(rank, step int, s *Step) float64 {
				if rank != 3 || step < 60 {
					return 0
				}
				c.change(s)
				return 5
			})
			if c.cause == CauseHost {
				for i := range all[3].Steps {
					if i >= 60 {
						all[3].Steps[i].BlockedNs = 0
					}
				}
			}
			found := Find(all)
			if len(found.Verdicts) != 1 || found.Verdicts[0].Series != 3 ||
				found.Verdicts[0].Reasons[0].Cause != c.cause {
				t.Errorf("verdicts %+v, want rank 3, %v", found.Verdicts, c.cause)
			}
		})
	}
}

// TestLatenessThatVaries requires a verdict only if a rank is late by more than ranks are at other times.
func TestLatenessThatVaries(t *testing.T) {
	testclass.Unit(t)
	wander := func(rank, step int) float64 { // a rank is a little later for some seconds, then the other
		if (step/300+rank)%2 == 0 {
			return 1.5
		}
		return 0
	}
	if found := Find(
		arrivalJob(2, 2000, func(rank, step int, _ *Step) float64 { return wander(rank, step) }),
	); len(
		found.Verdicts,
	) > 0 {
		t.Errorf("verdict %+v, want none", found.Verdicts[0])
	}
	found := Find(arrivalJob(2, 2000, func(rank, step int, _ *Step) float64 {
		if rank == 1 && step > 1200 {
			return 8 + wander(rank, step)
		}
		return wander(rank, step)
	}))
	if len(found.Verdicts) != 1 || found.Verdicts[0].Series != 1 {
		t.Errorf("verdicts %+v, want rank 1", found.Verdicts)
	}
}
