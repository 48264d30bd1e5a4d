package quality_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMissingBeginning checks that a recording that lacks the beginning of a process says so, and has
// no high confidence.
func TestMissingBeginning(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		name       string
		late       *format.Late
		note       string // message of a note
		confidence string
		texts      []string // parts of the line of quality
		notes      int
	}{
		{name: "complete", confidence: report.ConfidenceHigh},
		{
			name:       "counted",
			late:       &format.Late{CompleteNs: analyzetest.Epoch + 2*analyzetest.Second, Missed: map[string]int64{"allocator": 794}},
			note:       `{"library":"/lib/libc10_cuda.so","why":"it was probed late","missed":794}`,
			confidence: report.ConfidenceMedium,
			texts:      []string{"794 missed at the beginning", "complete from +2"},
			notes:      1,
		},
		{
			name:       "unknown",
			late:       &format.Late{Processes: 1, CompleteNs: analyzetest.Epoch + 2*analyzetest.Second},
			note:       `{"why":"it was probed late","missed":-1}`,
			confidence: report.ConfidenceMedium,
			texts:      []string{"1 process seen late", "complete from +2"},
			notes:      1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			recording := analyzetest.NewTestRecording(t)
			recording.Meta.Late = test.late
			recording.AddCall(format.KindAlloc, "cuMemAlloc_v2", 3*analyzetest.Second, 1000)
			if test.note != "" {
				for range 2 { // a later note replaces an earlier one
					recording.AddRow(format.Row{
						Kind: format.KindNote, Name: format.NoteBeginning, Pid: 42, Device: -1,
						StartNs: analyzetest.Epoch + 2*analyzetest.Second, Message: test.note,
					})
				}
			}
			timeline := recording.Timeline()
			r, err := leaks.Run(timeline, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			q := &r.Quality
			if level, reasons := q.Confidence(1000); level != test.confidence {
				t.Errorf("confidence %s: %v", level, reasons)
			}
			for _, text := range test.texts {
				if !strings.Contains(q.String(), text) {
					t.Errorf("no %q in %s", text, q)
				}
			}
			if notes := timeline.Facts.Notes; len(notes) != test.notes {
				t.Errorf("notes %q", notes)
			}
		})
	}
}
