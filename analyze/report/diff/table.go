package diff

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "report", Title: "report", Unit: report.UnitText, About: "the report that is compared"},
	{Key: "before", Title: "before", Unit: report.UnitText, About: "first recording, and the length of its window"},
	{Key: "after", Title: "after", Unit: report.UnitText, About: "second recording, and the length of its window"},
	{Key: "per", Title: "per", Unit: report.UnitText, About: "by what counts, bytes and times are divided, and how many that are; shares, rates, extremes and moments are not divided"},
	{Key: "not_compared", Title: "not compared", Unit: report.UnitText, About: "tables whose rows have no counterpart: they are events, or are about one recording"},
}

var totalColumns = []report.Column{
	{Key: "changed", Title: "changed rows", Unit: report.UnitCount, About: "rows that both recordings have and that are different in some number or word"},
	{Key: "new", Title: "new", Unit: report.UnitCount, About: "rows that only the second recording has"},
	{Key: "gone", Title: "gone", Unit: report.UnitCount, About: "rows that only the first recording has"},
	{Key: "same", Title: "same", Unit: report.UnitCount, About: "rows that are equal"},
}

// nameColumns explains the names that a comparison makes of those of a report.
var nameColumns = []report.Column{
	{Key: "row", Title: "ROW", Unit: report.UnitText, About: "new, gone, changed or same"},
	{Key: "<column>_before", Title: "BEFORE", Unit: report.UnitText, About: "the column in the first recording; of the columns with numbers the first that is not left out for width is shown"},
	{Key: "<column>_after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
	{Key: "<column>_change", Title: "CHANGE", Unit: report.UnitText, About: "after - before; a new row was 0 before, a gone one is 0 after, and what is unknown has no change. +/- columns are the changes of further columns"},
	{Key: "<column>_change_pct", Title: "CHANGE%", Unit: report.UnitPercent, About: "that, in percent of before; absent where before is 0"},
	{Key: "<column>_per_second_..., _per_step_...", Title: "", Unit: report.UnitText, About: "the same with --per"},
	{Key: "<total>_before, _after, _change, _change_pct", Title: "", Unit: report.UnitText, About: "the same of facts and totals of the report; for --fail-on"},
	{Key: "new_<verdict>", Title: "", Unit: report.UnitCount, About: "rows with this verdict in the second recording that had another one, or were not there, in the first: new_growing"},
	{Key: "gone_<verdict>", Title: "", Unit: report.UnitCount, About: "rows with this verdict in the first recording that have another one, or are not there, in the second"},
}

var setupColumns = []report.Column{
	{Key: "what", Title: "DIFFERENT", Unit: report.UnitText, About: "what the two recordings do not have in common; numbers can differ because of it"},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
}

// setupTable has what differs between the recordings.
func setupTable(before, after *Side) report.Table {
	table := report.Table{Name: "setup", Title: "different about the recordings", Columns: setupColumns, Aside: true}
	for i, f := range before.setup {
		if was, is := f.Value.(string), after.setup[i].Value.(string); was != is {
			table.Rows = append(table.Rows, report.Row{Cells: []any{f.Key, units.Known(was), units.Known(is)}})
		}
	}
	return table
}

// columns are before, after, change and change in percent of a column; main ones are shown.
func (d *differ) columns(c *report.Column, main bool) []report.Column {
	name := d.name(c)
	list := []report.Column{
		{Key: name + "_before", Title: "", Unit: c.Unit, About: "before: " + c.About},
		{Key: name + "_after", Title: "", Unit: c.Unit, About: "after: " + c.About},
		{Key: name + "_change", Title: "", Unit: signed(c.Unit), About: "after - before"},
		{Key: name + "_change_pct", Title: "", Unit: signed(report.UnitPercent), About: "change in percent of before"},
	}
	if main {
		list[0].Title, list[1].Title, list[2].Title, list[3].Title = c.Title+" BEFORE", "AFTER", "CHANGE", "CHANGE%"
	}
	return list
}

// numberTable compares facts and totals.
func (d *differ) numberTable() report.Table {
	table := report.Table{Name: "numbers", Title: "numbers", Aside: true, Columns: []report.Column{
		{Key: "name", Title: "NUMBER", Unit: report.UnitText, About: "fact or total of the report"}, {Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"}, {Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second"},
		{Key: "change", Title: "CHANGE", Unit: report.UnitText, About: "after - before"}, {Key: "change_pct", Title: "CHANGE%", Unit: signed(report.UnitPercent), About: "in percent of before"}}}
	a := slices.Concat(d.before.report.Totals, d.before.report.Facts)
	seen := make(map[string]bool)
	for _, f := range slices.Concat(d.after.report.Totals, d.after.report.Facts) {
		at := slices.IndexFunc(a, func(o report.Fact) bool { return o.Key == f.Key })
		if at < 0 || !isMeasure(&f.Column) || seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		was, is := d.before.value(&f.Column, a[at].Value), d.after.value(&f.Column, f.Value)
		diff, pct := difference(was, is)
		for i, c := range d.columns(&f.Column, false) {
			d.numbers = append(d.numbers, report.Fact{Column: c, Value: []any{was, is, diff, pct}[i]})
		}
		if n, ok := report.AsNumber(diff); f.Title != "" && ok && n != 0 {
			table.Rows = append(table.Rows, report.Row{Cells: []any{cmp.Or(f.Title, f.Key), f.Unit.Text(was), f.Unit.Text(is), signed(f.Unit).Text(diff), pct}})
		}
	}
	return table
}

// join compares the rows of a table.
func (d *differ) join(a, b *report.Table) report.Table {
	keys := keyColumns(b)
	var measures, words []int
	main := -1
	for i := range b.Columns {
		c := &b.Columns[i]
		switch {
		case slices.Contains(keys, i) || report.ColumnOf(a, c.Key) < 0:
		case isMeasure(c):
			measures = append(measures, i)
			if main < 0 && c.Title != "" && !slices.Contains(b.Spare, c.Key) {
				main = len(measures) - 1
			}
		case c.Unit == report.UnitText && c.Title != "" && !slices.Contains(b.Spare, c.Key):
			words = append(words, i)
		}
	}
	j := joined{differ: d, a: a, b: b, keys: keys, measures: measures, words: words, main: max(0, main)}
	return j.table()
}

// joined is a table that is being made of two.
type joined struct {
	*differ
	a, b                  *report.Table
	keys, measures, words []int // columns of b
	main                  int   // of measures, that which is shown
	target                report.Table
}

// moreShown is of how many measures beside the main one the change is shown.
const moreShown = 3

func (j *joined) table() report.Table {
	t := &j.target
	*t = report.Table{Name: j.b.Name, Title: j.b.Title, Aside: j.b.Aside, Columns: []report.Column{{Key: "row", Title: "ROW", Unit: report.UnitText, About: "new, gone, changed or same"}}}
	var labels []report.Column
	for _, i := range j.words {
		c := &j.b.Columns[i]
		t.Columns = append(t.Columns, report.Column{Key: c.Key + "_before", Title: "", Unit: report.UnitText, About: "before: " + c.About}, report.Column{Key: c.Key + "_after", Title: "", Unit: report.UnitText, About: "after: " + c.About})
		labels = append(labels, report.Column{Key: c.Key, Title: c.Title, Unit: report.UnitText, About: "before -> after"})
	}
	shown := 0
	for k, i := range j.measures {
		c := &j.b.Columns[i]
		columns := j.columns(c, k == j.main)
		if k != j.main && c.Title != "" && shown < moreShown && !slices.Contains(j.b.Spare, c.Key) {
			shown++
			columns[2].Title = "+/- " + c.Title
			t.Spare = slices.Insert(t.Spare, 0, columns[2].Key)
		}
		t.Columns = append(t.Columns, columns...)
	}
	t.Columns = append(t.Columns, labels...)
	for _, i := range j.keys {
		t.Columns = append(t.Columns, j.b.Columns[i])
	}
	verdicts := newVerdictCount(j.b)
	for _, p := range pairs(j.a, j.b) {
		j.row(p, verdicts)
	}
	if j.verdicts == nil { // a report's first table with verdicts is what it is about
		j.verdicts = verdicts.facts()
	}
	j.order()
	j.hideSame()
	return *t
}

// row adds a pair.
func (j *joined) row(p pair, verdicts *verdictCount) {
	cells := []any{"same"}
	var labels []any
	differs := p.before == nil || p.after == nil
	for _, i := range j.words {
		was, is := j.cell(p.before, true, i), j.cell(p.after, false, i)
		cells = append(cells, was, is)
		label := report.UnitText.Text(is)
		if is == nil {
			label = report.UnitText.Text(was)
		}
		if was != nil && is != nil && fmt.Sprint(was) != fmt.Sprint(is) {
			differs = true
			label = report.UnitText.Text(was) + " -> " + report.UnitText.Text(is)
		}
		labels = append(labels, label)
		if j.b.Columns[i].Key == "verdict" {
			verdicts.add(was, is)
		}
	}
	for _, i := range j.measures {
		c := &j.b.Columns[i]
		was, is := j.before.value(c, j.cell(p.before, true, i)), j.after.value(c, j.cell(p.after, false, i))
		from, to := was, is
		if p.before == nil {
			from = int64(0)
		}
		if p.after == nil {
			to = int64(0)
		}
		diff, pct := difference(from, to)
		if n, ok := report.AsNumber(diff); ok && n != 0 || (was == nil) != (is == nil) {
			differs = true
		}
		cells = append(cells, was, is, diff, pct)
	}
	of := cmp.Or(p.after, p.before)
	switch {
	case p.before == nil:
		cells[0] = "new"
		j.fresh++
	case p.after == nil:
		cells[0] = "gone"
		j.gone++
	case differs:
		cells[0] = "changed"
		j.changed++
	default:
		j.ok++
	}
	cells = append(cells, labels...)
	for _, i := range j.keys {
		cells = append(cells, j.cell(of, p.after == nil, i))
	}
	row := report.Row{Cells: cells, Stack: of.Stack, StackFrames: of.StackFrames, Brief: of.Brief || !differs}
	if len(of.Stack) > 0 || of.Evidence != "" {
		row.Evidence = evidenceOf(p)
	}
	j.target.Rows = append(j.target.Rows, row)
}

// evidenceOf is what the rows say.
func evidenceOf(p pair) string {
	switch {
	case p.before == nil:
		return p.after.Evidence
	case p.after == nil:
		return p.before.Evidence
	case p.before.Evidence == p.after.Evidence:
		return p.after.Evidence
	}
	return "before: " + p.before.Evidence + "; after: " + p.after.Evidence
}

// cell is the value of b's column i in a row of either table.
func (j *joined) cell(r *report.Row, ofA bool, i int) any {
	if r == nil {
		return nil
	}
	if ofA {
		i = report.ColumnOf(j.a, j.b.Columns[i].Key)
	}
	if i < 0 || i >= len(r.Cells) {
		return nil
	}
	return r.Cells[i]
}

// order sorts by the size of the main change, what is unknown last.
func (j *joined) order() {
	if len(j.measures) == 0 {
		return
	}
	at := 1 + 2*len(j.words) + 4*j.main + 2
	slices.SortStableFunc(j.target.Rows, func(a, b report.Row) int {
		x, ok := report.AsNumber(a.Cells[at])
		y, also := report.AsNumber(b.Cells[at])
		return cmp.Or(-report.CompareBools(ok, also), cmp.Compare(math.Abs(y), math.Abs(x)))
	})
}

// hideSame takes away headings of columns that say the same in all rows, verdicts excepted.
func (j *joined) hideSame() {
	t := &j.target
	for i := range t.Columns {
		c := &t.Columns[i]
		said := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			n, ok := report.AsNumber(r.Cells[i])
			return ok && n != 0
		})
		if strings.HasPrefix(c.Title, "+/- ") && !said {
			c.Title = ""
		}
	}
	for k, i := range j.words {
		key := j.b.Columns[i].Key
		at := 1 + 2*len(j.words) + 4*len(j.measures) + k
		if key != "verdict" && !slices.ContainsFunc(t.Rows, func(r report.Row) bool { return strings.Contains(r.Cells[at].(string), " -> ") }) {
			t.Columns[at].Title = ""
		}
	}
}
