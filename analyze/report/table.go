package report

import (
	"slices"
	"strings"
)

// HolderRowsWithStack is the number of rows whose stack text shows in tables of holders of memory.
const HolderRowsWithStack = 3

// Hide removes the title of a column, so that text does not show it. JSON and CSV do.
func HideTitle(columns []Column, key string) { SetTitle(columns, key, "") }

// Title sets the title of a column.
func SetTitle(columns []Column, key, text string) {
	for i := range columns {
		if columns[i].Key == key {
			columns[i].Title = text
		}
	}
}

// ColumnOf returns the index of the column with a key, -1 if there is none.
func ColumnOf(t *Table, key string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key == key })
}

// Arrange sorts the table by a column, if by is not "", and cuts it to top rows, if top is not 0.
// by is a key or title. The order is that of CompareCells. Arrange returns a *SortError for an
// unknown column.
func (t *Table) Arrange(by string, top int) error {
	if by != "" {
		at := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key == by || strings.EqualFold(c.Title, by) })
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
