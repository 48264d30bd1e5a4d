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
			"the ranks launched different operations", "cannot say which call is wrong",
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
			"all ranks have launched the same number of each operation", "-", "1 rank not recorded", "-",
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
