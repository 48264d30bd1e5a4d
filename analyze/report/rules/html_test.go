package rules_test

import (
	"bytes"
	stdhtml "html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// pageOfRules returns the HTML page of a recording.
func pageOfRules(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) string {
	t.Helper()
	var page bytes.Buffer
	if _, err := html.WritePage(
		recording.Timeline(),
		&page,
		html.Options{Options: opt, Name: "run.parquet"},
	); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// TestHTMLHitsMatchRules compares the hits at the top of the HTML page with the report of rules.
func TestHTMLHitsMatchRules(t *testing.T) {
	testclass.Unit(t)
	row := regexp.MustCompile(
		`<tr><td><span class="level \w+">(\w+)</span></td><td><strong>([\w-]+)</strong> ([^<]*)(?:<div class="where">([^<]*)</div>)?<div class="advice">([^<]*)</div>`,
	)
	for name, recording := range map[string]*analyzetest.TestRecording{
		"troubled": rulecases.TroubledRecording(t),
		"ranks":    analyzetest.FourRanksRecording(t),
		"training": analyzetest.TrainingRecording(t),
		"hostile":  analyzetest.HostilePageRecording(t),
		"steady":   analyzetest.SteadyRecording(t),
	} {
		for _, opt := range []query.Options{{}, {Suppressions: analyzetest.ParseSuppressions(t, "leak:train_step")}} {
			page := pageOfRules(t, recording, opt)
			r := checked(t, recording, rules.Options{Options: opt})
			var want, got []string
			for i := range analyzetest.ColumnTexts(t, r, "hits", "rule") {
				var cells []string
				for _, column := range []string{"severity", "rule", "what", "where", "advice"} {
					if v := analyzetest.ColumnTexts(t, r, "hits", column)[i]; v != "<nil>" {
						cells = append(cells, html.ShortenSentence(v))
					} else {
						cells = append(cells, "")
					}
				}
				want = append(want, strings.Join(cells, " | "))
			}
			for _, m := range row.FindAllStringSubmatch(page, -1) {
				got = append(got, stdhtml.UnescapeString(strings.Join(m[1:], " | ")))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n%q\nwant\n%q", name, got, want)
			}
		}
	}
}

// TestHTMLListsFindingsWithoutRule has problems that no rule reports: a fragmented pool, one failed
// call, and an Xid from before the recording.
func TestHTMLListsFindingsWithoutRule(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	analyzetest.AddFragmentedAllocator(recording)
	recording.AddCall(format.KindAPI, "cuModuleLoadData", 59*analyzetest.Second, analyzetest.Us).Result = 209
	recording.AddXid(-90*analyzetest.Second, 1, 42, 31, format.XidFact{Text: "MMU Fault", Before: true})
	page := pageOfRules(t, recording, query.Options{})
	for _, want := range []string{
		"2.0 GiB of 3.9 GiB reserved by process 42 can neither be used nor released: ",
		"1 call of cuModuleLoadData returned CUDA_ERROR_NO_BINARY_FOR_GPU, first at 59.00s",
		"1 Xid reported before the recording began",
	} {
		if strings.Count(page, "<li>"+want) != 1 {
			t.Errorf("the page lacks %q", want)
		}
	}
	if page := pageOfRules(
		t,
		analyzetest.SteadyRecording(t),
		query.Options{},
	); strings.Contains(
		page,
		`class="findings"`,
	) {
		t.Error("a steady training has findings")
	}
}
