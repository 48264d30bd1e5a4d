package rows

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// columnKind is the way in which a column is read.
type columnKind uint8

const (
	int64Column columnKind = iota
	int32Column
	floatColumn
	textColumn
	timeColumn  // start_ns as ISO 8601
	stackColumn // text of the stack of the row
)

// column is a column of the output.
type column struct {
	name string
	kind columnKind
}

// Names of the columns that are not those of the recording.
const (
	timeName  = "time"
	stackName = "stack"
)

// allColumns are the columns that exist, in their default order. The list column frames has no place in
// a table: stack has its functions.
var allColumns = listColumns()

func listColumns() []column {
	list := []column{{"kind", textColumn}, {timeName, timeColumn}}
	t := reflect.TypeFor[format.Row]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("parquet"), ",")
		switch t.Field(i).Type.Kind() {
		case reflect.Int64:
			list = append(list, column{name, int64Column})
		case reflect.Int32:
			list = append(list, column{name, int32Column})
		case reflect.Float64:
			list = append(list, column{name, floatColumn})
		case reflect.String:
			if name == stackName {
				list = append(list, column{name, stackColumn})
			} else if name != "kind" {
				list = append(list, column{name, textColumn})
			}
		}
	}
	return list
}

// ListColumns returns the names of all columns, in the order of the default output.
func ListColumns() []string {
	var names []string
	for _, c := range allColumns {
		names = append(names, c.name)
	}
	return names
}

// chooseColumns returns the columns of the names, in their order. No names mean all columns.
func chooseColumns(names []string) ([]column, error) {
	if len(names) == 0 {
		return allColumns, nil
	}
	var list []column
	for _, name := range names {
		i := slices.IndexFunc(allColumns, func(c column) bool { return c.name == name })
		if i < 0 {
			return nil, &NameError{What: "column", Name: name, Known: ListColumns()}
		}
		list = append(list, allColumns[i])
	}
	return list, nil
}

// NameError is the error for a column or class that does not exist.
type NameError struct {
	What  string // column or class
	Name  string
	Known []string // all names
}

// Error returns the message for the user.
func (e *NameError) Error() string {
	return fmt.Sprintf("%q is no %s: the names are %s", e.Name, e.What, strings.Join(e.Known, ", "))
}

// ListClasses returns the names of the classes of rows.
func ListClasses() []string {
	var names []string
	for c := format.ClassFact; c <= format.ClassBlock; c++ {
		names = append(names, c.String())
	}
	return names
}

// Sections describe the columns that FORMAT.md does not have. --explain prints them.
var Sections = []report.Section{{Title: "rows", Columns: []report.Column{
	{Key: timeName, About: "start_ns in ISO 8601 with nanoseconds, UTC."},
	{Key: stackName, About: "Rows of kind stack: functions, root first, joined by ;. With --stacks also in " +
		"rows that have a stack."},
	{Key: "start_ns", Unit: report.UnitTime, About: "Entry of the call, or time of the row, Unix ns. " +
		"FORMAT.md describes all other columns."},
}}}
