package digest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// ReadRows is the number of rows of each table that a digest reads: the rows with --top 100.
const ReadRows = 100

// hitFinding is the finding of the hit of a rule: its own, or that of its cause.
type hitFinding struct {
	rule    string
	finding int // index of Digest.Findings
}

// collector builds a Digest from reports.
type collector struct {
	t      *timeline.Timeline
	opt    Options
	digest *Digest
	hits   []hitFinding
	// collected has the reports that share a survey, by name.
	collected map[string]collectedReport
}

// collectedReport is a report in the survey of a digest, or the reason why it cannot be made.
type collectedReport struct {
	finish report.FinishFunc
	err    error
}

// Collect returns the digest of a recording. It runs the report rules, the summary and the reports of subjects. Its
// errors are those of the reports, except that it notes a report whose classes of calls were not recorded.
func Collect(t *timeline.Timeline, opt Options) (*Digest, error) {
	c := &collector{t: t, opt: opt, digest: &Digest{Name: opt.Name}, collected: make(map[string]collectedReport)}
	if err := c.readRecording(); err != nil {
		return nil, err
	}
	ruled, err := c.run("rules")
	if err != nil {
		return nil, err
	}
	c.addHits(ruled)
	d := c.digest
	d.Totals, d.Quality, d.NoMatch, d.Notes = ruled.Totals, ruled.Quality, ruled.NoMatch, slices.Clone(ruled.Notes)
	for _, s := range c.subjects() {
		if err := c.addSubject(s); err != nil {
			return nil, err
		}
	}
	summary, err := c.run("summary")
	if err != nil {
		return nil, err
	}
	d.Job, d.Coverage = c.describeJob(summary), c.describeCoverage(ruled)
	if d.NoMatch != nil {
		d.Notes = append([]string{d.NoMatch.Error()}, d.Notes...)
	}
	d.Findings = orderBySeverity(d.Findings)
	return d, nil
}

// quoteTexts replaces the texts of a digest by those that it shows, so that a very long name is read once for
// all lengths that Text tries.
func (d *Digest) quoteTexts() {
	quoteValues := func(values []Value) {
		for i := range values {
			values[i].Value = values[i].plain()
		}
	}
	quoteValues(d.Job)
	quoteValues(d.Coverage)
	for i := range d.Findings {
		f := &d.Findings[i]
		for _, v := range []*Value{&f.What, &f.Where, &f.Confidence, &f.Reasons, &f.Advice} {
			v.Value = v.plain()
		}
		for k := range f.Evidence {
			quoteValues(f.Evidence[k].Values)
		}
	}
	for i := range d.Checks {
		quoteValues(d.Checks[i].Values)
	}
	for i := range d.Notes {
		d.Notes[i] = quote(d.Notes[i], maxSentenceChars)
	}
}

// orderBySeverity returns the findings, the worst first. Findings of equal severity keep their order.
func orderBySeverity(findings []Finding) (ordered []Finding) {
	for _, severity := range []string{problem, notice, info} {
		for i := range findings {
			if findings[i].Severity == severity {
				ordered = append(ordered, findings[i])
			}
		}
	}
	return ordered
}

// options returns the options of all reports.
func (c *collector) options() query.Options {
	return query.Options{Filter: c.opt.Filter, Top: ReadRows}
}

// readRecording reads the recording once for the rules and most subjects.
func (c *collector) readRecording() error {
	if c.opt.Progress != nil {
		c.opt.Progress("recording")
	}
	sv := survey.New(c.t.NewView(), &c.opt.Filter)
	names := []string{"rules"}
	for _, s := range c.subjects() {
		// Without events of allocators, a survey that follows the program's memory sees no state of them from before.
		if len(c.t.Allocations) > 0 || s.report != "frag" {
			names = append(names, s.report)
		}
	}
	for _, name := range names {
		if collect := analyze.FindReport(name).Collect; collect != nil {
			finish, err := collect(sv, c.options())
			c.collected[name] = collectedReport{finish, err}
		}
	}
	return sv.Read()
}

// subjects returns the subjects that are in the recording.
func (c *collector) subjects() (list []*subject) {
	for i := range subjects {
		if s := &subjects[i]; s.isIn == nil || s.isIn(c.t) {
			list = append(list, s)
		}
	}
	return list
}

// run computes a report.
func (c *collector) run(name string) (*report.Report, error) {
	if c.opt.Progress != nil {
		c.opt.Progress(name)
	}
	if r, ok := c.collected[name]; ok {
		if r.err != nil {
			return nil, r.err
		}
		return r.finish()
	}
	return analyze.FindReport(name).Run(c.t, c.options())
}

