package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Run compares one report of two recordings. It pairs rows by their key columns. Rows with equal keys are
// paired in the order of their tables. It sorts rows by the size of their change. It uses only opt.Sort and
// opt.Top, and returns a *report.SortError if no table has the column opt.Sort.
func Run(before, after *Side, opt query.Options) (*report.Report, error) {
	a, b := before.report, after.report
	r := &report.Report{
		Command: "diff",
		Window:  b.Window,
		Quality: b.Quality,
		Before:  &a.Quality,
		NoMatch: cmp.Or(b.NoMatch, a.NoMatch),
	}
	for _, n := range a.Notes {
		r.Notes = append(r.Notes, "before: "+n)
	}
	for _, n := range b.Notes {
		r.Notes = append(r.Notes, "after: "+n)
	}
	d := reportComparer{before: before, after: after}
	r.Tables = []report.Table{setupTable(before, after), d.numberTable()}
	var skipped []string
	for i := range b.Tables {
		after := &b.Tables[i]
		at := slices.IndexFunc(a.Tables, func(t report.Table) bool { return t.Name == after.Name })
		if at < 0 || !isTableComparable(after) {
			skipped = append(skipped, after.Name)
			continue
		}
		r.Tables = append(r.Tables, d.compareTables(&a.Tables[at], after))
	}
	r.Totals = d.computeTotals()
	r.Facts = append(report.NewFacts(factColumns, report.Values{
		"report":       b.Command,
		"before":       before.label(),
		"after":        after.label(),
		"per":          d.divisorText(),
		"not_compared": strings.Join(skipped, ", "),
	}), d.numbers...)
	return r, sortAndCutTables(r.Tables, opt.Sort, opt.Top)
}

// reportComparer compares the tables and numbers of two reports and counts the differences.
type reportComparer struct {
	before, after                 *Side
	changed, added, removed, same int64         // number of changed, new, removed and equal rows
	numbers                       []report.Fact // comparisons of facts and totals
	verdicts                      []report.Fact // numbers of rows that got or lost a verdict
}

// divisorText returns the divisors of the numbers as text, or "" if numbers are not divided.
func (rc *reportComparer) divisorText() string {
	if rc.after.amount == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s: before %s, after %s",
		rc.after.per.unit,
		units.FormatRate(rc.before.amount),
		units.FormatRate(rc.after.amount),
	)
}

// computeTotals returns the totals of the comparison.
func (rc *reportComparer) computeTotals() []report.Fact {
	return append(report.NewFacts(totalColumns, report.Values{
		"changed": rc.changed,
		"new":     rc.added,
		"gone":    rc.removed,
		"same":    rc.same,
	}), rc.verdicts...)
}

// sortAndCutTables sorts all tables that have the column by, and cuts them to top rows. It skips
// the tables setup and numbers. It returns a *report.SortError if no table has the column.
func sortAndCutTables(tables []report.Table, by string, top int) error {
	var wrong error
	sorted := false
	for i := range tables {
		t := &tables[i]
		if t.Name == setupTableName || t.Name == numbersTableName {
			continue
		}
		err := t.SortAndCut(by, 0)
		sorted = sorted || err == nil
		if wrong == nil {
			wrong = err
		}
		if err := t.SortAndCut("", top); err != nil {
			return err
		}
	}
	if sorted {
		return nil
	}
	return wrong
}
