package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Values are the values of a row, or of a list of facts, by column key. Row lists the types that
// a value can have.
type Values map[string]any

// Join returns the values of all of its arguments. It panics if two of them have the same key.
func Join(parts ...Values) Values {
	all := make(Values)
	for _, part := range parts {
		before := len(all)
		maps.Copy(all, part)
		if len(all) != before+len(part) {
			panic("report: values for one key twice: " + strings.Join(slices.Sorted(maps.Keys(part)), ", "))
		}
	}
	return all
}

// inOrder returns the values in the order of the columns. It panics unless each column has a
// value, which may be nil, and each value has a column.
func (v Values) inOrder(what string, columns []Column) []any {
	cells := make([]any, len(columns))
	found := 0
	for i := range columns {
		value, ok := v[columns[i].Key]
		cells[i] = value
		if ok {
			found++
		}
	}
	if found != len(columns) || found != len(v) {
		panic(v.mismatch(what, columns))
	}
	return cells
}

// mismatch says which columns lack a value, and which values lack a column.
func (v Values) mismatch(what string, columns []Column) string {
	var missing []string
	known := make(map[string]bool)
	for _, c := range columns {
		if _, ok := v[c.Key]; !ok || known[c.Key] {
			missing = append(missing, c.Key)
		}
		known[c.Key] = true
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	return fmt.Sprintf("report: %s: no value for columns %q, no column for values %q", what, missing, unknown)
}

// Facts returns a fact for each column, in the order of the columns. It panics unless v has a
// value, which may be nil, for each column and for nothing else.
func Facts(columns []Column, v Values) []Fact {
	values := v.inOrder("facts", columns)
	facts := make([]Fact, len(columns))
	for i, c := range columns {
		facts[i] = Fact{c, values[i]}
	}
	return facts
}

// Add appends a row with these values and returns it, so that its other fields can be set. The
// pointer is valid until the next Add. Add panics unless v has a value, which may be nil, for
// each column and for nothing else.
func (t *Table) Add(v Values) *Row {
	t.Rows = append(t.Rows, Row{Cells: v.inOrder("table "+t.Name, t.Columns)})
	return &t.Rows[len(t.Rows)-1]
}

// Cell returns the value of a row in the column with this key. It panics if there is no such
// column.
func (t *Table) Cell(r *Row, key string) any { return r.Cells[t.mustFind(key)] }

// Compare returns a function that compares two rows by the columns with these keys, in turn, as
// CompareCells does: numbers from large to small, text from a to z, nil last. A "-" in front of
// a key reverses the order. It panics if there is no such column.
func (t *Table) Compare(keys ...string) func(a, b Row) int {
	type part struct{ at, sign int }
	parts := make([]part, len(keys))
	for i, key := range keys {
		name, reversed := strings.CutPrefix(key, "-")
		parts[i] = part{t.mustFind(name), 1}
		if reversed {
			parts[i].sign = -1
		}
	}
	return func(a, b Row) int {
		for _, p := range parts {
			if order := p.sign * CompareCells(a.Cells[p.at], b.Cells[p.at]); order != 0 {
				return order
			}
		}
		return 0
	}
}

// Sort sorts the rows by the columns with these keys, see Compare. Equal rows keep their order.
func (t *Table) Sort(keys ...string) { slices.SortStableFunc(t.Rows, t.Compare(keys...)) }

func (t *Table) mustFind(key string) int {
	at := ColumnOf(t, key)
	if at < 0 {
		panic(fmt.Sprintf("report: table %s has no column %q", t.Name, key))
	}
	return at
}

// InsertAfter returns a copy of columns with one more, behind the column with this key. It
// panics if there is no such column.
func InsertAfter(columns []Column, key string, c Column) []Column {
	at := slices.IndexFunc(columns, func(c Column) bool { return c.Key == key })
	if at < 0 {
		panic(fmt.Sprintf("report: no column %q", key))
	}
	return slices.Insert(slices.Clone(columns), at+1, c)
}

// Pick returns the columns with these keys, in this order. It panics if there is no such column.
func Pick(columns []Column, keys ...string) []Column {
	picked := make([]Column, len(keys))
	for i, key := range keys {
		at := slices.IndexFunc(columns, func(c Column) bool { return c.Key == key })
		if at < 0 {
			panic(fmt.Sprintf("report: no column %q", key))
		}
		picked[i] = columns[at]
	}
	return picked
}

// InsertColumn adds a column behind the column with this key, and sets its cell in each row to
// the result of value. It panics if there is no column with this key.
func (t *Table) InsertColumn(after string, c Column, value func(r *Row) any) {
	at := t.mustFind(after) + 1
	cells := make([]any, len(t.Rows))
	for i := range t.Rows {
		cells[i] = value(&t.Rows[i])
	}
	t.Columns = slices.Insert(slices.Clone(t.Columns), at, c)
	for i := range t.Rows {
		t.Rows[i].Cells = slices.Insert(slices.Clone(t.Rows[i].Cells), at, cells[i])
	}
}
