package ranks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/internal/testclass"
)

// expectation is a kind of fault, and what the report says about it with and without GPU times. "" accuses no rank.
type expectation struct {
	name          string
	kind          rankjob.Kind
	ns            int64
	withGPU, host string
}

var expectations = []expectation{
	{name: "none"},
	{"host", rankjob.SlowHost, 6 * analyzetest.Ms, "its host makes no call", "its host makes no call"},
	{"gpu", rankjob.SlowGPU, 5 * analyzetest.Ms, "its GPU: the same kernels", ""},
	{"copies", rankjob.SlowCopies, 6 * analyzetest.Ms, "copies", ""},
	{"work", rankjob.MoreWork, 6 * analyzetest.Ms, "uneven work", ""},
}

// TestVerdictsOfSimulatedJobs checks rank and cause for jobs in one recording, and in one for each rank on two hosts
// whose clocks differ by 50 ms.
func TestVerdictsOfSimulatedJobs(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(2) {
		for _, e := range expectations {
			for _, hasGPU := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s gpu=%v seed=%d", e.name, hasGPU, seed), func(t *testing.T) {
					checkSimulatedJob(t, seed, &e, hasGPU)
				})
			}
		}
	}
}

func checkSimulatedJob(t *testing.T, seed uint64, e *expectation, hasGPU bool) {
	random := rand.New(rand.NewPCG(seed, 3))
	spec := rankjob.Spec{
		Seed:       seed,
		Ranks:      2 + random.IntN(3),
		Hosts:      2,
		Steps:      100,
		NoGPUTimes: !hasGPU,
		SkewNs:     50 * analyzetest.Ms,
	}
	late := random.IntN(spec.Ranks)
	if e.ns > 0 {
		spec.Faults = []rankjob.Fault{{Kind: e.kind, Rank: late, FromStep: 30, Ns: e.ns}}
	}
	want := e.withGPU
	if !hasGPU {
		want = e.host
	}
	verdict, because := reportOn(t, &spec, seed%2 == 0)
	if want == "" {
		if !strings.HasPrefix(verdict, "no rank") {
			t.Errorf("want no late rank, the report says\n\t%s\n\t%s", verdict, because)
		}
		return
	}
	if !strings.HasPrefix(verdict, fmt.Sprintf("rank %d (", late)) || !strings.HasPrefix(because, want) {
		t.Errorf("want rank %d and %q, the report says\n\t%s\n\t%s", late, want, verdict, because)
	}
	if e.kind == rankjob.SlowHost && !strings.Contains(because, "train.py") {
		t.Errorf("the reason has no line: %s", because)
	}
}

// TestSlowNetworks finds a network that gets slower, and one that is slow all the time, by the other communicators of the
// job. No rank is accused.
func TestSlowNetworks(t *testing.T) {
	testclass.Lab(t, "lab")
	for _, c := range []struct {
		name           string
		tensor         int
		fault          []rankjob.Fault
		verdict, cause string
	}{
		{
			"rises", 0,
			[]rankjob.Fault{{Kind: rankjob.SlowNetwork, Rank: 1, FromStep: 40, Ns: 2 * analyzetest.Ms}},
			"network: no rank is late, but AllReduce of 25.0 MiB of default_pg", "than it was before",
		},
		{
			"one of four", 2,
			[]rankjob.Fault{{Kind: rankjob.SlowNetwork, Rank: 5, Ns: 2 * analyzetest.Ms}},
			"network: no rank is late, but AllReduce of 25.0 MiB of TP 2", "other communicators of the same size",
		},
		{
			"one of four rises", 2,
			[]rankjob.Fault{{Kind: rankjob.SlowNetwork, Rank: 2, FromStep: 40, Ns: 2 * analyzetest.Ms}},
			"network: no rank is late, but AllReduce of 25.0 MiB of TP 1", "than it was before",
		},
		{"none", 2, nil, "no rank is late", ""},
	} {
		for _, isOne := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s one=%v", c.name, isOne), func(t *testing.T) {
				spec := rankjob.Spec{Seed: 3, Ranks: 8, Hosts: 2, Steps: 100, TensorParallel: c.tensor, Faults: c.fault}
				verdict, because := reportOn(t, &spec, isOne)
				if !strings.HasPrefix(verdict, c.verdict) || !strings.Contains(because, c.cause) {
					t.Errorf("the report says\n\t%s\n\t%s\nwant %q and %q", verdict, because, c.verdict, c.cause)
				}
			})
		}
	}
}

// TestLateRankOfTwoKindsOfCommunicators has a late rank in a tensor-parallel and a data-parallel communicator. The ranks
// of both wait for it, and further ranks for these. The report must name the late rank only.
func TestLateRankOfTwoKindsOfCommunicators(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		kind  rankjob.Kind
		cause string
	}{{rankjob.SlowHost, "its host"}, {rankjob.SlowGPU, "its GPU"}} {
		for _, isOne := range []bool{true, false} {
			spec := rankjob.Spec{
				Seed: uint64(c.kind), Ranks: 8, Hosts: 2, Steps: 100, TensorParallel: 4, SkewNs: 20 * analyzetest.Ms,
				Faults: []rankjob.Fault{{Kind: c.kind, Rank: 5, FromStep: 30, Ns: 5 * analyzetest.Ms}},
			}
			r := runOn(t, &spec, isOne)
			late, _, _ := r.FindNumber("late_ranks")
			if !strings.HasPrefix(text(r, "verdict"), "rank 5 (") || !strings.HasPrefix(text(r, "because"), c.cause) ||
				late != 1 {
				t.Errorf("one=%v: %.0f late ranks\n\t%s\n\t%s\n\t%s\nwant rank 5, %s", isOne, late, text(r, "verdict"),
					text(r, "because"), text(r, "also"), c.cause)
			}
		}
	}
}

// reportOn returns the verdict and the reason for a job, in one recording or in one for each rank.
func reportOn(t *testing.T, spec *rankjob.Spec, isOne bool) (verdict, because string) {
	t.Helper()
	r := runOn(t, spec, isOne)
	return text(r, "verdict"), text(r, "because")
}

// runOn returns the report on a job, in one recording or in one for each rank.
func runOn(t *testing.T, spec *rankjob.Spec, isOne bool) (r *report.Report) {
	t.Helper()
	var err error
	if isOne {
		r, err = ranks.Run(spec.Recording(t).Timeline(), query.Options{})
	} else {
		var paths []string
		for _, recording := range spec.Recordings(t) {
			paths = append(paths, recording.WriteAndOpen().Path)
		}
		j, opened := job.Open(paths, job.Options{})
		if opened != nil {
			t.Fatal(opened)
		}
		r, err = ranks.RunJob(j, query.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text returns the text of a fact, "" without one.
func text(r *report.Report, key string) string {
	i := slices.IndexFunc(r.Facts, func(f report.Fact) bool { return f.Key == key })
	if i < 0 || r.Facts[i].Value == nil {
		return ""
	}
	return fmt.Sprint(r.Facts[i].Value)
}

// TestGoldenReport compares the report on a job with a slow GPU in one recording.
func TestGoldenReport(t *testing.T) {
	testclass.Unit(t)
	spec := rankjob.Spec{
		Seed:   1,
		Ranks:  4,
		Steps:  100,
		Faults: []rankjob.Fault{{Kind: rankjob.SlowGPU, Rank: 2, FromStep: 40, Ns: 5 * analyzetest.Ms}},
	}
	recording := spec.Recording(t)
	r, err := ranks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "slowgpu", 160)
}
