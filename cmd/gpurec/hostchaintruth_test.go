//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
)

// Shares of delays that their ends must cover. Other programs on the processors delay the hand-over between threads, so
// in a plain test run only the best quarter of the delays must have it.
const (
	leastCovered = 0.95
	bestQuarter  = 4
	mostLinks    = 8
)

// TestHostChainPrograms runs the programs with chains, without a recorder, and checks their truth against itself.
func TestHostChainPrograms(t *testing.T) {
	testclass.Root(t)
	seeds, all := hostSeeds()
	for _, language := range []string{"c", "python"} {
		for _, kind := range slices.Concat(hostChainKinds[language], moreHostChainKinds[language]) {
			for seed := 1; seed <= seeds; seed++ {
				v := hostVariant{language: language, kinds: kind, seed: seed}
				t.Run(v.String(), func(t *testing.T) {
					p := startHostProgram(t, v)
					p.expect("done")
					must(t, p.cmd.Wait())
					truth := simtest.ReadHostTruth(t, p.truth)
					checkHostTruth(t, v, truth)
					checkChainTruth(t, truth)
					checkCoverage(t, truth, all)
				})
			}
		}
	}
}

// checkChainTruth checks that each delay of a chain has the same ends, one after the other, and that they lie in it.
func checkChainTruth(t *testing.T, truth *simtest.HostTruth) {
	t.Helper()
	first := endsOf(truth, &truth.Holds[0])
	for i := range truth.Holds {
		h := &truth.Holds[i]
		ends := endsOf(truth, h)
		if len(ends) != len(first) || len(ends) == 0 {
			t.Fatalf("step %d has %d ends, not %d", h.Step, len(ends), len(first))
		}
		from := h.FromNs
		for j, e := range ends {
			if e.FromNs < from || e.FromNs >= e.ToNs || e.ToNs > h.ToNs {
				t.Errorf("%+v is not in its delay %+v, or not after the end before it", e, h)
			}
			if from = e.ToNs; e.Thread == "" || e.Function == "" || e.Line == 0 || e.Pid == 0 || e.Tid == truth.Tid {
				t.Errorf("%+v has no place or no thread", e)
			}
			if f := first[j]; e.Links != f.Links || e.Line != f.Line || e.Activity != f.Activity ||
				e.Function != f.Function {
				t.Errorf("%+v differs from %+v", e, f)
			}
		}
		if last := ends[len(ends)-1].Links; last < 1 || last > mostLinks {
			t.Errorf("%d links", last)
		}
	}
}

// endsOf returns the ends of a delay, the nearest to the launching thread first.
func endsOf(truth *simtest.HostTruth, h *simtest.HostSpan) (list []simtest.HostEnd) {
	for _, e := range truth.Ends {
		if e.Fault == h.Fault && e.Step == h.Step {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b simtest.HostEnd) int { return a.Links - b.Links })
	return list
}

// checkCoverage checks how much of the delays the ends explain: of all, or of the best quarter.
func checkCoverage(t *testing.T, truth *simtest.HostTruth, ofAll bool) {
	t.Helper()
	var shares []float64
	all, covered := int64(0), int64(0)
	for i := range truth.Holds {
		h := &truth.Holds[i]
		ns := int64(0)
		for _, e := range endsOf(truth, h) {
			ns += e.ToNs - e.FromNs
		}
		all, covered = all+h.ToNs-h.FromNs, covered+ns
		shares = append(shares, float64(ns)/float64(h.ToNs-h.FromNs))
	}
	slices.Sort(shares)
	share := shares[len(shares)-1-len(shares)/bestQuarter]
	if ofAll {
		share = float64(covered) / float64(all)
	}
	t.Logf("ends are %.1f%% of the delays", 100*float64(covered)/float64(all))
	if share < leastCovered {
		t.Errorf("ends explain %.1f%% of the delays", 100*share)
	}
}
