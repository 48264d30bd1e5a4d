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
	gpupkg "github.com/gpurec/gpurec/analyze/report/gpu"
	leakspkg "github.com/gpurec/gpurec/analyze/report/leaks"
	memorypkg "github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Colours change nothing but colours, and no other format has them.
func TestOnlyJudgementsArePainted(t *testing.T) {
	tl := analyzetest.Training(t).Timeline()
	leaks, err := leakspkg.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := gpupkg.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*report.Report{leaks, gpu} {
		for _, format := range render.Formats() {
			painted, bare := string(
				analyzetest.Rendered(t, r, render.Options{Format: format, Width: 100, Color: true}),
			), string(
				analyzetest.Rendered(t, r, render.Options{Format: format, Width: 100}),
			)
			if escapes.ReplaceAllString(painted, "") != bare {
				t.Errorf("%s as %s: colours change the text", r.Command, format)
			}
			if format != "table" && painted != bare {
				t.Errorf("%s as %s is painted", r.Command, format)
			}
		}
	}
	text := string(analyzetest.Rendered(t, leaks, render.Options{Color: true}))
	for _, want := range []string{
		render.Red + "growing" + render.Plain + "     2.3 GiB",
		render.Yellow + "retained" + render.Plain,
		"\nstartup ",
		"1. " + render.Red + "growing" + render.Plain + ": log_metrics",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if n := len(escapes.FindAllString(text, -1)); n != 8 { // two verdicts, each in the table and above its stack
		t.Errorf("%d escapes", n)
	}
}

// Without UTF-8 the output has the same shape in ASCII.
func TestASCIIKeepsTheShape(t *testing.T) {
	tl := analyzetest.Training(t).Timeline()
	memory, err := memorypkg.RunWith(tl, memorypkg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leaks, err := leakspkg.Run(tl, query.Options{MaxFrames: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*report.Report{memory, leaks} {
		for _, width := range []int{0, 80, 140} {
			rich, poor := string(
				analyzetest.Rendered(t, r, render.Options{Width: width}),
			), string(
				analyzetest.Rendered(t, r, render.Options{Width: width, ASCII: true}),
			)
			if strings.IndexFunc(poor, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
				t.Errorf("%s: not ASCII: %s", r.Command, poor)
			}
			if utf8.RuneCountInString(rich) != len(poor) ||
				strings.IndexFunc(rich, func(c rune) bool { return c >= utf8.RuneSelf }) < 0 {
				t.Errorf("%s at %d: %s\n%s", r.Command, width, rich, poor)
			}
		}
	}
}

func TestCourses(t *testing.T) {
	c := &metric.History{Window: query.Window{FromNs: 1000, ToNs: 3000}}
	for _, v := range [][2]int64{{10, 5}, {1000, 7}, {1050, 1}, {1350, 9}, {1360, 2}, {2999, 4}, {3000, 8}} {
		c.Set(v[0], v[1])
	}
	want := []int64{7, 1, 1, 9, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8}
	got := c.Values()
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
	only := &metric.History{Window: query.Window{FromNs: 5, ToNs: 5}}
	only.Set(5, 3)
	if got := only.Values(); len(got) != metric.HistorySteps || got[0] != 3 || got[metric.HistorySteps-1] != 3 {
		t.Errorf("a moment: %v", got)
	}
}

// What leaks draws is what its verdict is judged by, and a report of memory draws its peak.
func TestReportsDrawWhatTheyTell(t *testing.T) {
	tl := analyzetest.Training(t).Timeline()
	leaks, err := leakspkg.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []any{"rises", "level", "level", "level", nil} {
		floors, ok := analyzetest.Cell(t, leaks, i, "floor_course_bytes").([]int64)
		switch {
		case want == nil && ok, want != nil && len(floors) != leakspkg.Checkpoints:
			t.Errorf("row %d: %v", i, floors)
		case want == "rises" && floors[0] >= floors[leakspkg.Checkpoints-1],
			want == "level" && floors[leakspkg.Checkpoints/2] != floors[leakspkg.Checkpoints-1]:
			t.Errorf("row %d does not look like one that %s: %v", i, want, floors)
		}
	}
	memory, err := memorypkg.RunWith(tl, memorypkg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range memory.Tables[0].Rows {
		most := int64(0)
		for _, v := range r.Cells[len(r.Cells)-1].([]int64) {
			most = max(most, v)
		}
		if most != r.Cells[2] {
			t.Errorf("%v: the course's highest is %d", r.Cells, most)
		}
	}
}
