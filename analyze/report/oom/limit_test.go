package oom_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLimitThatWasRead uses the limit that was read at attach, if the allocator's later totals do not contradict it. It
// had reserved 362 MiB, and a request of 200 MiB failed.
func TestLimitThatWasRead(t *testing.T) {
	testclass.Unit(t)
	for limit, want := range map[int64]string{
		0:                     "[] it has a limit, such as set_per_process_memory_fraction",
		300 * analyzetest.Mib: "[] it has a limit, such as set_per_process_memory_fraction", // less than it had reserved
		362 * analyzetest.Mib: "[379584512] it may hold 362.0 MiB by set_per_process_memory_fraction, and held 362.0 MiB",
		analyzetest.AttachedLimitBytes: "[536870912] it may hold 512.0 MiB by set_per_process_memory_fraction, and held " +
			"362.0 MiB",
		562*analyzetest.Mib - 1: "[589299711] it may hold 562.0 MiB",
		562 * analyzetest.Mib:   "[] it has a limit, such as set_per_process_memory_fraction", // permits the request
	} {
		recording := analyzetest.AttachedRecording(t, analyzetest.EarlierBlocksRead)
		for _, r := range recording.Rows {
			if r.Name == format.NoteAllocatorState {
				old := fmt.Sprintf(`"limit_bytes":%d`, analyzetest.AttachedLimitBytes)
				r.Message = strings.Replace(r.Message, old, fmt.Sprintf(`"limit_bytes":%d`, limit), 1)
			}
		}
		r, err := oom.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var column []string
		for _, c := range r.Tables[0].Columns {
			if c.Key == "limit_bytes" {
				column = analyzetest.ColumnTexts(t, r, "failures", "limit_bytes")
			}
		}
		got := fmt.Sprint(column) + " " + r.Tables[0].Rows[0].Evidence
		values, text, _ := strings.Cut(want, " ")
		if !strings.HasPrefix(got, values) || !strings.Contains(got, text) {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
		least := analyzetest.ColumnTexts(t, r, "failures", "limit_least_bytes")
		below := analyzetest.ColumnTexts(t, r, "failures", "limit_below_bytes")
		if bounds := fmt.Sprint(least, below); bounds != "[379584512] [589299712]" {
			t.Errorf("limit %d: bounds %s", limit, bounds)
		}
	}
}
