package ranksteps

import (
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/straggler"
)

// stepKey identifies a step on all ranks of a communicator: the collectives at its start and its end.
type stepKey struct{ from, to int64 }

// Finish returns the steps that all ranks of a communicator have.
func (r *Reader) Finish() *Survey {
	s := &Survey{Job: r.job, Ranks: make([]Rank, len(r.ranks)), Series: make([]straggler.Series, len(r.ranks))}
	groups := make(map[int64][]*rank)
	most := 0
	for i := range r.ranks {
		k := &r.ranks[i]
		s.Ranks[i] = k.out
		s.Series[i] = straggler.Series{Rank: i, Signature: k.mix + uint64(i)<<32 + 1} // a group of its own
		if k.hasGPU {
			s.RanksWithGPUTimes++
		}
		if len(k.steps) > 0 {
			groups[k.out.Communicator] = append(groups[k.out.Communicator], k)
			most = max(most, len(k.steps))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		addGroup(s, groups[id])
	}
	s.Steps, s.Operations = most, r.finishOperations(float64(most))
	return s
}

// leastShare is the share of the steps of a communicator that a rank has, below which it is not compared.
const leastShare = 0.5

// addGroup adds the steps of the ranks of a communicator. If numbers are relative on one rank, ranks are compared
// by their own steps in order.
func addGroup(s *Survey, group []*rank) {
	most, isNumbered := 0, true
	for _, k := range group {
		most = max(most, len(k.steps))
		isNumbered = isNumbered && k.isNumbered
	}
	group = slices.DeleteFunc(group, func(k *rank) bool { return float64(len(k.steps)) < leastShare*float64(most) })
	common := make(map[stepKey]int)
	for _, k := range group {
		for i := range k.steps {
			common[k.keyOf(i)]++
		}
	}
	isCommon := func(k *rank, i int) bool { return !isNumbered || common[k.keyOf(i)] >= len(group) }
	add := func(all []straggler.Series, basis straggler.Basis, has func(k *rank, i int) bool) {
		for _, k := range group {
			series := &all[k.member]
			series.Signature, series.IsNumbered, series.Basis = k.mix, isNumbered, basis
			for i := range k.steps {
				if isCommon(k, i) && has(k, i) {
					series.Steps = append(series.Steps, k.stepOf(i, basis))
				}
			}
		}
	}
	always := func(*rank, int) bool { return true }
	arrived, timed := make(map[stepKey]int), timedSteps(group, hasTimes)
	if isNumbered && s.isOneHost(group) {
		arrived = arrivedSteps(group)
	}
	arrivals, fullSteps := countOf(arrived, len(group)), countOf(timed, len(group))
	switch {
	case arrivals >= leastTimed && arrivals >= fullSteps:
		add(s.Series, straggler.BasisArrivals, func(k *rank, i int) bool { return arrived[k.keyOf(i)] >= len(group) })
		add(s.hostSeries(), straggler.BasisHost, always)
		return
	case isNumbered && fullSteps >= leastTimed:
		add(s.Series, straggler.BasisGPU, func(k *rank, i int) bool { return timed[k.keyOf(i)] >= len(group) })
		return
	}
	add(s.Series, straggler.BasisHost, always)
	for _, k := range group {
		if k.hasGPU {
			s.Ranks[k.member].GPUMissing = "too few steps have GPU times on all ranks"
		}
	}
}

// arrivedSteps counts the ranks of a group that have the waits of each step by arrivals. If few steps are complete, those with
// half of their collectives count, too.
func arrivedSteps(group []*rank) map[stepKey]int {
	setWaits(group, 1)
	arrived := timedSteps(group, hasWait)
	if countOf(arrived, len(group)) < leastTimed {
		setWaits(group, leastKnown)
		arrived = timedSteps(group, hasWait)
	}
	return arrived
}

// timedSteps counts the ranks of a group that have each step.
func timedSteps(group []*rank, has func(k *rank, i int) bool) map[stepKey]int {
	counts := make(map[stepKey]int)
	for _, k := range group {
		for i := range k.steps {
			if has(k, i) {
				counts[k.keyOf(i)]++
			}
		}
	}
	return counts
}

// hasWait reports whether the waits in a step are known by arrivals, hasTimes whether all its kernels have times.
func hasWait(k *rank, i int) bool  { return k.waits != nil && k.waits[i] >= 0 }
func hasTimes(k *rank, i int) bool { return k.hasGPU && k.timed[i] }

// countOf returns the number of steps that a number of ranks have.
func countOf(steps map[stepKey]int, ranks int) (n int) {
	for _, count := range steps {
		if count >= ranks {
			n++
		}
	}
	return n
}

func (r *rank) keyOf(i int) stepKey { return stepKey{r.sequences[i], r.sequences[i+1]} }

// stepOf returns step i.
func (r *rank) stepOf(i int, basis straggler.Basis) straggler.Step {
	s, ns := &r.steps[i], r.starts[i+1]-r.starts[i]
	collectiveNs := s.collectiveNs
	if basis == straggler.BasisArrivals {
		collectiveNs = r.waits[i]
	}
	return straggler.Step{
		AtNs:             r.starts[i],
		DurNs:            ns,
		BlockedNs:        min(s.blockedNs, ns),
		HostCollectiveNs: min(s.hostCollectiveNs, ns),
		HostCopyNs:       min(s.hostCopyNs, max(0, ns-s.blockedNs)),
		CollectiveNs:     min(collectiveNs, ns),
		KernelNs:         s.kernelNs,
		CopyNs:           s.copyNs,
		CoveredNs:        s.coveredNs,
		CopyBytes:        s.copyBytes,
		Kernels:          s.kernels,
	}
}
