package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Options shape a report; the zero value is the whole recording by site, all rows.
type Options struct {
	Filter
	// GroupBy is one of GroupNames; "" is the first.
	GroupBy string
	// Top bounds the rows of a table, 0 is all of them.
	Top int
	// Sort is the key of a column; "" is the report's own order.
	Sort string
	// Suppressions, if set, leave memory out of reports on leaks.
	Suppressions *Suppressions
	// MaxFrames bounds the frames shown of a stack, 0 is all of them.
	MaxFrames int
	// Hide says which frames are not shown; nil is what the report does by itself: the
	// default rules where stacks are read by people, none in profiles.
	Hide *FrameRules
	// AllFrames shows all frames, whatever Hide and MaxFrames say.
	AllFrames bool
	// AllStacks shows in text the stacks of all rows, also of those that are no leak.
	// So does AllFrames.
	AllStacks bool
}

// hide returns the rules for frames of stacks that people read.
func (o *Options) hide() *FrameRules {
	switch {
	case o.AllFrames:
		return new(FrameRules)
	case o.Hide == nil:
		return defaultFrameRules
	}
	return o.Hide
}

// SortError says that a table has no column of the name to sort by.
type SortError struct {
	Name  string
	Known []string
}

func (e *SortError) Error() string {
	return fmt.Sprintf("no column %q to sort by; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// arrange sorts the table by a column, if one is named, and cuts it to top rows.
// Numbers sort from large to small, text from a to z, unknown values last.
func (t *Table) arrange(by string, top int) error {
	if by != "" {
		at := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key == by || strings.EqualFold(c.Title, by) && by != "" })
		if at < 0 {
			e := &SortError{Name: by}
			for _, c := range t.Columns {
				e.Known = append(e.Known, c.Key)
			}
			return e
		}
		slices.SortStableFunc(t.Rows, func(a, b Row) int { return compareCells(a.Cells[at], b.Cells[at]) })
	}
	if top > 0 && len(t.Rows) > top {
		t.More = len(t.Rows) - top
		t.Rows = t.Rows[:top]
	}
	return nil
}

func compareCells(a, b any) int {
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
