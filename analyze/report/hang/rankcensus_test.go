package hang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// counted makes a communicator without a recorded call. counts are the collectives that each of its ranks launched, read
// twice, standing ns apart. Ranks with nil were not read.
func (j *rankJob) counted(id, standing int64, ranks []int, counts ...map[string]int64) {
	at := analyzetest.Epoch + 59*analyzetest.Second
	for i, rank := range ranks {
		r := j.ranks[rank]
		row := analyzetest.CommunicatorRow{
			ID: id, Ptr: id + int64(rank), Pid: r.pid, Rank: int32(i), Size: int32(len(ranks)),
			Fact: format.CommunicatorFact{How: format.CommunicatorOlder, Numbering: format.NumberingCounter},
		}
		if counts[i] == nil {
			continue
		}
		for _, n := range counts[i] {
			row.Fact.Before += n
		}
		row.Fact.Census = &format.CommunicatorCensus{AtNs: at, SinceNs: at - standing, Counts: counts[i]}
		r.recording.AddCommunicator(analyzetest.Second, row)
	}
}

// fact returns the text of a fact, "" if it is absent.
func fact(r *report.Report, key string) string {
	for i := range r.Facts {
		if r.Facts[i].Key == key && r.Facts[i].Value != nil {
			return fmt.Sprint(r.Facts[i].Value)
		}
	}
	return ""
}

type counts = map[string]int64

