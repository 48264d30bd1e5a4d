package render_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestControlCharactersAreReplaced checks that names in a recording cannot send control characters
// to a terminal, or HTML to a Markdown viewer.
func TestControlCharactersAreReplaced(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.HostileRecording(t).Timeline()
	for _, by := range group.GroupNames() {
		leakReport, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		summaryReport, err := summary.Run(tl, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		stackReport, err := stacks.Run(tl, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ruleReport, err := rules.RunWithOptions(tl, rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*report.Report{leakReport, summaryReport, stackReport, ruleReport} {
			for _, f := range []string{"table", "md"} {
				for _, width := range []int{0, 40, 80} {
					for _, c := range string(analyzetest.RenderReport(t, r, render.Options{Format: f, Width: width})) {
						if c != '\n' &&
							(unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == utf8.RuneError) {
							t.Fatalf("%s by %s as %s: %q", r.Command, by, f, c)
						}
					}
				}
			}
			if md := string(
				analyzetest.RenderReport(t, r, render.Options{Format: "md"}),
			); strings.Contains(
				md,
				"<script>",
			) {
				t.Error("HTML reaches the Markdown")
			}
			if !json.Valid(analyzetest.RenderReport(t, r, render.Options{Format: "json"})) {
				t.Error("not JSON")
			}
			if _, err := csv.NewReader(bytes.NewReader(analyzetest.RenderReport(t, r, render.Options{Format: "csv"}))).
				ReadAll(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTablesFitTheWidth(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddStack(9, strings.Repeat("at::native::vectorized_elementwise_kernel<4, ", 20)+"日本語>")
	analyzetest.SetStackAndSite(
		recording.AddAlloc(50*analyzetest.Second, 1, 0x1000, analyzetest.Mib),
		9,
		strings.Repeat("long ", 60),
	)
	tl := recording.Timeline()
	for _, width := range []int{80, 100, 132} {
		runRules := func(o query.Options) (*report.Report, error) {
			return rules.RunWithOptions(tl, rules.Options{Options: o})
		}
		for _, run := range []func(query.Options) (*report.Report, error){func(o query.Options) (*report.Report, error) { return leaks.Run(tl, o) }, func(o query.Options) (*report.Report, error) { return summary.Run(tl, o) }, func(o query.Options) (*report.Report, error) { return stacks.Run(tl, o) }, runRules} {
			r, err := run(query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(analyzetest.RenderReport(t, r, render.Options{Width: width}))) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s at %d: a line of %d: %s", r.Command, width, n, line)
				}
			}
		}
	}
}

func TestNoHeader(t *testing.T) {
	testclass.Unit(t)
	r, err := leaks.Run(analyzetest.TrainingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"table", "csv"} {
		text := string(analyzetest.RenderReport(t, r, render.Options{Format: f, NoHeader: true}))
		if !strings.HasPrefix(text, "growing") {
			t.Errorf("%s begins with %q", f, text[:20])
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	testclass.Unit(t)
	var unknown *render.UnknownFormatError
	if err := render.WriteReport(
		&bytes.Buffer{},
		&report.Report{},
		render.Options{Format: "html"},
	); !errors.As(
		err,
		&unknown,
	) {
		t.Error(err)
	}
}

func TestPlurals(t *testing.T) {
	testclass.Unit(t)
	for singular, plural := range map[string]string{
		"call":       "calls",
		"process":    "processes",
		"batch":      "batches",
		"flush":      "flushes",
		"box":        "boxes",
		"memory":     "memories",
		"query":      "queries",
		"key":        "keys",
		"kind":       "kinds",
		"more row":   "more rows",
		"lost call":  "lost calls",
		"Xid":        "Xids",
		"site":       "sites",
		"cache":      "caches",
		"size":       "sizes",
		"use":        "uses",
		"allocation": "allocations",
		"pass":       "passes", "copy": "copies", "device": "devices",
	} {
		if got := units.PluralOf(singular); got != plural {
			t.Errorf("plural of %s: %s, want %s", singular, got, plural)
		}
		if got := units.SingularOf(plural); got != singular {
			t.Errorf("singular of %s: %s, want %s", plural, got, singular)
		}
	}
	for title, want := range map[string]string{
		"processes seen late":         "1 process seen late",
		"lost memory calls":           "1 lost memory call",
		"graph launches":              "1 graph launch",
		"uses after free":             "1 use after free",
		"launches in graphs":          "1 launch in graphs",
		"destroyed links to contexts": "1 destroyed link to contexts",
		"of unknown codes":            "1 of unknown codes",
		"unlike the others":           "1 unlike the others",
		"series":                      "1 series",
		"asynchronous":                "1 asynchronous",
		"missed at the beginning":     "1 missed at the beginning",
		"":                            "1 ",
	} {
		if got := units.CountWithTitle(1, title); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := units.CountWithTitle(1234, title); got != "1,234 "+title {
			t.Errorf("got %s", got)
		}
	}
	for n, want := range map[int64]string{0: "0 processes", 1: "1 process", 2: "2 processes", 1234: "1,234 processes"} {
		if got := units.CountWithNoun(n, "process"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	testclass.Unit(t)
	for want, got := range map[string]string{
		"0 B":           units.FormatBytes(0),
		"1023 B":        units.FormatBytes(1023),
		"1.0 KiB":       units.FormatBytes(1024),
		"1.0 MiB":       units.FormatBytes(1<<20 - 1),
		"-1.5 GiB":      units.FormatBytes(-3 << 29),
		"8388608.0 TiB": units.FormatBytes(1<<63 - 1),
		"999ns":         units.FormatDuration(999),
		"1.5us":         units.FormatDuration(1500),
		"-2.0ms":        units.FormatDuration(-2e6),
		"59.99s":        units.FormatDuration(59_990_000_000),
		"2m5s":          units.FormatDuration(125 * analyzetest.Second),
		"3h10m":         units.FormatDuration(11400 * analyzetest.Second),
		"0":             units.FormatCount(0),
		"999":           units.FormatCount(999),
		"-1,000":        units.FormatCount(-1000),
		"1,234,567":     units.FormatCount(1234567),
		"-123":          units.FormatCount(-123),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	testclass.Unit(t)
	w := query.Window{FromNs: analyzetest.Epoch, ToNs: analyzetest.Epoch + 60*analyzetest.Second}
	for text, want := range map[string]int64{
		"0s":                          analyzetest.Epoch,
		"12s":                         analyzetest.Epoch + 12*analyzetest.Second,
		"1m0.5s":                      analyzetest.Epoch + 60*analyzetest.Second + 500*analyzetest.Ms,
		"2026-09-21T14:13:21Z":        analyzetest.Epoch + analyzetest.Second,
		"2026-09-21T16:13:20.5+02:00": analyzetest.Epoch + 500*analyzetest.Ms,
	} {
		if got, err := query.ParseTime(text, w); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if got, err := query.ParseTime(query.FormatOffset(want, w), w); err != nil || got != want {
			t.Errorf("%s does not survive Offset: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "12", "-3s", "yesterday", "2026-09-21"} {
		if _, err := query.ParseTime(text, w); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for text, want := range map[string]int64{
		"0":                  0,
		"7":                  7,
		"0x55d0c0de1230":     0x55d0c0de1230,
		"0xffffffffffffffff": -1,
	} {
		if got, err := query.ParseStream(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if back := query.StreamName(want); back != text {
			t.Errorf("stream %d is shown as %s", want, back)
		}
	}
	if _, err := query.ParseStream("default"); err == nil {
		t.Error("a stream named default is accepted")
	}
}