// addHits adds a finding for each hit of a rule that is not folded, with its evidence, and the check of the rules.
func (c *collector) addHits(r *report.Report) {
	hits := rowReader{name: r.Command, table: findTable(r, "hits")}
	for i := range hits.table.Rows {
		rule, _ := hits.cell(i, "rule").Value.(string)
		severity, _ := hits.cell(i, "severity").Value.(string)
		more, _ := hits.cell(i, "more").Value.(string)
		if hits.table.Rows[i].Folded { // these rows are the last
			c.addFolded(rule, hits.cell(i, "folded_into").Value)
			continue
		}
		c.hits = append(c.hits, hitFinding{rule, len(c.digest.Findings)})
		c.digest.Findings = append(c.digest.Findings, Finding{
			Severity: severity, Name: rule, From: hits.from(i),
			What: hits.cell(i, "what"), Where: hits.cell(i, "where"), Confidence: hits.cell(i, "confidence"),
			Reasons: hits.cell(i, "confidence_reasons"), Advice: hits.cell(i, "advice"),
			Evidence: c.evidenceOf(r, rule), Next: c.command(c.reportOf(more)),
		})
	}
	c.digest.OmittedFindings += int64(hits.table.OmittedRows)
	c.digest.Checks = append(c.digest.Checks, Check{
		Report: r.Command, Found: numberOf(r, "hits"),
		Values: append(shownFacts(r.Command, "facts", r.Facts, "rules_checked"),
			shownFacts(r.Command, "totals", r.Totals, "hits", "problems", "notices", "infos")...),
	})
}

// addFolded notes that the hit of a rule belongs to the finding of its cause.
func (c *collector) addFolded(rule string, into any) {
	cause := slices.IndexFunc(c.hits, func(h hitFinding) bool { return h.rule == into })
	if cause >= 0 {
		c.hits = append(c.hits, hitFinding{rule, c.hits[cause].finding})
	}
}

// reportOf returns the arguments of gpurec analyze in a command of the report rules.
func (c *collector) reportOf(command string) string {
	command = strings.TrimPrefix(command, "gpurec analyze ")
	return strings.TrimSuffix(command, " "+rules.QuoteShellWord(c.t.Rec.Path))
}

// evidenceOf returns the rows of evidence of a rule.
func (c *collector) evidenceOf(r *report.Report, rule string) (list []Row) {
	rows := rowReader{name: r.Command, table: findTable(r, "evidence")}
	for i := range rows.table.Rows {
		if rows.cell(i, "rule").Value == rule {
			list = append(list, rows.row(i, "count", "time_ns", "bytes", "first_ns", "last_ns", "detail", "where"))
		}
	}
	return list
}

// addSubject runs a report, and adds its check, its findings, and its evidence of hits.
func (c *collector) addSubject(s *subject) error {
	r, err := c.run(s.report)
	var missing *quality.MissingClassError
	if errors.As(err, &missing) {
		c.digest.Checks = append(c.digest.Checks, Check{
			Report: s.report, Reason: "the recording has no calls of class " + strings.Join(missing.Missing, ", "),
		})
		return nil
	}
	if err != nil {
		return fmt.Errorf("report %s: %w", s.report, err)
	}
	check := Check{
		Report: s.report,
		Values: append(
			shownFacts(s.report, "facts", r.Facts, s.facts...),
			shownFacts(s.report, "totals", r.Totals, s.totals...)...),
	}
	for i := range s.tables {
		check.Found += c.addTable(s, &s.tables[i], r)
	}
	c.digest.Checks = append(c.digest.Checks, check)
	for _, note := range r.Notes {
		if !slices.Contains(c.digest.Notes, note) {
			c.digest.Notes = append(c.digest.Notes, note)
		}
	}
	return nil
}

// addTable adds the rows of a table to the hits that they explain, or to a finding of their own. It returns the number
// of rows with a severity, including those that the report left out.
func (c *collector) addTable(s *subject, vt *verdictTable, r *report.Report) (found int64) {
	table := findTable(r, vt.name)
	if table == nil {
		return 0
	}
	rows := rowReader{name: r.Command, table: table}
	n := len(table.Rows)
	if vt.first != "" {
		n = min(n, int(numberOf(r, vt.first)))
	}
	counts := make(map[string]int64)
	owners := make(map[string]int) // index of the finding of a verdict
	for i := range n {
		name, _ := rows.cell(i, vt.column).Value.(string)
		v, ok := vt.verdicts[name]
		if what, _ := rows.cell(i, vt.what).Value.(string); !ok || vt.skips != "" && strings.Contains(what, vt.skips) {
			continue
		}
		counts[name]++
		if _, ok := owners[name]; !ok {
			owners[name] = c.findOwner(s, vt, v, r, i)
		}
		if owner := owners[name]; owner >= 0 {
			f := &c.digest.Findings[owner]
			f.Evidence = append(f.Evidence, rows.row(i, vt.values...))
		}
	}
	for name, owner := range owners {
		v := vt.verdicts[name]
		count := counts[name]
		if v.total != "" {
			count = max(count, numberOf(r, v.total))
		}
		if v.severity != "" {
			found += count
		}
		if owner >= 0 {
			c.digest.Findings[owner].OmittedRows += count - counts[name]
		}
	}
	return found
}