func TestCensusOfAJobThatHungBefore(t *testing.T) {
	testclass.Unit(t)
	const long = 50 * analyzetest.Second
	for name, c := range map[string]struct {
		counts   []counts
		standing int64
		// hangs, fault, census and confidence are in these facts. "-": the fact is absent.
		hangs, fault, census, confidence string
	}{
		"a rank is behind": {
			[]counts{{"AllReduce": 1841}, {"AllReduce": 1840}, {"AllReduce": 1841}, {"AllReduce": 1841}},
			long,
			"AllReduce #1841 of 0fa93daea854b060 (0-3) has waited for rank 1",
			"rank 1 waits for no other rank; 3 ranks wait for it",
			"rank 1 launched 1,840 AllReduce, the others 1,841, unchanged for", "medium: numbers of earlier operations",
		},
		"a rank calls something else": {
			[]counts{{"AllReduce": 9}, {"AllReduce": 8, "AllGather": 1}, {"AllReduce": 9}, {"AllReduce": 9}},
			long,
			"rank 1 launched 1 AllGather more and 1 AllReduce less than rank 0", "cannot say which call is wrong",
			"rank 1 launched 1 AllGather more and 1 AllReduce less than rank 0", "medium: only counts of launches",
		},
		"all ranks are equal": {
			[]counts{{"AllReduce": 9}, {"AllReduce": 9}, {"AllReduce": 9}, {"AllReduce": 9}},
			long,
			"all ranks have launched the same number of each operation: no rank is behind", "-",
			"all ranks launched the same number", "-",
		},
		"the counts change": {
			[]counts{{"AllReduce": 1841}, {"AllReduce": 1840}, {"AllReduce": 1841}, {"AllReduce": 1841}},
			0,
			"no hang", "-", "-", "-",
		},
		"a rank that is behind was not read": {
			[]counts{{"AllReduce": 1841}, nil, {"AllReduce": 1841}, {"AllReduce": 1841}},
			long,
			"all ranks have launched the same number of each operation", "-", "without 1 rank that was not read", "-",
		},
	} {
		j := newRankJob(t, 4, 4)
		j.counted(world, c.standing, ranksFrom(0, 4), c.counts...)
		j.hostStack(9*analyzetest.Second, 1)
		r := j.run()
		for key, want := range map[string]string{
			"hangs": c.hangs, "fault": c.fault, "census": c.census, "rank_confidence": c.confidence,
		} {
			got := fact(r, key)
			if want == "-" && got != "" || want != "-" && !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}

// TestCensusFollowsWaits has a job in which rank 1 is behind in both communicators. Rank 2 is behind
// in one, but waits for rank 1 in the other.
func TestCensusFollowsWaits(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 4, 4)
	const long, pair = 50 * analyzetest.Second, world + 100
	j.counted(world, long, ranksFrom(0, 4),
		counts{"AllReduce": 21}, counts{"AllReduce": 20}, counts{"AllReduce": 20}, counts{"AllReduce": 21})
	j.counted(pair, long, []int{1, 2}, counts{"AllGather": 7}, counts{"AllGather": 8})
	j.hostStack(9*analyzetest.Second, 1)
	if got := fact(j.run(), "fault"); !strings.HasPrefix(got, "rank 1 waits for no other rank; 3 ranks wait for it") {
		t.Errorf("the fault is %q", got)
	}
}

// gpuWaits makes the hosts of ranks wait for their GPUs from a time to the end.
func (j *rankJob) gpuWaits(at int64, ranks ...int) {
	for _, rank := range ranks {
		r := j.ranks[rank]
		r.recording.AddThreadState(r.pid, r.pid, 59*analyzetest.Second, 59*analyzetest.Second-at, format.StateSleeping,
			format.WaitFact{
				Reason: format.ReasonCUDA, SystemCall: "futex", CUDACall: "cuEventSynchronize", When: format.WhenEnd,
			}, 1)
	}
}

// onOneHost says that all ranks belong to one host.
func (j *rankJob) onOneHost() {
	for _, r := range j.ranks {
		id := analyzetest.RankIdentity(r.rank, len(j.ranks), "llama")
		id.LocalRank, id.LocalWorldSize = &r.rank, analyzetest.PointerTo(len(j.ranks))
		r.recording.AddIdentity(r.pid, id, nil)
	}
}

// TestCountsOfRanksThatWait has jobs whose ranks wait for their GPUs, except one that reads a file if elsewhere is set.
func TestCountsOfRanksThatWait(t *testing.T) {
	testclass.Unit(t)
	all := func(n ...int64) (list []counts) {
		for _, n := range n {
			list = append(list, counts{"AllReduce": n})
		}
		return list
	}
	for name, c := range map[string]struct {
		counts    []counts
		elsewhere bool // rank 1
		perHost   int
		absent    []int // hosts
		oneHost   bool
		// hangs, fault, confidence and missing are in these facts. "-": the fact is absent.
		hangs, fault, confidence, missing string
	}{
		"a rank left out a call": {
			counts: all(1841, 1840, 1841, 1841), perHost: 4,
			hangs: "the job hangs: rank 1 launched 1,840 AllReduce, the others 1,841; 3 ranks have waited for at least " +
				"52.00s: rank 0 waits for the GPU in cuEventSynchronize, at all_reduce",
			fault:      "rank 1 waits as the others do, so it left out a call",
			confidence: "medium: only counts of launches are known", missing: "-",
		},
		"a rank makes a call more": {
			counts: all(8, 9, 8, 8), perHost: 4, hangs: "rank 1 launched 9 AllReduce, the others 8",
			fault:      "the others wait, so rank 1 made a call that they did not make",
			confidence: "medium", missing: "-",
		},
		"two sides of equal size": {
			counts: all(9, 8, 8, 9), perHost: 4, hangs: "ranks 1-2 launched 8 AllReduce, the others 9; all have waited",
			fault: "cannot say which ranks are wrong: no side has fewer ranks", confidence: "medium", missing: "-",
		},
		"all ranks are equal": {
			counts: all(9, 9, 9, 9), perHost: 4,
			hangs: "all 4 ranks launched the same number of each operation, so none is behind; all have waited",
			fault: "cannot say which rank is wrong", confidence: "medium", missing: "-",
		},
		"a rank has not joined": {
			counts: []counts{{}, nil, {}, {}}, elsewhere: true, perHost: 4,
			hangs:      "the job hangs: rank 1 has not joined communicator 0fa93daea854b060; 3 ranks have waited",
			fault:      "rank 1 sleeps in read, at read_shard",
			confidence: "medium: only communicators that NCCL lists", missing: "-",
		},
		"a rank is not known": {
			counts: []counts{{}, nil, {}, {}}, perHost: 4, hangs: "all 3 ranks launched the same number",
			fault: "cannot say", confidence: "medium", missing: "-",
		},
		"a rank of the host ended": {
			counts: all(9, 9, 9, 9), perHost: 1, absent: []int{1}, oneHost: true,
			hangs:      "the job hangs: rank 1 of 4 has no process in the recording; 3 ranks have waited",
			fault:      "rank 1 belongs to node1 by LOCAL_RANK, so it ended before the recording, or was left out",
			confidence: "medium: the recording does not say why",
			missing:    "1 rank not recorded (1): the verdict depends on it",
		},
		"a host is missing": {
			counts: all(9, 9, 9, 9), perHost: 2, absent: []int{1},
			hangs:      "the job hangs: ranks 2-3 of 4 have no process in the recording; 2 ranks have waited",
			fault:      "ranks 2-3 ended before the recording, or run on another host",
			confidence: "low", missing: "2 ranks not recorded (2-3): the verdict depends on them",
		},
	} {
		j := newRankJob(t, 4, c.perHost, c.absent...)
		if c.oneHost {
			j.onOneHost()
		}
		j.counted(world, 50*analyzetest.Second, ranksFrom(0, 4), c.counts...)
		if c.elsewhere {
			j.hostStack(9*analyzetest.Second, 1)
			j.gpuWaits(8*analyzetest.Second, 0, 2, 3)
		} else {
			j.gpuWaits(8*analyzetest.Second, 0, 1, 2, 3)
		}
		r := j.run()
		for key, want := range map[string]string{
			"hangs": c.hangs, "fault": c.fault, "rank_confidence": c.confidence, "missing": c.missing,
		} {
			got := fact(r, key)
			if want == "-" && got != "" || want != "-" && !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}
