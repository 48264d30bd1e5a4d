package changes_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/internal/testclass"
)

// seeds returns the number of recordings with a fault, and of recordings without one: GPUREC_SEEDS, or 14.
func seeds() int {
	n, _ := strconv.Atoi(os.Getenv("GPUREC_SEEDS"))
	return cmp.Or(n, 14)
}

// toleranceNs is how far the time of a fault may be outside of the reported interval.
const toleranceNs = analyzetest.Second

// runChanges returns the report of a recording.
func runChanges(t *testing.T, recording *analyzetest.TestRecording) *report.Report {
	t.Helper()
	r, err := changes.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFaultsAreFound checks that each fault is found in its series at its time, and that nothing else is.
func TestFaultsAreFound(t *testing.T) {
	testclass.Unit(t)
	faults := slices.Sorted(maps.Keys(analyzetest.ChangeFaults))
	for seed := range seeds() {
		fault := faults[seed%len(faults)]
		t.Run(fmt.Sprintf("%s/%d", fault, seed), func(t *testing.T) {
			j := analyzetest.NewChangeJob(uint64(seed), fault, analyzetest.QuietJobs[seed/len(faults)%2])
			r := runChanges(t, j.Recording(t))
			isFound := false
			table := &r.Tables[0]
			for i := range table.Rows {
				row := &table.Rows[i]
				at := table.Cell(row, "at_ns").(int64)
				from := at - table.Cell(row, "within_ns").(int64)
				isAt := j.AtNs >= from-toleranceNs && j.AtNs <= at+toleranceNs
				isFound = isFound ||
					isAt && slices.Contains(analyzetest.ChangeFaults[fault], table.Cell(row, "series").(string))
				if j.AtNs < from-5*analyzetest.Second || j.AtNs > at+5*analyzetest.Second {
					t.Errorf("%v changed at %d ns, but the fault was at %d", table.Cell(row, "series"), at, j.AtNs)
				}
			}
			if !isFound {
				t.Errorf("%s at %.2f s is not found\n%s", fault, float64(j.AtNs)/1e9,
					analyzetest.RenderReport(t, r, render.Options{Width: 200}))
			}
		})
	}
}

// TestQuietJobsHaveNoChange checks that noise, warm-up, patterns, drifts, gaps and outliers are no change.
func TestQuietJobsHaveNoChange(t *testing.T) {
	testclass.Unit(t)
	for seed := range seeds() {
		quiet := analyzetest.QuietJobs[seed%len(analyzetest.QuietJobs)]
		t.Run(fmt.Sprintf("%s/%d", quiet, seed), func(t *testing.T) {
			j := analyzetest.NewChangeJob(uint64(seed), "", quiet)
			r := runChanges(t, j.Recording(t))
			if len(r.Tables[0].Rows) > 0 {
				t.Errorf("changes without a fault\n%s", analyzetest.RenderReport(t, r, render.Options{Width: 200}))
			}
		})
	}
}
