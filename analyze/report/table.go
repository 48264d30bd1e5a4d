package report

import (
	"slices"
	"strings"
)

// HolderRowsWithStack is the number of rows with a printed stack in tables of memory holders.
const HolderRowsWithStack = 3

// HideTitle removes the title of a column. Text output then hides the column; JSON and CSV keep it.
func HideTitle(columns []Column, key string) { SetTitle(columns, key, "") }

// SetTitle sets the title of the column with this key.
func SetTitle(columns []Column, key, text string) {
	for i := range columns {
		if columns[i].Key == key {
			columns[i].Title = text
		}
	}
}

// ColumnIndex returns the index of the column with this key, or -1 if the table has no such column.
func ColumnIndex(t *Table, key string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key == key })
}

// DropEmptyColumn removes the column with this key from the table and its keys if all its cells are nil.
func (t *Table) DropEmptyColumn(key string) {
	at := t.mustFindColumn(key)
	if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Cells[at] != nil }) {
		return
	}
	t.Columns = slices.Delete(slices.Clone(t.Columns), at, at+1)
	for i := range t.Rows {
		t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, at, at+1)
	}
	t.Keys = slices.DeleteFunc(slices.Clone(t.Keys), func(k string) bool { return k == key })
}

// WithoutFolded returns the table without its folded rows.
func (t *Table) WithoutFolded() *Table {
	if !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Folded }) {
		return t
	}
	shown := *t
	shown.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return r.Folded })
	return &shown
}

// SortAndCut sorts the table by the column by, a key, former key or title, in the order of CompareCells. It
// then cuts the table to top rows. An empty by keeps the order; a top of 0 keeps all rows. Arrange
// returns a *SortError for an unknown column.
func (t *Table) SortAndCut(by string, top int) error {
	if by != "" {
		at := slices.IndexFunc(t.Columns, func(c Column) bool { return c.HasKey(by) || strings.EqualFold(c.Title, by) })
		if at < 0 {
			e := &SortError{Name: by}
			for _, c := range t.Columns {
				e.Known = append(e.Known, c.Key)
			}
			return e
		}
		slices.SortStableFunc(t.Rows, func(a, b Row) int { return CompareCells(a.Cells[at], b.Cells[at]) })
	}
	if top > 0 && len(t.Rows) > top {
		t.OmittedRows += len(t.Rows) - top
		t.Rows = t.Rows[:top]
	}
	return nil
}
