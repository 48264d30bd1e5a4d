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

// tableComparison is the comparison of two tables.
type tableComparison struct {
	*reportComparer
	a, b     *report.Table
	atA, atB map[string]int    // column indexes by key
	keys     []report.Column   // columns of b that identify a row
	texts    []report.Column   // other text columns of b that both tables show
	measures []comparedMeasure // number columns of b that both tables have
	main     string            // key of the measure with all four columns shown
	target   report.Table
}

// maxShownChanges is the number of further measures whose change text output shows.
const maxShownChanges = 3

// compareTables returns the comparison of two tables.
func (rc *reportComparer) compareTables(a, b *report.Table) report.Table {
	j := tableComparison{
		reportComparer: rc,
		a:              a,
		b:              b,
		atA:            columnIndexes(a),
		atB:            columnIndexes(b),
		keys:           keyColumns(b),
	}
	j.chooseColumns()
	j.target = report.Table{Name: b.Name, OldName: b.OldName, Title: b.Title, Secondary: b.Secondary}
	j.addColumns()
	verdicts := newVerdictChanges(b)
	for _, p := range pairRows(a, b) {
		j.addPairRow(p, verdicts)
	}
	if j.verdicts == nil { // only the main table's verdicts count
		j.verdicts = verdicts.changeFacts()
	}
	j.sortByChange()
	j.hideUnchangedColumns()
	return j.target
}

// columnIndexes returns the column indexes of a table by key.
func columnIndexes(t *report.Table) map[string]int {
	at := make(map[string]int, len(t.Columns))
	for i, c := range t.Columns {
		at[c.Key] = i
	}
	return at
}

// chooseColumns sets the texts and measures. It also sets the main measure: the first one that text
// output never hides.
func (tc *tableComparison) chooseColumns() {
	isTaken := func(key string) bool { return report.ColumnIndex(tc.b, key) >= 0 }
	for _, c := range tc.b.Columns {
		_, isCommon := tc.atA[c.Key]
		isKey := slices.ContainsFunc(tc.keys, func(k report.Column) bool { return k.Key == c.Key })
		isShown := c.Title != "" && !slices.Contains(tc.b.HideFirst, c.Key)
		switch {
		case isKey || !isCommon:
		case isMeasureColumn(&c):
			tc.measures = append(tc.measures, tc.newMeasure(c, isTaken))
			if tc.main == "" && isShown {
				tc.main = c.Key
			}
		case c.Unit == report.UnitText && isShown:
			tc.texts = append(tc.texts, c)
		}
	}
	if tc.main == "" && len(tc.measures) > 0 {
		tc.main = tc.measures[0].Key
	}
}

// rowChangeColumn is the first column of a comparison.
var rowChangeColumn = report.Column{
	Key: "row", Title: "ROW", Unit: report.UnitText, About: "change of the row: new, gone, changed or same",
}

// addColumns adds the columns of the comparison: the kind of change, the texts and measures of both
// recordings, and the keys.
func (tc *tableComparison) addColumns() {
	t := &tc.target
	t.Columns = []report.Column{rowChangeColumn}
	var labels []report.Column
	for _, w := range tc.texts {
		t.Columns = append(t.Columns,
			derivedColumn(&w, w.Key+"_before", report.UnitText, "before: "+w.About),
			derivedColumn(&w, w.Key+"_after", report.UnitText, "after: "+w.About))
		label := derivedColumn(&w, w.Key, report.UnitText, "before -> after")
		label.Title = w.Title
		labels = append(labels, label)
	}
	shown := 0
	for i := range tc.measures {
		m := &tc.measures[i]
		columns := m.changeColumns(m.Key == tc.main)
		if m.Key != tc.main && m.Title != "" && shown < maxShownChanges && !slices.Contains(tc.b.HideFirst, m.Key) {
			shown++
			report.SetTitle(columns, m.change, changeTitlePrefix+m.Title)
			t.HideFirst = slices.Insert(t.HideFirst, 0, m.change)
		}
		t.Columns = append(t.Columns, columns...)
	}
	t.Columns = slices.Concat(t.Columns, labels, tc.keys)
}

// changeTitlePrefix is the prefix of titles of changes of further measures.
const changeTitlePrefix = "+/- "

// addPairRow adds the row of a pair, and counts it as changed or not.
func (tc *tableComparison) addPairRow(p rowPair, verdicts *verdictChanges) {
	values := make(report.Values, len(tc.target.Columns))
	differs := p.before == nil || p.after == nil
	for _, w := range tc.texts {
		was, is := tc.pairCells(p, w.Key)
		differs = tc.addTextChange(values, w.Key, was, is) || differs
		if w.Key == "verdict" {
			verdicts.addRow(was, is)
		}
	}
	for i := range tc.measures {
		differs = tc.addMeasureChange(values, &tc.measures[i], p) || differs
	}
	values["row"] = tc.countPair(p, differs)
	for _, c := range tc.keys {
		if p.after != nil {
			values[c.Key] = cellByKey(p.after, tc.atB, c.Key)
		} else {
			values[c.Key] = cellByKey(p.before, tc.atA, c.Key)
		}
	}
	row, source := tc.target.Add(values), cmp.Or(p.after, p.before)
	row.Stack, row.StackFrames, row.Brief = source.Stack, source.StackFrames, source.Brief || !differs
	if len(source.Stack) > 0 || source.Evidence != "" {
		row.Evidence = pairEvidence(p)
	}
}

