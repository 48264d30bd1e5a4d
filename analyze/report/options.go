package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// GroupError says that a report cannot be grouped by this.
type GroupError struct {
	Name  string
	Known []string
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("cannot group by %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// HolderRowsWithStack is how many holders text shows the stack of.
const HolderRowsWithStack = 3

// SortError says that a table has no column of the name to sort by.
type SortError struct {
	Name  string
	Known []string
}

func (e *SortError) Error() string {
	return fmt.Sprintf("no column %q to sort by; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// Arrange sorts the table by a column, if one is named, and cuts it to top rows.
// Numbers sort from large to small, text from a to z, unknown values last.
func (t *Table) Arrange(by string, top int) error {
	if by != "" {
		at := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key == by || strings.EqualFold(c.Title, by) && by != "" })
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
		t.More = len(t.Rows) - top
		t.Rows = t.Rows[:top]
	}
	return nil
}

func CompareCells(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(b, a)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(b, a)
		}
	case string:
		if b, ok := b.(string); ok {
			return cmp.Compare(a, b)
		}
	}
	return 0
}
