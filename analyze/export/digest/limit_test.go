package digest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// manyProblems returns the digest of a recording with very much wrong: most rules fire, and 150 places leak.
func manyProblems(t *testing.T) *digest.Digest {
	recording := analyzetest.SteadyRecording(t)
	cases := rulecases.AllCases()
	for _, rule := range []string{
		"xid", "broken-context", "hang", "growing-site", "unchecked-error", "small-copies", "throttling", "gpu-health",
		"memory-near-limit", "invalid-free", "failed-alloc-in-loop", "rank-missing", "memcpy-async-pageable",
		"module-load-in-loop", "alloc-in-loop", "low-occupancy", "gpu-idle",
	} {
		cases[rule].Fires(recording)
	}
	for site := range int64(150) {
		id := int32(1000 + site)
		recording.AddStack(id, fmt.Sprintf("leak_%d", site))
		for i := range int64(50) {
			ptr := 0x6000_0000_0000 + (site*50+i)*analyzetest.Mib
			row := recording.AddAlloc(
				2*analyzetest.Second+i*analyzetest.Second/10,
				analyzetest.Us,
				ptr,
				analyzetest.Mib,
			)
			analyzetest.SetStackAndSite(row, id, fmt.Sprintf("leak_%d (leak.cc:%d)", site, site))
		}
	}
	for range 40 {
		recording.AddRow(format.Row{
			Kind: format.KindNote, StartNs: analyzetest.Epoch, Device: -1, Message: strings.Repeat("a note ", 50),
		})
	}
	tl := recording.Timeline()
	tl.Rec.Path = "run.parquet"
	d, err := digest.Collect(tl, digest.Options{Name: "run.parquet"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// omitted finds the lines that say how much was left out.
var omitted = regexp.MustCompile(`(?m)^- left out: ([\d,]+) more ([a-z ]+)$`)

// TestDigestCutsWholeItems cuts the digest of a recording with very much wrong. What remains is a part of
// the complete digest, item by item, and each cut is counted.
func TestDigestCutsWholeItems(t *testing.T) {
	testclass.Unit(t)
	d := manyProblems(t)
	all := decode(t, text(t, d, "json", 10_000_000))
	complete := strings.Split(text(t, d, "md", 10_000_000), "\n")
	t.Logf("%d findings, %d", all.FindingsTotal, len(strings.Join(complete, " ")))
	if all.FindingsTotal < 12 || all.FindingsOmitted != 0 {
		t.Fatalf("%d findings, %d omitted", all.FindingsTotal, all.FindingsOmitted)
	}
	last := 0
	for _, limit := range []int{digest.MinMaxChars, 2_000, 12_000, 24_000} {
		cut := decode(t, text(t, d, "json", limit))
		if len(cut.Findings)+cut.FindingsOmitted != all.FindingsTotal || cut.FindingsTotal != all.FindingsTotal ||
			len(cut.Reports)+cut.ReportsOmitted != len(all.Reports) {
			t.Errorf(
				"%d: %d of %d findings, %d left out",
				limit,
				len(cut.Findings),
				all.FindingsTotal,
				cut.FindingsOmitted,
			)
		}
		for i, f := range cut.Findings {
			checkPart(t, &f, &all.Findings[i])
		}
		markdown := text(t, d, "md", limit)
		shown := checkLines(t, markdown, complete, &all)
		t.Logf("%d: %d characters, %d findings; JSON has %d", limit, utf8.RuneCountInString(markdown), shown,
			len(cut.Findings))
		if shown < last || limit >= 2_000 && shown == 0 {
			t.Errorf("%d: %d findings, %d with a lower limit", limit, shown, last)
		}
		last = shown
	}
	if _, err := d.Text("md", digest.MinMaxChars-1); err == nil {
		t.Error("a digest of fewer characters than the minimum")
	}
	if _, err := d.Text("html", 5000); err == nil {
		t.Error("an unknown format")
	}
}

// checkPart checks that a finding is that of the complete digest, with fewer rows of evidence.
func checkPart(t *testing.T, cut, whole *finding) {
	t.Helper()
	if cut.Name != whole.Name || cut.What != whole.What || cut.Next != whole.Next || cut.Advice != whole.Advice ||
		len(cut.Evidence)+cut.EvidenceOmitted != len(whole.Evidence)+whole.EvidenceOmitted {
		t.Errorf("%+v is no part of %+v", cut, whole)
	}
	for i := range cut.Evidence {
		if cut.Evidence[i].From != whole.Evidence[i].From ||
			len(cut.Evidence[i].Values) != len(whole.Evidence[i].Values) {
			t.Errorf("%v is not %v", cut.Evidence[i], whole.Evidence[i])
		}
	}
}

// checkLines checks that each line is one of the complete digest or counts what was left out, and that the counts of
// findings and reports are right. It returns the number of findings.
func checkLines(t *testing.T, markdown string, complete []string, all *document) (findings int) {
	t.Helper()
	left := make(map[string]int)
	for _, match := range omitted.FindAllStringSubmatch(markdown, -1) {
		n, err := strconv.Atoi(strings.ReplaceAll(match[1], ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		left[strings.TrimSuffix(match[2], "s")] = n
	}
	for _, line := range strings.Split(markdown, "\n") {
		if strings.HasPrefix(line, "### ") {
			findings++
		}
		if !omitted.MatchString(line) && !slices.Contains(complete, line) {
			t.Errorf("the complete digest has no line %q", line)
		}
	}
	if findings+left["finding"] != all.FindingsTotal {
		t.Errorf("%d findings and %d left out of %d", findings, left["finding"], all.FindingsTotal)
	}
	_, section, _ := strings.Cut(markdown, "## Reports\n\n")
	section, _, _ = strings.Cut(section, "\n## ")
	reports := strings.Count(section, "\n- ") + 1
	if left["report"] > 0 {
		reports--
	}
	if reports+left["report"] != len(all.Reports) {
		t.Errorf("%d reports and %d left out of %d", reports, left["report"], len(all.Reports))
	}
	return findings
}