// pairCells returns both cells of a pair in a column, nil for a missing row.
func (tc *tableComparison) pairCells(p rowPair, key string) (was, is any) {
	return cellByKey(p.before, tc.atA, key), cellByKey(p.after, tc.atB, key)
}

// cellByKey returns the value of a row in the column with a key. It returns nil if the row is nil
// or the column does not exist.
func cellByKey(r *report.Row, at map[string]int, key string) any {
	if i, ok := at[key]; ok && r != nil {
		return r.Cells[i]
	}
	return nil
}

// addTextChange adds the values of a text column, and reports whether it changed.
func (tc *tableComparison) addTextChange(values report.Values, key string, was, is any) bool {
	values[key+"_before"], values[key+"_after"] = was, is
	label := report.UnitText.FormatValue(is)
	if is == nil {
		label = report.UnitText.FormatValue(was)
	}
	differs := was != nil && is != nil && fmt.Sprint(was) != fmt.Sprint(is)
	if differs {
		label = report.UnitText.FormatValue(was) + changeArrow + report.UnitText.FormatValue(is)
	}
	values[key] = label
	return differs
}

// changeArrow separates the two values of a changed text column.
const changeArrow = " -> "

// addMeasureChange adds the values of a measure, and reports whether it changed. A missing row
// counts as 0.
func (tc *tableComparison) addMeasureChange(values report.Values, m *comparedMeasure, p rowPair) bool {
	was, is := tc.pairCells(p, m.Key)
	was, is = tc.before.cellNumber(&m.Column, was), tc.after.cellNumber(&m.Column, is)
	from, to := was, is
	if p.before == nil {
		from = int64(0)
	}
	if p.after == nil {
		to = int64(0)
	}
	maps.Copy(values, m.changeValuesWithin(tc.changeError(m, p), was, is, from, to))
	n, ok := report.AsNumber(values[m.change])
	return ok && n != 0 || (was == nil) != (is == nil)
}

// changeError returns the error of the change of a measure, or nil if the measure has no errors.
func (tc *tableComparison) changeError(m *comparedMeasure, p rowPair) any {
	if m.changeError == "" {
		return nil
	}
	column := m.Column
	column.Key = errorKeyOf(m.Key)
	was, is := tc.pairCells(p, column.Key)
	qualityWas, qualityIs := tc.pairCells(p, "gpu_times")
	bounded := qualityWas == "bounded" || qualityIs == "bounded"
	return joinErrors(tc.before.cellNumber(&column, was), tc.after.cellNumber(&column, is), bounded)
}

// countPair counts a pair by its kind of change, and returns the kind.
func (tc *tableComparison) countPair(p rowPair, differs bool) string {
	switch {
	case p.before == nil:
		tc.added++
		return "new"
	case p.after == nil:
		tc.removed++
		return "gone"
	case differs:
		tc.changed++
		return "changed"
	}
	tc.same++
	return "same"
}

// pairEvidence returns the evidence of both rows of a pair.
func pairEvidence(p rowPair) string {
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

// sortByChange sorts the rows by the size of the change of the main measure, unknown changes last.
func (tc *tableComparison) sortByChange() {
	for i := range tc.measures {
		if tc.measures[i].Key != tc.main {
			continue
		}
		at := report.ColumnIndex(&tc.target, tc.measures[i].change)
		slices.SortStableFunc(tc.target.Rows, func(a, b report.Row) int {
			x, ok := report.AsNumber(a.Cells[at])
			y, okB := report.AsNumber(b.Cells[at])
			return cmp.Or(-report.CompareBools(ok, okB), cmp.Compare(math.Abs(y), math.Abs(x)))
		})
	}
}

// hideUnchangedColumns hides columns without a change in any row, except verdicts.
func (tc *tableComparison) hideUnchangedColumns() {
	t := &tc.target
	for i := range t.Columns {
		c := &t.Columns[i]
		isChanged := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			n, ok := report.AsNumber(r.Cells[i])
			return ok && n != 0
		})
		if strings.HasPrefix(c.Title, changeTitlePrefix) && !isChanged {
			c.Title = ""
		}
	}
	for _, w := range tc.texts {
		at := report.ColumnIndex(t, w.Key)
		isChanged := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			return strings.Contains(r.Cells[at].(string), changeArrow)
		})
		if w.Key != "verdict" && !isChanged {
			report.HideTitle(t.Columns, w.Key)
		}
	}
}
