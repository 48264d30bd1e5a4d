package html

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// lateJob returns a job of ten ranks. Rank 3 is late from step 40 on.
func lateJob(t *testing.T, steps int) *analyzetest.TestRecording {
	return rankjob.Spec{
		Seed: 2, Ranks: 10, Steps: steps,
		Faults: []rankjob.Fault{{Kind: rankjob.SlowHost, Rank: 3, FromStep: 40, Ns: 6 * analyzetest.Ms}},
	}.Recording(t)
}

// rankLines decodes the chart of ranks of a page.
func rankLines(t *testing.T, page string) (list []struct {
	Name string
	Late bool
	T, V []float64
},
) {
	t.Helper()
	data, err := json.Marshal(chartDataOf(t, page)["ranks"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestPageShowsRanks compares the section with the report ranks, and the chart with its verdict.
func TestPageShowsRanks(t *testing.T) {
	testclass.Unit(t)
	recording := lateJob(t, 120)
	page := pageText(t, recording.Timeline(), Options{})
	state, err := ranks.FindIn(recording.Timeline(), query.Options{})
	if err != nil || len(state.Verdicts) != 1 {
		t.Fatalf("%d verdicts, error %v", len(state.Verdicts), err)
	}
	for _, want := range []string{
		`<section id="ranks"`, `href="#ranks">Ranks</a>`, "rank 3 (node1", "the others wait for it", "7a93daea854b060b",
		`id="ranks-ranks"`, `id="ranks-operations"`, "AllReduce", "It leaves out 2 ranks.", "train.py:88",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "Each point of the chart") {
		t.Error("points of single steps are called medians")
	}
	lines := rankLines(t, page)
	if len(lines) != maxChartRanks || lines[0].Name != "rank 3" || !lines[0].Late || lines[1].Late {
		t.Fatalf("%d lines, the first is of %s", len(lines), lines[0].Name)
	}
	v := &state.Verdicts[0]
	if n := len(lines[0].V); math.Abs(lines[0].V[n-1]-v.LateNs) > v.LateNs/3 || lines[0].V[0] > v.LateNs/3 {
		t.Errorf("late by %v at first and %v at last, verdict %v", lines[0].V[0], lines[0].V[n-1], v.LateNs)
	}
}

// TestPageOfManySteps checks that the chart of ranks has medians of several steps.
func TestPageOfManySteps(t *testing.T) {
	testclass.Unit(t)
	recording := rankjob.Spec{Seed: 2, Ranks: 2, Steps: 1000, NoGPUTimes: true}.Recording(t)
	page := pageText(t, recording.Timeline(), Options{})
	if !strings.Contains(page, "Each point of the chart is the median of 3 steps.") {
		t.Error("the page does not say that points are medians")
	}
	for _, line := range rankLines(t, page) {
		if n := len(line.T); n > maxRankPoints || n < maxRankPoints/2 || n != len(line.V) || line.Late {
			t.Errorf("%s has %d points", line.Name, n)
		}
	}
}

// TestPageOfTooFewSteps checks that a page without compared ranks has the tables, but no chart.
func TestPageOfTooFewSteps(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, rankjob.Spec{Seed: 2, Ranks: 1, Steps: 3}.Recording(t).Timeline(), Options{})
	if !strings.Contains(page, `id="ranks-operations"`) || strings.Contains(page, `data-chart="ranks"`) {
		t.Error("the page lacks the operations, or has an empty chart")
	}
}

// TestPageWithoutRanks checks that such a page does not mention them.
func TestPageWithoutRanks(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, analyzetest.TrainingRecording(t).Timeline(), Options{})
	if strings.Contains(page, `id="ranks"`) || len(rankLines(t, page)) > 0 {
		t.Error("the page has a section of ranks")
	}
}

// TestPageOfHostileRanks checks that names of communicators are not markup.
func TestPageOfHostileRanks(t *testing.T) {
	testclass.Unit(t)
	recording := lateJob(t, 50)
	for _, r := range recording.Rows {
		switch r.Kind {
		case format.KindCommunicator:
			r.Name = "</script><script>alert(1)</script>"
		case format.KindCollective:
			r.CommunicatorRank, r.CommunicatorSize = -1, 1<<30
		}
	}
	if page := pageText(t, recording.Timeline(), Options{}); strings.Contains(page, "<script>alert") {
		t.Error("a name is markup")
	}
}
