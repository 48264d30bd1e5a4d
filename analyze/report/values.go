package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Values are the values of a row, or of a list of facts, by column key. Row.Cells lists the
// possible types.
type Values map[string]any

// JoinValues returns the union of all arguments. It panics if two of them have the same key.
func JoinValues(parts ...Values) Values {
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

// orderByColumns returns the values in the order of the columns. It panics unless the keys of v are
// exactly the keys of the columns. A value may be nil. owner names the table in the panic message.
func (v Values) orderByColumns(owner string, columns []Column) []any {
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
		panic(v.describeMismatch(owner, columns))
	}
	return cells
}

// describeMismatch returns an error text with the columns that lack a value and the values without
// a column.
func (v Values) describeMismatch(owner string, columns []Column) string {
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
	return fmt.Sprintf("report: %s: no value for columns %q, no column for values %q", owner, missing, unknown)
}

// NewFacts returns one fact for each column, in the order of the columns. It panics unless the keys
// of v are exactly the keys of the columns. A value may be nil.
func NewFacts(columns []Column, v Values) []Fact {
	values := v.orderByColumns("facts", columns)
	facts := make([]Fact, len(columns))
	for i, c := range columns {
		facts[i] = Fact{c, values[i]}
	}
	return facts
}

// Add appends a row with these values and returns a pointer to it, so that callers can set its
// other fields. The pointer is valid until the next Add. Add panics unless the keys of v are
// exactly the keys of the columns. A value may be nil.
func (t *Table) Add(v Values) *Row {
	t.Rows = append(t.Rows, Row{Cells: v.orderByColumns("table "+t.Name, t.Columns)})
	return &t.Rows[len(t.Rows)-1]
}

// Cell returns the value of a row in the column with this key. It panics for an unknown key.
func (t *Table) Cell(r *Row, key string) any { return r.Cells[t.mustFindColumn(key)] }

// RowComparer returns a function that compares two rows by the columns with these keys, the first
// key first, as CompareCells does. A "-" before a key reverses the order. RowComparer panics for an
// unknown key.
func (t *Table) RowComparer(keys ...string) func(a, b Row) int {
	type part struct{ at, sign int }
	parts := make([]part, len(keys))
	for i, key := range keys {
		name, reversed := strings.CutPrefix(key, "-")
		parts[i] = part{t.mustFindColumn(name), 1}
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

// Sort sorts the rows by the columns with these keys; see Compare. Equal rows keep their order.
func (t *Table) Sort(keys ...string) { slices.SortStableFunc(t.Rows, t.RowComparer(keys...)) }

func (t *Table) mustFindColumn(key string) int {
	at := ColumnIndex(t, key)
	if at < 0 {
		panic(fmt.Sprintf("report: table %s has no column %q", t.Name, key))
	}
	return at
}

// InsertColumnAfter returns a copy of columns with column c inserted behind the column with this
// key. It panics for an unknown key.
func InsertColumnAfter(columns []Column, key string, c Column) []Column {
	at := slices.IndexFunc(columns, func(c Column) bool { return c.Key == key })
	if at < 0 {
		panic(fmt.Sprintf("report: no column %q", key))
	}
	return slices.Insert(slices.Clone(columns), at+1, c)
}

// PickColumns returns the columns with these keys, in this order. It panics for an unknown key.
func PickColumns(columns []Column, keys ...string) []Column {
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

// InsertColumn inserts column c behind the column with the key after. It sets the new cell of each
// row to the result of value. It panics for an unknown key.
func (t *Table) InsertColumn(after string, c Column, value func(r *Row) any) {
	at := t.mustFindColumn(after) + 1
	cells := make([]any, len(t.Rows))
	for i := range t.Rows {
		cells[i] = value(&t.Rows[i])
	}
	t.Columns = slices.Insert(slices.Clone(t.Columns), at, c)
	for i := range t.Rows {
		t.Rows[i].Cells = slices.Insert(slices.Clone(t.Rows[i].Cells), at, cells[i])
	}
}
