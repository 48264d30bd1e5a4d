package digest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// document is the JSON of a digest.
type document struct {
	Job, Coverage   []value
	FindingsTotal   int `json:"findings_total"`
	FindingsOmitted int `json:"findings_left_out"`
	Problems        int
	Notices         int
	Infos           int
	Findings        []finding
	Reports         []struct {
		Report string
		Found  int64
		Values []value
	}
	ReportsOmitted int `json:"reports_left_out"`
}

type value struct {
	Key, From string
	Value     any
}

type finding struct {
	Severity, Name, From, What, Where, Confidence, Advice, Next string

	WhatFrom  string `json:"what_from"`
	WhereFrom string `json:"where_from"`
	Evidence  []struct {
		From   string
		Values map[string]any
	}
	EvidenceOmitted int `json:"evidence_left_out"`
}

// decode returns a digest in JSON. Numbers keep their text.
func decode(t *testing.T, text string) (d document) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return d
}

// reports are the JSON of the reports on one recording, computed apart from the digest.
type reports struct {
	t        *testing.T
	timeline *timeline.Timeline
	byName   map[string]map[string]any
}

// json returns the JSON of a report.
func (r *reports) json(name string) map[string]any {
	r.t.Helper()
	if r.byName[name] == nil {
		result, err := analyze.FindReport(name).Run(r.timeline, query.Options{Top: digest.ReadRows})
		if err != nil {
			r.t.Fatal(err)
		}
		dec := json.NewDecoder(strings.NewReader(string(
			analyzetest.RenderReport(r.t, result, render.Options{Format: "json"}))))
		dec.UseNumber()
		content := make(map[string]any)
		if err := dec.Decode(&content); err != nil {
			r.t.Fatal(err)
		}
		r.byName[name] = content
	}
	return r.byName[name]
}

// lookUp returns the value to which a place of the digest points: REPORT#/POINTER.
func (r *reports) lookUp(from string) any {
	r.t.Helper()
	name, pointer, ok := strings.Cut(from, "#/")
	if !ok {
		r.t.Fatalf("place %q", from)
	}
	var at any = r.json(name)
	for _, key := range strings.Split(pointer, "/") {
		switch node := at.(type) {
		case map[string]any:
			at = node[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(node) {
				r.t.Fatalf("place %q: no %s", from, key)
			}
			at = node[i]
		default:
			r.t.Fatalf("place %q: nothing at %s", from, key)
		}
	}
	return at
}

// unit returns the unit that --explain prints for a value of a report.
func unit(t *testing.T, from string) report.Unit {
	name, _, _ := strings.Cut(from, "#")
	key := from[strings.LastIndex(from, "/")+1:]
	sections := slices.Concat(analyze.FindReport(name).Sections, []report.Section{{Columns: report.QualityColumns}})
	for _, s := range sections {
		for _, c := range s.Columns {
			if c.Key == key && c.Unit != report.UnitText {
				return c.Unit
			}
		}
	}
	if key == "dur_ns" {
		return report.UnitNs
	}
	return report.UnitText
}

// isSame reports whether the digest has the value of a report. Texts may be sanitized and cut.
func isSame(got, want any) bool {
	if list, ok := want.([]any); ok {
		var texts []string
		for _, v := range list {
			texts = append(texts, fmt.Sprint(v))
		}
		want = strings.Join(texts, "; ")
	}
	text, isText := want.(string)
	if !isText {
		return fmt.Sprint(got) == fmt.Sprint(want)
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "'")), " ")
	start, isCut := strings.CutSuffix(fmt.Sprint(got), "…")
	return fmt.Sprint(got) == text || isCut && len(start) > 30 && strings.HasPrefix(text, start)
}

