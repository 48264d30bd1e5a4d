package diff

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// tableJoin is the comparison of two tables.
type tableJoin struct {
	*differ
	a, b     *report.Table
	atA, atB map[string]int  // column indexes by key
	keys     []report.Column // columns of b that identify a row
	texts    []report.Column // other text columns of b that both tables show
	measures []measure       // number columns of b that both tables have
	main     string          // key of the measure with all four columns shown
	target   report.Table
}

// maxShownChanges is the number of further measures whose change text output shows.
const maxShownChanges = 3

// join returns the comparison of two tables.
func (d *differ) join(a, b *report.Table) report.Table {
	j := tableJoin{differ: d, a: a, b: b, atA: positions(a), atB: positions(b), keys: keyColumns(b)}
	j.chooseColumns()
	j.target = report.Table{Name: b.Name, Title: b.Title, Secondary: b.Secondary}
	j.addColumns()
	verdicts := newVerdictCount(b)
	for _, p := range pairs(a, b) {
		j.addRow(p, verdicts)
	}
	if j.verdicts == nil { // only the main table's verdicts count
		j.verdicts = verdicts.facts()
	}
	j.order()
	j.hideSame()
	return j.target
}

// positions returns the column indexes of a table by key.
func positions(t *report.Table) map[string]int {
	at := make(map[string]int, len(t.Columns))
	for i, c := range t.Columns {
		at[c.Key] = i
	}
	return at
}

// chooseColumns sets the texts and measures. It also sets the main measure: the first one that text
// output never hides.
func (j *tableJoin) chooseColumns() {
	isTaken := func(key string) bool { return report.ColumnOf(j.b, key) >= 0 }
	for _, c := range j.b.Columns {
		_, isCommon := j.atA[c.Key]
		isKey := slices.ContainsFunc(j.keys, func(k report.Column) bool { return k.Key == c.Key })
		isShown := c.Title != "" && !slices.Contains(j.b.HideFirst, c.Key)
		switch {
		case isKey || !isCommon:
		case isMeasure(&c):
			j.measures = append(j.measures, j.measure(c, isTaken))
			if j.main == "" && isShown {
				j.main = c.Key
			}
		case c.Unit == report.UnitText && isShown:
			j.texts = append(j.texts, c)
		}
	}
	if j.main == "" && len(j.measures) > 0 {
		j.main = j.measures[0].Key
	}
}

// rowColumn is the first column of a comparison.
var rowColumn = report.Column{
	Key: "row", Title: "ROW", Unit: report.UnitText, About: "change of the row: new, gone, changed or same",
}

// addColumns adds the columns of the comparison: the kind of change, the texts and measures of both
// recordings, and the keys.
func (j *tableJoin) addColumns() {
	t := &j.target
	t.Columns = []report.Column{rowColumn}
	var labels []report.Column
	for _, w := range j.texts {
		t.Columns = append(t.Columns,
			report.Column{Key: w.Key + "_before", Unit: report.UnitText, About: "before: " + w.About},
			report.Column{Key: w.Key + "_after", Unit: report.UnitText, About: "after: " + w.About})
		labels = append(
			labels,
			report.Column{Key: w.Key, Title: w.Title, Unit: report.UnitText, About: "before -> after"},
		)
	}
	shown := 0
	for i := range j.measures {
		m := &j.measures[i]
		columns := m.columns(m.Key == j.main)
		if m.Key != j.main && m.Title != "" && shown < maxShownChanges && !slices.Contains(j.b.HideFirst, m.Key) {
			shown++
			report.SetTitle(columns, m.change, changeTitle+m.Title)
			t.HideFirst = slices.Insert(t.HideFirst, 0, m.change)
		}
		t.Columns = append(t.Columns, columns...)
	}
	t.Columns = slices.Concat(t.Columns, labels, j.keys)
}

// changeTitle is the prefix of titles of changes of further measures.
const changeTitle = "+/- "

