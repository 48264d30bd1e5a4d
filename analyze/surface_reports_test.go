package analyze_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestReportsOfAllKindsOfMemory(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.AllMemoryKindsRecording(t).Timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(opt query.Options) (*report.Report, error) { return leaks.Run(tl, opt) }, "summary": func(opt query.Options) (*report.Report, error) { return summary.Run(tl, opt) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CompareGolden(
			t,
			"surface."+command+".table",
			analyzetest.RenderReport(t, r, render.Options{Width: 100}),
		)
		analyzetest.CompareGolden(
			t,
			"surface."+command+".json",
			analyzetest.RenderReport(t, r, render.Options{Format: "json"}),
		)
		for name, want := range map[string]float64{
			"kernels_run":       396 + 400,
			"captured_launches": 4,
			"graph_launches":    100,
			"borrowed_opened":   2,
			"borrowed_open":     1,
			"borrowed_bytes":    float64(16 * analyzetest.Mib), "graph_allocs": 1, "growing": 1,
		} {
			if got, _, known := r.FindNumber(name); known && got != want || !known && command == "summary" {
				t.Errorf("%s: %s = %v, want %v", command, name, got, want)
			}
		}
		if oom, ok, _ := r.FindNumber("oom_in_ns"); !ok || oom <= 0 {
			t.Errorf("%s: out of memory in %v, although cuMemGetInfo returned free memory", command, oom)
		}
	}
}

func TestStacksOfOtherRowsNeedAllStacks(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	show := func(opt query.Options) string {
		r, err := leaks.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		if r.Tables[0].Rows[4].Stack == nil {
			t.Error("JSON lacks the stack of a churn row")
		}
		return string(analyzetest.RenderReport(t, r, render.Options{Width: 100}))
	}
	for name, text := range map[string]string{
		"by default": show(query.Options{}),
		"all stacks": show(query.Options{AllStacks: true}),
		"all frames": show(query.Options{AllFrames: true}),
	} {
		_, evidence, _ := strings.Cut(text, "\n\n")
		if got := strings.Contains(evidence, "churn: train_step"); got != (name != "by default") {
			t.Errorf("%s: stack of a churn row shown: %v", name, got)
		}
		if !strings.Contains(evidence, "growing: log_metrics") || !strings.Contains(evidence, "retained: Cache::fill") {
			t.Errorf("%s: leaks without stack", name)
		}
	}
}

func TestShortKernelNamesAreDifferent(t *testing.T) {
	testclass.Unit(t)
	stats := make(map[string]*calls.CallStats)
	for _, name := range []string{
		"k<A<long long, double>>",
		"k<A<int, float, int>>",
		"k<A<int, float, long>>",
		"k<B<int>>",
		"k<B<long>>",
		"gemm",
	} {
		stats[name] = new(calls.CallStats)
	}
	got := calls.ShortenKernelNames(stats)
	want := map[string]string{
		"k<A<int, float, int>>":   "k<A<...>> #1",
		"k<A<int, float, long>>":  "k<A<...>> #2",
		"k<A<long long, double>>": "k<A<...>> #3",
		"k<B<int>>":               "k<B<int>>",
		"k<B<long>>":              "k<B<long>>",
		"gemm":                    "gemm",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCutTextsStayDifferent(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{"short", "shorter"}, "short|shorter"},
		{[]string{"abcdefghijklmnopqrstuvwxyz", "other"}, "abcdefghijklmno…|other"},
		{[]string{"abcdefghijklmnopqrstuvwxyz #1", "abcdefghijklmnopqrstuvwxyz #2"}, "abcdefghijkl… " +
			"#1|abcdefghijkl… #2"},
		{[]string{"abcdefghijklmnopqrstuvwx=1=", "abcdefghijklmnopqrstuvwx=2=", "abc"}, "abcdefgh…uvwx=1=|abcdefgh…uvwx=2=|abc"},
		{[]string{"abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"}, "abcdefghijklmno…|abcdefghijklmno…"},
	} {
		var rows [][]string
		for _, text := range c.texts {
			rows = append(rows, []string{text})
		}
		render.CutTableCells(rows, []int{16})
		var got []string
		for _, row := range rows {
			got = append(got, row[0])
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWrapped(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 0, ">one two three\n"},
		{"one two three", 8, ">one two\n..three\n"},
		{"one two three", 3, ">one\n..two\n..three\n"},
		{"", 8, ">\n"},
	} {
		if got := render.WrapText(c.text, ">", "..", c.width); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
	if render.WrapText("日本語 日本語", "", "", 7) != "日本語 日本語\n" {
		t.Error("width is counted in bytes")
	}
}