// shown returns how Markdown must show a value of a report.
func shown(t *testing.T, from string, want any) string {
	switch want := want.(type) {
	case json.Number:
		n, err := want.Float64()
		if err != nil {
			t.Fatal(err)
		}
		u := unit(t, from)
		var v any = n
		if n == math.Trunc(n) && !strings.ContainsAny(want.String(), ".e") && u != report.UnitPercent &&
			u != report.UnitRatio {
			v, _ = want.Int64()
		}
		text := u.FormatValue(v)
		switch u {
		case report.UnitPercent:
			text += " %"
		case report.UnitBytesRate:
			text += "/min"
		}
		return text
	case bool:
		return strconv.FormatBool(want)
	}
	return "`"
}

// TestDigestsOfKnownPrograms compares each value of the digests of programs with the JSON of the report that it is
// from, in JSON and in Markdown, and checks that the program's problem comes first.
func TestDigestsOfKnownPrograms(t *testing.T) {
	testclass.Unit(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			tl := p.record(t)
			tl.Rec.Path = "run.parquet"
			d, err := digest.Collect(tl, digest.Options{Name: "run.parquet"})
			if err != nil {
				t.Fatal(err)
			}
			markdown, compact := text(t, d, "md", 100_000), text(t, d, "json", 100_000)
			if p.name == "fine" {
				analyzetest.CompareGolden(t, "fine.md", []byte(text(t, d, "md", digest.DefaultMaxChars)))
			}
			c := &comparison{
				reports: &reports{t, tl.NewView(), make(map[string]map[string]any)}, t: t, document: decode(t, compact),
				lines: strings.Split(markdown, "\n"),
			}
			c.compareValues()
			c.compareFindings()
			c.compareCounts()
			c.checkProblem(&p)
			t.Logf("%d values compared, %d characters", c.compared, utf8.RuneCountInString(markdown))
			if c.compared < 40 {
				t.Errorf("only %d values", c.compared)
			}
		})
	}
}

// text returns a digest.
func text(t *testing.T, d *digest.Digest, format string, maxChars int) string {
	t.Helper()
	text, err := d.Text(format, maxChars)
	if err != nil {
		t.Fatal(err)
	}
	if n := utf8.RuneCountInString(text); n > maxChars {
		t.Errorf("%s: %d characters, at most %d", format, n, maxChars)
	}
	return text
}

// comparison compares a digest with the reports.
type comparison struct {
	*reports
	document
	t        *testing.T
	lines    []string // of the Markdown
	compared int
}

// compare compares one value in JSON, and its text in the line of Markdown that has all of marks.
func (c *comparison) compare(from string, got any, marks ...string) {
	c.t.Helper()
	want := c.lookUp(from)
	c.compared++
	if !isSame(got, want) {
		c.t.Errorf("%s: %v, the report has %v", from, got, want)
	}
	content := shown(c.t, from, want)
	if content == "`" {
		content = "`" + fmt.Sprint(got) + "`"
	}
	for _, line := range c.lines {
		if strings.Contains(line, content) &&
			!slices.ContainsFunc(marks, func(m string) bool { return !strings.Contains(line, m) }) {
			return
		}
	}
	c.t.Errorf("%s: no line with %q and %q", from, content, marks)
}

// compareValues compares the lines about the job, the coverage and the reports.
func (c *comparison) compareValues() {
	for _, v := range slices.Concat(c.Job, c.Coverage) {
		if v.From != "" {
			c.compare(v.From, v.Value, "- ")
		}
	}
	for _, r := range c.Reports {
		for _, v := range r.Values {
			c.compare(v.From, v.Value, "- "+r.Report+": ")
		}
	}
}

// compareFindings compares the findings and their evidence.
func (c *comparison) compareFindings() {
	for _, f := range c.Findings {
		c.compare(cmp.Or(f.WhatFrom, f.From+"/what"), f.What, "- what: ")
		if f.Where != "" {
			c.compare(cmp.Or(f.WhereFrom, f.From+"/where"), f.Where, "- where: ")
		}
		if f.Confidence != "" {
			c.compare(f.From+"/confidence", f.Confidence, "- confidence: ")
		}
		if strings.HasPrefix(f.From, "rules#") {
			c.compareHeading(&f)
			c.compare(f.From+"/advice", f.Advice, "- do: ")
			c.compare(f.From+"/more", f.Next, "- next: ")
		}
		for _, row := range f.Evidence {
			for key, v := range row.Values {
				c.compare(row.From+"/"+key, v, "- evidence, "+row.From+": ")
			}
		}
	}
}