// findOwner returns the index of the finding that row i of a table is evidence of: the first hit of a rule about the
// same problem, else a new finding. It returns -1 for a row that is no problem by itself.
func (c *collector) findOwner(s *subject, vt *verdictTable, v verdict, r *report.Report, i int) int {
	hit := slices.IndexFunc(c.hits, func(h hitFinding) bool { return slices.Contains(v.rules, h.rule) })
	switch {
	case hit >= 0:
		return c.hits[hit].finding
	case v.severity == "":
		return -1
	}
	rows := rowReader{name: r.Command, table: findTable(r, vt.name)}
	c.digest.Findings = append(c.digest.Findings, Finding{
		Severity:   v.severity,
		Name:       s.report,
		From:       rows.from(i),
		What:       c.describe(vt, r, i),
		Where:      rows.cell(i, vt.where),
		Confidence: rows.cell(i, "confidence"),
		Reasons:    rows.cell(i, "confidence_reasons"),
		Next:       c.command(s.report),
	})
	return len(c.digest.Findings) - 1
}

// describe returns row i of a table in words.
func (c *collector) describe(vt *verdictTable, r *report.Report, i int) Value {
	rows := rowReader{name: r.Command, table: findTable(r, vt.name)}
	text := rows.table.Rows[i].Evidence
	switch facts := shownFacts(r.Command, "facts", r.Facts, vt.whatFact); {
	case len(facts) > 0:
		return facts[0]
	case vt.what != "":
		return rows.cell(i, vt.what)
	case text != "":
		return Value{Key: "evidence", Value: text, From: rows.from(i) + "/evidence"}
	}
	return rows.cell(i, vt.values[0])
}

// command returns the command of a report on the recording. A path that cannot be printed as it is becomes FILE.
func (c *collector) command(arguments string) string {
	name := rules.QuoteShellWord(c.opt.Name)
	if quote(c.opt.Name, maxNameChars) != c.opt.Name {
		name = "FILE"
	}
	words := append([]string{"gpurec analyze", arguments}, c.opt.Flags...)
	return Sanitize(strings.Join(append(words, name), " "))
}

// rowReader reads the rows of a table.
type rowReader struct {
	name  string // of the report
	table *report.Table
}

// from returns the place of a row, as in Value.From.
func (r *rowReader) from(i int) string { return fmt.Sprintf("%s#/%s/%d", r.name, r.table.Name, i) }

// cell returns a cell. Value is nil if the table has no such column.
func (r *rowReader) cell(i int, key string) Value {
	column := report.ColumnIndex(r.table, key)
	if column < 0 {
		return Value{Key: key}
	}
	return Value{
		Key: key, Unit: r.table.Columns[column].Unit, Value: r.table.Rows[i].Cells[column], From: r.from(i) + "/" + key,
	}
}

// row returns the cells of a row that have a value.
func (r *rowReader) row(i int, keys ...string) Row {
	row := Row{From: r.from(i)}
	for _, key := range keys {
		if v := r.cell(i, key); isShown(v.Value) {
			row.Values = append(row.Values, v)
		}
	}
	return row
}

// isShown reports whether a value says something.
func isShown(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case []string:
		return len(v) > 0
	}
	return true
}

// findTable returns a table of a report, or nil.
func findTable(r *report.Report, name string) *report.Table {
	for i := range r.Tables {
		if r.Tables[i].Name == name {
			return &r.Tables[i]
		}
	}
	return nil
}

// numberOf returns a number of a report, 0 if it is unknown.
func numberOf(r *report.Report, key string) int64 {
	n, _, _ := r.FindNumber(key)
	return int64(n)
}

// shownFacts returns facts of a report that have a value. part is the key of the list in the report's JSON.
func shownFacts(name, part string, facts []report.Fact, keys ...string) (list []Value) {
	for _, key := range keys {
		for _, f := range facts {
			if f.Key == key && isShown(f.Value) {
				list = append(list, Value{Key: key, Unit: f.Unit, Value: f.Value, From: name + "#/" + part + "/" + key})
			}
		}
	}
	return list
}
