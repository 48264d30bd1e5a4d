package rules_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/verdict"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// countedJob returns a job of ranks that hung before the recording, with the AllReduces that each rank launched. The last
// rank waits as late says.
func countedJob(t *testing.T, size int, late format.WaitFact, launched ...int64) *analyzetest.TestRecording {
	t.Helper()
	recording := analyzetest.HungJob(t, len(launched), "cuStreamSynchronize", late, "/app/data.py:12 load")
	for rank, n := range launched {
		pid, at := int32(analyzetest.HungRankPid+rank), analyzetest.Epoch+59*analyzetest.Second
		recording.AddIdentity(pid, analyzetest.RankIdentity(rank, size, "job"), nil)
		recording.AddCommunicator(analyzetest.Second, analyzetest.CommunicatorRow{
			ID: 0xfa93, Ptr: int64(rank + 1), Pid: pid, Rank: int32(rank), Size: int32(size),
			Fact: format.CommunicatorFact{
				How: format.CommunicatorOlder, Numbering: format.NumberingCounter, Before: n,
				Census: &format.CommunicatorCensus{
					AtNs: at, SinceNs: at - 50*analyzetest.Second, Counts: map[string]int64{"AllReduce": n},
				},
			},
		})
	}
	return recording
}

// TestCountsNameTheRank has jobs that hung before the recording. The first finding names the rank and its line, and it is
// the only verdict while recording.
func TestCountsNameTheRank(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		tape       *analyzetest.TestRecording
		rule, what string
	}{
		"late": {
			countedJob(t, 3, sleeps, 41, 41, 40), "rank-missing",
			"AllReduce #41 of 000000000000fa93 (0-2) has waited for rank 2 for at least 59.00s; rank 2 sleeps, at load (data.py:12)",
		},
		"skipped": {
			countedJob(t, 3, syncs, 41, 41, 40), "collective-mismatch",
			"the job hangs: rank 2 launched 40 AllReduce, the others 41: rank 2 waits as the others do",
		},
		"absent": {
			countedJob(t, 4, syncs, 41, 41, 41), "rank-missing",
			"the job hangs: rank 3 of 4 has no process in the recording: rank 3 ended before the recording, or runs on",
		},
		"equal": {
			countedJob(t, 3, syncs, 41, 41, 41), "hang",
			"the job hangs: no rank is known to be late; rank 0 is in the collective all_reduce",
		},
	} {
		r := checked(t, c.tape, rules.Options{})
		whats := analyzetest.ColumnTexts(t, r, "hits", "what")
		which := analyzetest.ColumnTexts(t, r, "hits", "rule")
		if len(whats) == 0 || !strings.HasPrefix(whats[0], c.what) || which[0] != c.rule {
			t.Errorf("%s: got %v of %v, want %s of %s", name, whats, which, c.what, c.rule)
		}
		list, err := verdict.Find(c.tape.Timeline())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].Kind != verdict.KindHang || !strings.HasPrefix(list[0].What, c.what) {
			t.Errorf("%s: the verdicts are %+v", name, list)
		}
	}
}

// TestAbsentRankWithoutCounters has a job without counters of NCCL. A rank of its host has no process.
func TestAbsentRankWithoutCounters(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.HungJob(t, 3, "cuStreamSynchronize", syncs, "/app/train.py:31 step")
	for rank := range 3 {
		id := analyzetest.RankIdentity(rank, 4, "job")
		id.LocalRank, id.LocalWorldSize = &rank, analyzetest.PointerTo(4)
		recording.AddIdentity(int32(analyzetest.HungRankPid+rank), id, nil)
	}
	whats := analyzetest.ColumnTexts(t, checked(t, recording, rules.Options{}), "hits", "what")
	const want = ". Rank 3 of 4 has no process in the recording: rank 3 belongs to "
	if len(whats) != 1 || !strings.Contains(whats[0], want) {
		t.Errorf("got %v, want %s", whats, want)
	}
}