// compareHeading compares the heading of a hit.
func (c *comparison) compareHeading(f *finding) {
	rule, severity := c.lookUp(f.From+"/rule"), c.lookUp(f.From+"/severity")
	heading := fmt.Sprintf(". %v: %v", severity, rule)
	c.compared += 2
	if f.Name != rule || f.Severity != severity ||
		!slices.ContainsFunc(c.lines, func(l string) bool { return strings.HasSuffix(l, heading) }) {
		c.t.Errorf("%s: %s %s, the report has %v %v", f.From, f.Severity, f.Name, severity, rule)
	}
}

// compareCounts checks that no finding and no verdict is missing.
func (c *comparison) compareCounts() {
	if n := c.lookUp("rules#/totals/findings"); fmt.Sprint(n) != fmt.Sprint(len(c.hits())) {
		c.t.Errorf("%d hits in the digest, the report has %v findings", len(c.hits()), n)
	}
	for _, place := range []struct{ total, table, key, verdict string }{
		{"leaks#/totals/growing", "leaks#/leaks", "verdict", "growing"},
		{"leaks#/totals/exit_leaks", "leaks#/leaks", "verdict", "exit leak"},
		{"hang#/totals/hanging", "hang#/processes", "verdict", "hanging"},
		{"oom#/totals/failures", "oom#/failures", "", ""},
		{"xid#/totals/xids", "xid#/xids", "", ""},
		{"frag#/totals/fragmented", "frag#/spaces", "verdict", "fragmented"},
		{"ranks#/totals/late_ranks", "ranks#/ranks", "", ""},
	} {
		want, _ := c.lookUp(place.total).(json.Number).Int64()
		got := int64(0)
		for _, f := range c.Findings {
			for _, row := range f.Evidence {
				if strings.HasPrefix(row.From, place.table+"/") &&
					(place.key == "" || row.Values[place.key] == place.verdict) {
					got++
				}
			}
			if f.EvidenceOmitted > 0 {
				got = max(got, want) // the finding says how many more there are
			}
		}
		if got != want {
			c.t.Errorf("%s is %d, the digest has %d rows", place.total, want, got)
		}
	}
}

// hits returns the findings that are hits of rules.
func (c *comparison) hits() (list []finding) {
	for _, f := range c.Findings {
		if strings.HasPrefix(f.From, "rules#") {
			list = append(list, f)
		}
	}
	return list
}

// checkProblem checks that the first finding is the problem of a program.
func (c *comparison) checkProblem(p *program) {
	if p.finding == "" {
		if c.FindingsTotal != 0 || !slices.Contains(c.lines, "- covered: 100.0 % of the calls") ||
			!slices.ContainsFunc(
				c.lines,
				func(l string) bool { return strings.HasPrefix(l, "- nothing found: no rule fired (checked: 27 of ") },
			) {
			c.t.Errorf("%d findings:\n%s", c.FindingsTotal, strings.Join(c.lines, "\n"))
		}
		return
	}
	if len(c.Findings) == 0 {
		c.t.Fatalf("nothing found:\n%s", strings.Join(c.lines, "\n"))
	}
	f := c.Findings[0]
	if f.Name != p.finding || f.Severity != p.severity || !strings.HasPrefix(f.Where, p.where) {
		c.t.Errorf("%s %s at %s, want %s %s at %s", f.Severity, f.Name, f.Where, p.severity, p.finding, p.where)
	}
	has := p.evidence == ""
	for _, row := range f.Evidence {
		has = has || strings.HasPrefix(row.From, p.evidence+"#")
	}
	if !has {
		c.t.Errorf("no evidence of %s: %v", p.evidence, f.Evidence)
	}
}
