package torchsnapshot

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestReportsWithoutAllocatorEvents runs the reports on a recording that has only the allocator's
// own reports: values that these do not contain are absent, and a report without any data returns
// an error or a note.
func TestReportsWithoutAllocatorEvents(t *testing.T) {
	testclass.Unit(t)
	recording, w := analyzetest.ReportedTrainingRecording(t, analyzetest.TorchConf{}, 3_000_000)
	tl := recording.Timeline()
	r, err := allocator.RunWithOptions(tl, allocator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := w.CheckedTotals()
	for key, want := range map[string]any{
		"allocated_bytes":      sum.Allocated,
		"reserved_bytes":       sum.Reserved,
		"cached_bytes":         sum.Reserved - sum.Allocated,
		"allocations":          sum.Allocations,
		"from_start":           true,
		"requested_bytes":      nil,
		"active_bytes":         nil,
		"inactive_split_bytes": nil,
		"segments":             nil,
		"disagreed_events":     int64(0),
		"lost_frees":           int64(0),
	} {
		if got := analyzetest.CellValue(t, r, 0, key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	fragReport, pictures, err := frag.RunWithOptions(tl, frag.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if lacks, _ := fragReport.Facts[0].Value.(string); !strings.Contains(lacks, "the recording has no segments") ||
		!strings.Contains(lacks, "--allocator=auto") ||
		len(pictures) != 0 ||
		len(fragReport.Tables[0].Rows) != 0 {
		t.Errorf("frag: %+v, %d maps, rows %v", fragReport.Facts, len(pictures), fragReport.Tables[0].Rows)
	}
	s, data := takeSnapshot(t, tl, Options{At: query.MomentGivenTime, AtNs: analyzetest.Epoch + w.Now})
	if text := strings.Join(
		s.Missing,
		"\n",
	); !strings.Contains(text, "segments are inferred from reported blocks") ||
		!strings.Contains(text, "bytes asked for") {
		t.Errorf("snapshot: %q", s.Missing)
	}
	var got torchPickle
	unpickle(t, data, &got)
	blocks := w.LiveBlocks()
	n, actions := 0, make(map[string]int64)
	for _, g := range got.Segments {
		for _, b := range g.Blocks {
			if b.State == "inactive" {
				continue
			}
			n++
			if want := blocks[b.Address]; b.Size != want.Bytes || b.State != "active_allocated" {
				t.Errorf("block %+v, want %+v", b, want)
			}
		}
	}
	for _, e := range got.Device_traces[0] {
		actions[e.Action]++
	}
	if n != len(blocks) || len(actions) != 2 || actions["alloc"]-actions["free_completed"] != sum.Allocations {
		t.Errorf("%d of %d blocks, trace %v", n, len(blocks), actions)
	}
}
