package report

import (
	"fmt"
	"strings"
)

// GroupError is returned if a report cannot be grouped by Name. Known are the names that the report
// can be grouped by.
type GroupError struct {
	Name  string
	Known []string
}

// Error lists the known names.
func (e *GroupError) Error() string {
	return fmt.Sprintf("cannot group by %q; use one of %s", e.Name, strings.Join(e.Known, ", "))
}

// SortError is returned if a table has no column Name to sort by. Known are the keys of its
// columns.
type SortError struct {
	Name  string
	Known []string
}

// Error lists the known keys.
func (e *SortError) Error() string {
	return fmt.Sprintf("no column %q to sort by; use one of %s", e.Name, strings.Join(e.Known, ", "))
}
