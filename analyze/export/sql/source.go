package sql

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Source is one recording that the views read.
type Source struct {
	Name  string   // value of the column recording
	Files []string // absolute paths of the Parquet files
	Meta  format.Meta
	// Steps are the rows of the view steps.
	Steps []Step

	missing    map[string]bool // columns that an older version did not write; all versions wrote frames
	hasAliases bool            // stacks of calls need the view stack_aliases
}

// Step is one row of the view steps. Times are Unix ns.
type Step struct {
	Pid            int32
	Number         int // from 1 on in each process
	StartNs, EndNs int64
	Operations     int32 // launches, copies and fills
	IsCut          bool  // a part of the step is missing
}

// NewSource describes an open recording. Name becomes the value of the column recording. It returns
// errors of reading the file, and of paths that cannot be made absolute.
func NewSource(name string, rec *format.Recording) (*Source, error) {
	s := &Source{Name: name, Meta: rec.Meta, missing: make(map[string]bool)}
	for _, path := range rec.Files() {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("find folder of %s: %w", path, err)
		}
		s.Files = append(s.Files, absolute)
	}
	for _, g := range rec.Groups() {
		for _, c := range rowColumns {
			if c.name != "frames" && !g.HasColumn(c.name) {
				s.missing[c.name] = true
			}
		}
		s.hasAliases = s.hasAliases || slices.Contains(g.Kinds(), format.KindStackAlias)
		if err := g.Err(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// globEscaper makes a pattern of DuckDB that matches one path only.
var globEscaper = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]")

// patterns returns the patterns of the files: DuckDB takes paths for patterns.
func (s *Source) patterns() []string {
	var list []string
	for _, path := range s.Files {
		list = append(list, globEscaper.Replace(path))
	}
	return list
}

// rowColumn is a column of the recording format.
type rowColumn struct{ name, sqlType string }

// rowColumns are the columns of a row, in the order of format.Row.
var rowColumns = columnsOf(reflect.TypeFor[format.Row]())

// columnsOf returns the columns of a type whose fields have tags of package parquet.
func columnsOf(t reflect.Type) []rowColumn {
	var list []rowColumn
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		list = append(list, rowColumn{name, sqlTypeOf(f.Type)})
	}
	return list
}

// sqlTypeOf returns DuckDB's type for a type of format.Row.
func sqlTypeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int64:
		return "bigint"
	case reflect.Int32:
		return "integer"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		var fields []string
		for _, c := range columnsOf(t.Elem()) {
			fields = append(fields, c.name+" "+c.sqlType)
		}
		return "struct(" + strings.Join(fields, ", ") + ")[]"
	}
	return "varchar"
}

// valueOfMissing returns the expression for a column that a recording does not have.
func (c rowColumn) valueOfMissing() string {
	switch {
	case c.name == "class":
		return classOfKind()
	case c.sqlType == "varchar":
		return "''"
	}
	return "0::" + c.sqlType
}

// classOfKind returns the expression that computes the class of a row from its kind, for recordings
// without the column class.
func classOfKind() string {
	kinds := make(map[format.Class][]string)
	for _, k := range eventKinds {
		kinds[format.ClassOf(k)] = append(kinds[format.ClassOf(k)], "'"+k+"'")
	}
	var b strings.Builder
	b.WriteString("case")
	for c := format.ClassFact + 1; len(kinds[c]) > 0; c++ {
		fmt.Fprintf(&b, " when kind in (%s) then '%s'", strings.Join(kinds[c], ", "), c)
	}
	fmt.Fprintf(&b, " else '%s' end", format.ClassFact)
	return b.String()
}

// eventKinds lists the kinds of rows that are no facts.
var eventKinds = []string{
	format.KindAlloc, format.KindFree, format.KindReserve, format.KindUnreserve, format.KindMap,
	format.KindUnmap, format.KindRetain, format.KindBorrow, format.KindReturn,
	format.KindLaunch, format.KindMemcpy, format.KindMemset, format.KindSync, format.KindAPI,
	format.KindAllocator, format.KindProgress,
	format.KindWait, format.KindCPUSample, format.KindThreadState, format.KindGC, format.KindHost,
	format.KindCollective, format.KindCommunicatorCall,
	format.KindStack, format.KindStackAlias, format.KindNVML, format.KindXid, format.KindCount,
}
