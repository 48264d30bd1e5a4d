package render_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/internal/testclass"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestOnlyVerdictsAreColoured checks that Color adds escape sequences and changes nothing else, and
// that only the text format has them.
func TestOnlyVerdictsAreColoured(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	leakReport, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	gpuReport, err := gpu.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*report.Report{leakReport, gpuReport} {
		for _, format := range render.ListFormats() {
			coloured, plain := string(
				analyzetest.RenderReport(t, r, render.Options{Format: format, Width: 100, Color: true}),
			), string(
				analyzetest.RenderReport(t, r, render.Options{Format: format, Width: 100}),
			)
			if escapes.ReplaceAllString(coloured, "") != plain {
				t.Errorf("%s as %s: colours change the text", r.Command, format)
			}
			if format != "table" && coloured != plain {
				t.Errorf("%s as %s has colours", r.Command, format)
			}
		}
	}
	text := string(analyzetest.RenderReport(t, leakReport, render.Options{Color: true}))
	for _, want := range []string{
		render.ColourRed + "growing" + render.ColourReset + "     2.3 GiB",
		render.ColourYellow + "retained" + render.ColourReset,
		"\nstartup ",
		"1. " + render.ColourRed + "growing" + render.ColourReset + ": log_metrics",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if n := len(escapes.FindAllString(text, -1)); n != 8 { // two verdicts, each in the table and above its stack
		t.Errorf("%d escapes", n)
	}
}

// TestASCIIKeepsWidths checks that ASCII output has only ASCII characters, and the same length.
func TestASCIIKeepsWidths(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	memoryReport, err := memory.RunWithOptions(tl, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leakReport, err := leaks.Run(tl, query.Options{MaxFrames: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*report.Report{memoryReport, leakReport} {
		for _, width := range []int{0, 80, 140} {
			unicode, ascii := string(
				analyzetest.RenderReport(t, r, render.Options{Width: width}),
			), string(
				analyzetest.RenderReport(t, r, render.Options{Width: width, ASCII: true}),
			)
			if strings.IndexFunc(ascii, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
				t.Errorf("%s: not ASCII: %s", r.Command, ascii)
			}
			if utf8.RuneCountInString(unicode) != len(ascii) ||
				strings.IndexFunc(unicode, func(c rune) bool { return c >= utf8.RuneSelf }) < 0 {
				t.Errorf("%s at %d: %s\n%s", r.Command, width, unicode, ascii)
			}
		}
	}
}

func TestCourses(t *testing.T) {
	testclass.Unit(t)
	c := &metric.MaximumHistory{Window: query.Window{FromNs: 1000, ToNs: 3000}}
	for _, v := range [][2]int64{{10, 5}, {1000, 7}, {1050, 1}, {1350, 9}, {1360, 2}, {2999, 4}, {3000, 8}} {
		c.SetValue(v[0], v[1])
	}
	want := []int64{7, 1, 1, 9, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8}
	got := c.StepMaxima()
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	for values, want := range map[[3]int64]string{{0, 1, 8}: " ▁█", {0, 0, 0}: "   ", {4, 8, -3}: "▄█ "} {
		if got := units.Sparkline(values[:]); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
	instant := &metric.MaximumHistory{Window: query.Window{FromNs: 5, ToNs: 5}}
	instant.SetValue(5, 3)
	if got := instant.StepMaxima(); len(got) != metric.HistorySteps || got[0] != 3 || got[metric.HistorySteps-1] != 3 {
		t.Errorf("a window without duration: %v", got)
	}
}

// TestSparklinesMatchReports checks that the sparkline of a growing site rises, and that the
// sparkline of memory reaches the peak of its row.
func TestSparklinesMatchReports(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	leakReport, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []any{"rises", "level", "level", "level", nil} {
		floors, ok := analyzetest.CellValue(t, leakReport, i, "floor_course_bytes").([]int64)
		switch {
		case want == nil && ok, want != nil && len(floors) != leaks.CheckpointCount:
			t.Errorf("row %d: %v", i, floors)
		case want == "rises" && floors[0] >= floors[leaks.CheckpointCount-1],
			want == "level" && floors[leaks.CheckpointCount/2] != floors[leaks.CheckpointCount-1]:
			t.Errorf("row %d: the sparkline %[3]v does not match %[2]q", i, want, floors)
		}
	}
	memoryReport, err := memory.RunWithOptions(tl, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range memoryReport.Tables[0].Rows {
		most := int64(0)
		for _, v := range r.Cells[len(r.Cells)-1].([]int64) {
			most = max(most, v)
		}
		if most != r.Cells[2] {
			t.Errorf("%v: the course's highest is %d", r.Cells, most)
		}
	}
}
