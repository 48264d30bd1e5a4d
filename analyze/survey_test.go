package analyze_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// collected are all reports that share a survey, and the rules.
type collected struct {
	survey   *survey.Survey
	rules    *rules.Scan
	finishes map[string]report.FinishFunc
}

// collectAll adds the observers of all reports and of the rules to one survey. Reports that lack classes of calls are
// left out.
func collectAll(t *testing.T, tl *timeline.Timeline) *collected {
	t.Helper()
	var opt query.Options
	c := &collected{survey: survey.New(tl, &opt.Filter), finishes: make(map[string]report.FinishFunc)}
	var err error
	if c.rules, err = rules.NewScan(c.survey, &opt); err != nil {
		t.Fatal(err)
	}
	for _, r := range analyze.Reports {
		if r.Collect == nil {
			continue
		}
		finish, err := r.Collect(c.survey, opt)
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		c.finishes[r.Name] = finish
	}
	return c
}

// results returns the reports as JSON, by name, and the hits of the rules.
func (c *collected) results(t *testing.T) map[string]string {
	t.Helper()
	list := make(map[string]string)
	hits, err := c.rules.Check(rules.SelectCheckable(c.survey.Timeline, rules.AllRules()))
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewShortHitTable(c.survey.Timeline, hits)
	list["rules"] = jsonOf(t, &report.Report{Command: "rules", Tables: []report.Table{table}})
	for name, finish := range c.finishes {
		r, err := finish()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list[name] = jsonOf(t, r)
	}
	return list
}

// TestSurveyInPieces feeds recordings in 100 pieces to a survey of all reports, as they would come while a job is
// recorded. The reports and the hits of the rules are those of the file. The recorder knows the end of the window
// before, as with --duration.
func TestSurveyInPieces(t *testing.T) {
	testclass.Unit(t)
	for name, open := range map[string]func(t *testing.T) *format.Recording{
		"caching allocator": func(t *testing.T) *format.Recording {
			recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, analyzetest.Mib)
			return recording.WriteAndOpen()
		},
		"readings of blocks": func(t *testing.T) *format.Recording {
			return analyzetest.BlocksRecording(t).WriteAndOpen()
		},
		"training with GPU times": openTraining,
		"ranks":                   openRankJob,
	} {
		t.Run(name, func(t *testing.T) {
			rec := open(t)
			whole := collectAll(t, openTimeline(t, rec))
			if err := whole.survey.Read(); err != nil {
				t.Fatal(err)
			}
			want := whole.results(t)
			got := feedPieces(t, rec).results(t)
			for name, text := range want {
				if got[name] != text {
					t.Errorf(
						"%s of the pieces differs from %s of the file:\n%s",
						name,
						name,
						firstDifference(got[name], text),
					)
				}
			}
		})
	}
}

// feedPieces returns the reports of a recording that was fed in 100 pieces.
func feedPieces(t *testing.T, rec *format.Recording) *collected {
	t.Helper()
	pieces := analyzetest.SplitRecording(t, rec, 100)
	if len(pieces) < 50 {
		t.Fatalf("%d pieces", len(pieces))
	}
	for i := range pieces {
		pieces[i].Rec.Meta, pieces[i].Rec.Path = rec.Meta, rec.Path
	}
	fed := collectAll(t, openTimeline(t, pieces[0].Rec))
	for i, piece := range pieces {
		if i > 0 {
			if err := fed.survey.Timeline.Extend(piece.Rec); err != nil {
				t.Fatal(err)
			}
		}
		if i < len(pieces)-1 {
			if err := fed.survey.Advance(piece.LimitNs); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := fed.survey.Finish(); err != nil {
		t.Fatal(err)
	}
	return fed
}

func jsonOf(t *testing.T, r *report.Report) string {
	t.Helper()
	var text bytes.Buffer
	if err := render.WriteReport(&text, r, render.Options{Format: "json"}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// firstDifference returns the first lines of two texts that differ, and the lines around them.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			from, to := max(0, i-20), i+5
			return "got\n" + strings.Join(g[from:min(to, len(g))], "\n") +
				"\nwant\n" + strings.Join(w[from:min(to, len(w))], "\n")
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}
