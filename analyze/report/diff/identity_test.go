package diff_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestRowsOfTwoRecordingsArePairedByRank(t *testing.T) {
	testclass.Unit(t)
	before, after, bare := analyzetest.FourRanksRecording(
		t,
	), analyzetest.FourRanksRecording(
		t,
	), analyzetest.FourRanksRecording(
		t,
	)
	for i := range int32(4) {
		before.AddIdentity(42+i, analyzetest.RankIdentity(int(i), 4, "a"), nil)
		after.AddIdentity(45-i, analyzetest.RankIdentity(int(i), 4, "b"), nil)
	}
	diffReport := func(tl *timeline.Timeline, o query.Options) (*report.Report, error) {
		return hang.RunWithOptions(tl, hang.Options{Options: o})
	}
	r := newDiffReport(t, side(t, before, "a", diffReport, ""), side(t, after, "b", diffReport, ""), query.Options{})
	changed := make(map[string]string)
	verdicts := analyzetest.ColumnTexts(t, r, "processes", "verdict")
	for i, rank := range analyzetest.ColumnTexts(t, r, "processes", "rank") {
		changed[rank] = verdicts[i]
	}
	if want := map[string]string{
		"0": "hanging",
		"1": "hanging -> idle",
		"2": "idle -> hanging",
		"3": "hanging",
	}; !maps.Equal(
		changed,
		want,
	) {
		t.Errorf("got %v, want %v", changed, want)
	}
	for _, sides := range [][2]*analyzetest.TestRecording{{before, bare}, {bare, after}} {
		r := newDiffReport(
			t,
			side(t, sides[0], "a", diffReport, ""),
			side(t, sides[1], "b", diffReport, ""),
			query.Options{},
		)
		if got := analyzetest.ColumnTexts(
			t,
			r,
			"processes",
			"row",
		); slices.Contains(got, "new") ||
			slices.Contains(got, "gone") {
			t.Errorf("only one recording has ranks: %v", got)
		}
		if ranks := analyzetest.ColumnTexts(t, r, "setup", "what"); !slices.Contains(ranks, "ranks") {
			t.Errorf("different: %v", ranks)
		}
	}
}
