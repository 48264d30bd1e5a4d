package format

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
)

// Group is one row group of a recording: rows of one class, read column by column.
// The first error is kept and returned by Err; column methods then return zeros, so
// that a loop over rows needs one check at its end. Safe for concurrent use, as long as
// the slices that columns are read into are not shared.
type Group struct {
	rows    parquet.RowGroup
	columns map[string]int
	path    string
	index   int
	kept    *ColumnCache // nil: columns are decoded whenever they are asked for

	mu    sync.Mutex // guards what follows
	kinds []string
	err   error
}

// Strings is a column of strings: Dict[Index[i]] is the value of row i. Dict has no
// order and may hold values that no row uses.
type Strings struct {
	Index []int32
	Dict  []string
}

// At returns the value of row i.
func (s Strings) At(i int) string { return s.Dict[s.Index[i]] }

func columnIndex(schema *parquet.Schema) map[string]int {
	columns := make(map[string]int)
	for i, path := range schema.Columns() {
		if len(path) == 1 { // columns inside of lists are read by whole rows
			columns[path[0]] = i
		}
	}
	return columns
}

// NumRows returns the number of rows in the group.
func (g *Group) NumRows() int { return int(g.rows.NumRows()) }

// Err returns the first error of the group's methods, with the file's name.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *Group) fail(err error) {
	if err == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = fmt.Errorf("read %s, row group %d: %w", g.path, g.index, err)
	}
}

// Class returns the class of the group's rows. It reads one page, once.
func (g *Group) Class() Class {
	kinds := g.Kinds()
	if len(kinds) == 0 {
		return ClassFact
	}
	return ClassOf(kinds[0])
}

// Kinds returns the kinds that the group's dictionary names.
func (g *Group) Kinds() []string {
	g.mu.Lock()
	kinds := g.kinds
	g.mu.Unlock()
	if kinds == nil {
		kinds = g.Dictionary("kind")
		g.mu.Lock()
		g.kinds = kinds
		g.mu.Unlock()
	}
	return kinds
}

// Dictionary returns the dictionary of a string column by reading its first page: values
// that pages behind it have besides, because it was full, are not in it.
func (g *Group) Dictionary(column string) (dict []string) {
	g.pages(column, func(p parquet.Page) error {
		if d := p.Dictionary(); d != nil {
			dict = dictStrings(d)
		}
		return io.EOF // one page is enough
	})
	return dict
}

func dictStrings(d parquet.Dictionary) []string {
	dict := make([]string, d.Len())
	for i := range dict {
		dict[i] = d.Index(int32(i)).Clone().String()
	}
	return dict
}

// pages calls yield for the pages of a column until it returns an error; io.EOF
// ends the walk without one.
func (g *Group) pages(column string, yield func(parquet.Page) error) {
	if g.Err() != nil {
		return
	}
	ci, ok := g.columns[column]
	if !ok {
		return // written by an older version: the column's values are zero
	}
	g.fail(walkPages(g.rows.ColumnChunks()[ci], yield))
}

