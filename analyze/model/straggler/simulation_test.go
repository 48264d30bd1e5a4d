package straggler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

var jobs = flag.Int("jobs", 200, "simulated jobs of each kind")

const ms = 1e6

// fault makes a rank late.
type fault struct {
	rank int
	Cause
	ns    float64
	since int
}

// simulation is a synchronous job: the own time of a rank is that of its host or its GPU, whichever is later, and
// all ranks end a step together.
type simulation struct {
	random *rand.Rand
	ranks  int
	steps  int
	stepNs float64
	noise  float64 // standard deviation of a rank's own time
	spread float64 // standard deviation between ranks
	basis  Basis
	faults []fault
}

// run returns the series of the job.
func (sim *simulation) run() []Series {
	all, offsets := make([]Series, sim.ranks), make([]float64, sim.ranks)
	for r := range all {
		all[r] = Series{Rank: r, IsNumbered: true, Basis: sim.basis}
		offsets[r] = sim.spread * sim.random.NormFloat64()
	}
	at := int64(1e18)
	for i := range sim.steps {
		steps, own, latest := make([]Step, sim.ranks), make([]float64, sim.ranks), 0.0
		for r := range steps {
			host := 0.2*sim.stepNs + sim.noise*sim.random.NormFloat64()/2
			kernels := 0.6*sim.stepNs + offsets[r] + sim.noise*sim.random.NormFloat64()/2
			copies := 0.05 * sim.stepNs * (1 + 0.02*sim.random.NormFloat64())
			launches := 300.0
			if sim.random.IntN(100) == 0 { // a garbage collection
				host += sim.stepNs * sim.random.ExpFloat64() / 3
			}
			for _, f := range sim.faults {
				if f.rank != r || i < f.since {
					continue
				}
				switch f.Cause {
				case CauseHost:
					host += f.ns
				case CauseGPU:
					kernels += f.ns
				case CauseCopies:
					copies += f.ns
				case CauseWork:
					kernels += f.ns
					launches *= 1 + f.ns/(0.6*sim.stepNs)
				}
			}
			own[r] = host + kernels + copies
			latest = max(latest, own[r])
			steps[r] = Step{KernelNs: int64(kernels), CopyNs: int64(copies), Kernels: int32(launches)}
			steps[r].BlockedNs = -int64(host) // the step without it, below
		}
		const transfer = 2 * ms
		for r := range steps {
			s := &steps[r]
			s.AtNs, s.DurNs = at, int64(latest+transfer)
			s.BlockedNs += s.DurNs
			s.CollectiveNs = s.DurNs - int64(own[r])
			all[r].Steps = append(all[r].Steps, *s)
		}
		at += int64(latest + transfer)
	}
	return all
}

// randomJob returns a job without a fault.
func randomJob(seed uint64, basis Basis) *simulation {
	r := rand.New(rand.NewPCG(seed, 7))
	m := &simulation{
		random: r, ranks: []int{2, 4, 8, 16, 32}[r.IntN(5)], steps: 160 + r.IntN(240),
		stepNs: ms * (50 + 300*r.Float64()), basis: basis,
	}
	m.noise = m.stepNs * (0.004 + 0.01*r.Float64())
	m.spread = m.stepNs * 0.003 * r.Float64()
	return m
}

// TestVerdictsOfSimulatedJobs checks rank and cause of every verdict. No job may have a wrong verdict.
func TestVerdictsOfSimulatedJobs(t *testing.T) {
	testclass.Lab(t, "lab")
	kinds := []struct {
		name   string
		basis  Basis
		causes []Cause
	}{
		{"none", BasisGPU, nil},
		{"none, host times", BasisHost, nil},
		{"host", BasisGPU, []Cause{CauseHost}},
		{"host, host times", BasisHost, []Cause{CauseHost}},
		{"gpu", BasisGPU, []Cause{CauseGPU}},
		{"copies", BasisGPU, []Cause{CauseCopies}},
		{"work", BasisGPU, []Cause{CauseWork}},
		{"host of one rank and GPU of another", BasisGPU, []Cause{CauseHost, CauseGPU}},
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			right, wrong := 0, 0
			for seed := range uint64(*jobs) {
				m := randomJob(seed, kind.basis)
				if len(kind.causes) > 1 {
					m.ranks = max(4, m.ranks)
				}
				first := m.random.IntN(m.ranks)
				for i, c := range kind.causes {
					since := 0
					if m.random.IntN(3) == 0 {
						since = m.random.IntN(m.steps - 150)
					}
					share := 0.05 + 0.25*m.random.Float64()
					m.faults = append(m.faults, fault{(first + i) % m.ranks, c, share * m.stepNs, since})
				}
				problem := m.check(Find(m.run()))
				switch {
				case problem == "":
					right++
				case problem != "missed":
					wrong++
					t.Errorf("seed %d, %d ranks, %d steps: %s", seed, m.ranks, m.steps, problem)
				}
			}
			t.Logf("%d of %d right, %d wrong", right, *jobs, wrong)
			if share := float64(right) / float64(*jobs); share < 0.97 {
				t.Errorf("only %.1f %% of the jobs are right", 100*share)
			}
		})
	}
}

// check returns "" for the right verdicts, "missed" if one is not there, or what is wrong.
func (sim *simulation) check(r *Result) string {
	if len(r.Verdicts) > len(sim.faults) {
		return fmt.Sprintf("%d verdicts about %d faults", len(r.Verdicts), len(sim.faults))
	}
	for _, v := range r.Verdicts {
		isRight := false
		for _, f := range sim.faults {
			if f.rank != v.Series {
				continue
			}
			isRight = true
			if v.Reasons[0].Cause != f.Cause {
				return fmt.Sprintf("rank %d is late because of %v, not %v", f.rank, v.Reasons, f.Cause)
			}
			if late := v.LateNs / f.ns; late < 0.7 || late > 1.3 {
				return fmt.Sprintf("rank %d is late by %.1f ms, not %.1f ms", f.rank, v.LateNs/ms, f.ns/ms)
			}
			if v.SinceNs != 0 && max(v.FromStep-f.since, f.since-v.FromStep) > 10 {
				return fmt.Sprintf("rank %d is late since step %d, not %d", f.rank, v.FromStep, f.since)
			}
		}
		if !isRight {
			return fmt.Sprintf("rank %d is accused of %.1f ms", v.Series, v.LateNs/ms)
		}
	}
	if len(r.Verdicts) < len(sim.faults) {
		return "missed"
	}
	return ""
}