// addRow adds the row of a pair, and counts it as changed or not.
func (j *tableJoin) addRow(p pair, verdicts *verdictCount) {
	values := make(report.Values, len(j.target.Columns))
	differs := p.before == nil || p.after == nil
	for _, w := range j.texts {
		was, is := j.cellsOf(p, w.Key)
		differs = j.addText(values, w.Key, was, is) || differs
		if w.Key == "verdict" {
			verdicts.add(was, is)
		}
	}
	for i := range j.measures {
		differs = j.addMeasure(values, &j.measures[i], p) || differs
	}
	values["row"] = j.count(p, differs)
	for _, c := range j.keys {
		if p.after != nil {
			values[c.Key] = cell(p.after, j.atB, c.Key)
		} else {
			values[c.Key] = cell(p.before, j.atA, c.Key)
		}
	}
	row, source := j.target.Add(values), cmp.Or(p.after, p.before)
	row.Stack, row.StackFrames, row.Brief = source.Stack, source.StackFrames, source.Brief || !differs
	if len(source.Stack) > 0 || source.Evidence != "" {
		row.Evidence = evidenceOf(p)
	}
}

// cellsOf returns both cells of a pair in a column, nil for a missing row.
func (j *tableJoin) cellsOf(p pair, key string) (was, is any) {
	return cell(p.before, j.atA, key), cell(p.after, j.atB, key)
}

// cell returns the value of a row in the column with a key. It returns nil if the row is nil or the
// column does not exist.
func cell(r *report.Row, at map[string]int, key string) any {
	if i, ok := at[key]; ok && r != nil {
		return r.Cells[i]
	}
	return nil
}

// addText adds the values of a text column, and reports whether it changed.
func (j *tableJoin) addText(values report.Values, key string, was, is any) bool {
	values[key+"_before"], values[key+"_after"] = was, is
	label := report.UnitText.Text(is)
	if is == nil {
		label = report.UnitText.Text(was)
	}
	differs := was != nil && is != nil && fmt.Sprint(was) != fmt.Sprint(is)
	if differs {
		label = report.UnitText.Text(was) + changeArrow + report.UnitText.Text(is)
	}
	values[key] = label
	return differs
}

// changeArrow separates the two values of a changed text column.
const changeArrow = " -> "

// addMeasure adds the values of a measure, and reports whether it changed. A missing row counts as
// 0.
func (j *tableJoin) addMeasure(values report.Values, m *measure, p pair) bool {
	was, is := j.cellsOf(p, m.Key)
	was, is = j.before.value(&m.Column, was), j.after.value(&m.Column, is)
	from, to := was, is
	if p.before == nil {
		from = int64(0)
	}
	if p.after == nil {
		to = int64(0)
	}
	maps.Copy(values, m.values(was, is, from, to))
	n, ok := report.AsNumber(values[m.change])
	return ok && n != 0 || (was == nil) != (is == nil)
}

// count counts a pair by its kind of change, and returns the kind.
func (j *tableJoin) count(p pair, differs bool) string {
	switch {
	case p.before == nil:
		j.added++
		return "new"
	case p.after == nil:
		j.removed++
		return "gone"
	case differs:
		j.changed++
		return "changed"
	}
	j.same++
	return "same"
}

// evidenceOf returns the evidence of both rows of a pair.
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

// order sorts the rows by the size of the change of the main measure, unknown changes last.
func (j *tableJoin) order() {
	for i := range j.measures {
		if j.measures[i].Key != j.main {
			continue
		}
		at := report.ColumnOf(&j.target, j.measures[i].change)
		slices.SortStableFunc(j.target.Rows, func(a, b report.Row) int {
			x, ok := report.AsNumber(a.Cells[at])
			y, okB := report.AsNumber(b.Cells[at])
			return cmp.Or(-report.CompareBools(ok, okB), cmp.Compare(math.Abs(y), math.Abs(x)))
		})
	}
}

// hideSame hides columns without a change in any row, except verdicts.
func (j *tableJoin) hideSame() {
	t := &j.target
	for i := range t.Columns {
		c := &t.Columns[i]
		isChanged := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			n, ok := report.AsNumber(r.Cells[i])
			return ok && n != 0
		})
		if strings.HasPrefix(c.Title, changeTitle) && !isChanged {
			c.Title = ""
		}
	}
	for _, w := range j.texts {
		at := report.ColumnOf(t, w.Key)
		isChanged := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			return strings.Contains(r.Cells[at].(string), changeArrow)
		})
		if w.Key != "verdict" && !isChanged {
			report.HideTitle(t.Columns, w.Key)
		}
	}
}