func walkPages(chunk parquet.ColumnChunk, yield func(parquet.Page) error) (err error) {
	defer recovered(&err)
	pages := chunk.Pages()
	defer pages.Close()
	for {
		p, err := pages.ReadPage()
		if err == nil {
			err = yield(p)
			parquet.Release(p)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// number is what columns of numbers are stored as.
type number interface{ int32 | int64 | float64 }

// Int64 reads a 64-bit integer column into dst, which is grown as needed, and
// returns it with one value per row.
func (g *Group) Int64(column string, dst []int64) []int64 {
	read := func(dst []int64) []int64 {
		return numbers(g, column, dst, func(p parquet.Page) []int64 { d := p.Data(); return d.Int64() })
	}
	if g.kept != nil {
		return g.kept.int64s.get(column, read)
	}
	return read(dst)
}

// Int32 reads a 32-bit integer column; see Int64.
func (g *Group) Int32(column string, dst []int32) []int32 {
	read := func(dst []int32) []int32 {
		return numbers(g, column, dst, func(p parquet.Page) []int32 { d := p.Data(); return d.Int32() })
	}
	if g.kept != nil {
		return g.kept.int32s.get(column, read)
	}
	return read(dst)
}

// Float64 reads a column of floating point numbers; see Int64.
func (g *Group) Float64(column string, dst []float64) []float64 {
	read := func(dst []float64) []float64 {
		return numbers(g, column, dst, func(p parquet.Page) []float64 { d := p.Data(); return d.Double() })
	}
	if g.kept != nil {
		return g.kept.float64s.get(column, read)
	}
	return read(dst)
}

// numbers reads a column; values are those of a page of numbers, as a dictionary has one.
func numbers[T number](g *Group, column string, dst []T, values func(parquet.Page) []T) []T {
	dst = slices.Grow(dst[:0], g.NumRows())
	var dict []T
	g.pages(column, func(p parquet.Page) error {
		d := p.Dictionary()
		if d == nil {
			dst = append(dst, values(p)...)
			return nil
		}
		if dict == nil {
			dict = values(d.Page())
		}
		data := p.Data()
		index := data.Int32()
		first := len(dst)
		dst = slices.Grow(dst, len(index))[:first+len(index)]
		added := dst[first:]
		if len(dict) == 1 && allZero(index) { // as in many columns: one process, one device, no flags
			fill(added, dict[0])
			return nil
		}
		for k, i := range index {
			added[k] = dict[i]
		}
		return nil
	})
	return fit(g, column, dst)
}

func allZero(index []int32) bool {
	var bits int32
	for _, i := range index {
		bits |= i
	}
	return bits == 0
}

// fill sets all values, in ever longer copies.
func fill[T number](values []T, v T) {
	if len(values) == 0 {
		return
	}
	values[0] = v
	for n := 1; n < len(values); n *= 2 {
		copy(values[n:], values[:n])
	}
}

// Strings reads a string column.
func (g *Group) Strings(column string) Strings { return g.StringsInto(column, Strings{}) }

// StringsInto is Strings with the memory of a column that was read before and is not
// needed any more.
func (g *Group) StringsInto(column string, s Strings) Strings {
	if g.kept != nil {
		return g.kept.strings.get(column, func(s Strings) Strings { return readStrings(g, column, s) })
	}
	return readStrings(g, column, s)
}

func readStrings(g *Group, column string, s Strings) Strings {
	s.Index, s.Dict = s.Index[:0], nil // strings of a dictionary may be in use
	plain := make(map[string]int32)    // values of pages written after the dictionary was full
	g.pages(column, func(p parquet.Page) error {
		if d := p.Dictionary(); d != nil {
			if s.Dict == nil {
				s.Dict = dictStrings(d)
			}
			data := p.Data()
			s.Index = append(s.Index, data.Int32()...)
			return nil
		}
		values := p.Values()
		buf := make([]parquet.Value, 256)
		for {
			n, err := values.ReadValues(buf)
			for _, v := range buf[:n] {
				i, ok := plain[v.String()]
				if !ok {
					i = int32(len(s.Dict))
					s.Dict = append(s.Dict, v.Clone().String())
					plain[s.Dict[i]] = i
				}
				s.Index = append(s.Index, i)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if len(s.Dict) == 0 {
		s.Dict = []string{""}
	}
	for _, i := range s.Index {
		if uint32(i) >= uint32(len(s.Dict)) {
			g.fail(fmt.Errorf("column %s: index %d outside of its dictionary", column, i))
			s.Index = nil
			break
		}
	}
	s.Index = fit(g, column, s.Index)
	return s
}

// fit makes a column exactly as long as the group: zeros for a column that is not
// in the file or could not be read, an error for one of another length.
func fit[T any](g *Group, column string, values []T) []T {
	n := g.NumRows()
	if len(values) == n {
		return values
	}
	if len(values) != 0 {
		g.fail(fmt.Errorf("column %s has %d values for %d rows", column, len(values), n))
	}
	if g.Err() != nil || cap(values) < n {
		return make([]T, n)
	}
	values = values[:n]
	clear(values)
	return values
}
