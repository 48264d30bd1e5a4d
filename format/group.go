package format

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
)

// Group is one row group of a recording: rows of one class, which are read column by column. Err
// returns the first error of its methods. After an error, column methods return zeros, so a loop
// over rows needs only one check at its end. A Group is safe for concurrent use if each goroutine
// passes its own slices.
type Group struct {
	rows    parquet.RowGroup
	columns map[string]int
	path    string
	index   int
	cache   *ColumnCache // nil if columns are decoded at every call
	// recording has the group. It resolves rationed stacks.
	recording *Recording
	reads     []atomic.Int32 // by position of the column: how often all its pages were read

	mu    sync.Mutex // guards kinds and err
	kinds []string
	err   error
}

// Strings is a column of strings: the value of row i is Dict[Index[i]]. Dict is not sorted and may
// hold values that no row has.
type Strings struct {
	Index []int32
	Dict  []string
}

// At returns the value of row i.
func (s Strings) At(i int) string { return s.Dict[s.Index[i]] }

// columnPositions returns the position of each column in the schema by name, without columns within
// lists.
func columnPositions(schema *parquet.Schema) map[string]int {
	columns := make(map[string]int)
	for i, path := range schema.Columns() {
		if len(path) == 1 { // eachRow reads columns within lists
			columns[path[0]] = i
		}
	}
	return columns
}

// NumRows returns the number of rows in the group.
func (g *Group) NumRows() int { return int(g.rows.NumRows()) }

// HasColumn reports whether the file of the group has a column. Older versions wrote fewer columns. The
// list column frames is no column of its own.
func (g *Group) HasColumn(name string) bool {
	_, ok := g.columns[name]
	return ok
}

// Err returns the first error of the group's methods, with the file's name.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// storeError stores the first error for Err.
func (g *Group) storeError(err error) {
	if err == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = fmt.Errorf("read %s, row group %d: %w", g.path, g.index, err)
	}
}

// Class returns the class of the group's rows. The first call reads one page of the file.
func (g *Group) Class() Class {
	kinds := g.Kinds()
	if len(kinds) == 0 {
		return ClassFact
	}
	return ClassOf(kinds[0])
}

// Kinds returns the distinct kinds of the group's rows.
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

// Dictionary returns the dictionary of a string column by reading its first page. The dictionary
// lacks values of later pages that were written after the dictionary was full.
func (g *Group) Dictionary(column string) (dict []string) {
	ci, ok := g.columns[column]
	if !ok || g.Err() != nil {
		return nil
	}
	g.storeError(walkColumnPages(g.rows.ColumnChunks()[ci], func(p parquet.Page) error {
		if d := p.Dictionary(); d != nil {
			dict = dictionaryStrings(d)
		}
		return io.EOF // one page is enough
	}))
	return dict
}

func dictionaryStrings(d parquet.Dictionary) []string {
	dict := make([]string, d.Len())
	for i := range dict {
		dict[i] = d.Index(int32(i)).Clone().String()
	}
	return dict
}

// eachPage calls yield for each page of a column until yield returns an error. The error io.EOF
// ends the loop without failing the group.
func (g *Group) eachPage(column string, yield func(parquet.Page) error) {
	if g.Err() != nil {
		return
	}
	ci, ok := g.columns[column]
	if !ok {
		return // an older gpurec wrote the file without this column: its values are zero
	}
	g.reads[ci].Add(1)
	g.storeError(walkColumnPages(g.rows.ColumnChunks()[ci], yield))
}

func walkColumnPages(chunk parquet.ColumnChunk, yield func(parquet.Page) error) (err error) {
	defer recoverPanic(&err)
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

// numericValue is the set of Go types of numeric columns.
type numericValue interface{ int32 | int64 | float64 }

// Int64 reads a 64-bit integer column into dst and returns it with one value per row. It grows dst
// as needed. A column that an older version did not write has zeros.
func (g *Group) Int64(column string, dst []int64) []int64 {
	read := func(dst []int64) []int64 {
		return readNumberColumn(g, column, dst, func(p parquet.Page) []int64 { d := p.Data(); return d.Int64() })
	}
	if g.cache != nil {
		return g.cache.int64s.decodeOnce(column, read)
	}
	return read(dst)
}

// Int32 reads a 32-bit integer column. It works like Int64.
func (g *Group) Int32(column string, dst []int32) []int32 {
	read := func(dst []int32) []int32 {
		dst = readInt32Column(g, column, dst)
		switch column {
		case "stack_id":
			dst = g.resolveStackIDs(dst)
		case "via_stack_id":
			dst = g.resolveViaIDs(dst)
		}
		return dst
	}
	if g.cache != nil {
		return g.cache.int32s.decodeOnce(column, read)
	}
	return read(dst)
}

// readInt32Column reads a 32-bit integer column as it is stored.
func readInt32Column(g *Group, column string, dst []int32) []int32 {
	return readNumberColumn(g, column, dst, func(p parquet.Page) []int32 { d := p.Data(); return d.Int32() })
}

// Float64 reads a column of floating point numbers. It works like Int64.
func (g *Group) Float64(column string, dst []float64) []float64 {
	read := func(dst []float64) []float64 {
		return readNumberColumn(g, column, dst, func(p parquet.Page) []float64 { d := p.Data(); return d.Double() })
	}
	if g.cache != nil {
		return g.cache.float64s.decodeOnce(column, read)
	}
	return read(dst)
}

// readNumberColumn reads a numeric column into dst. values returns the numbers of a data page
// without dictionary or of a dictionary page.
func readNumberColumn[T numericValue](g *Group, column string, dst []T, values func(parquet.Page) []T) []T {
	dst = slices.Grow(dst[:0], g.NumRows())
	var dict []T
	g.eachPage(column, func(p parquet.Page) error {
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
		if len(dict) == 1 && isAllZero(index) { // common: one process, one device, no flags
			setAllValues(added, dict[0])
			return nil
		}
		for k, i := range index {
			added[k] = dict[i]
		}
		return nil
	})
	return fitToRowCount(g, column, dst)
}

func isAllZero(index []int32) bool {
	var bits int32
	for _, i := range index {
		bits |= i
	}
	return bits == 0
}

// setAllValues sets all values to v by copying ranges of doubling length.
func setAllValues[T numericValue](values []T, v T) {
	if len(values) == 0 {
		return
	}
	values[0] = v
	for n := 1; n < len(values); n *= 2 {
		copy(values[n:], values[:n])
	}
}

// Strings reads a string column. Each call returns new memory.
func (g *Group) Strings(column string) Strings { return g.StringsInto(column, Strings{}) }

// StringsInto reads a string column like Strings, and reuses the memory of s.Index.
func (g *Group) StringsInto(column string, s Strings) Strings {
	read := func(s Strings) Strings {
		s = readStringColumn(g, column, s)
		if column == "site" || column == "stack_status" {
			s = g.resolveStackTexts(column, s)
		}
		return s
	}
	if g.cache != nil {
		return g.cache.strings.decodeOnce(column, read)
	}
	return read(s)
}

func readStringColumn(g *Group, column string, s Strings) Strings {
	s.Index, s.Dict = s.Index[:0], nil // callers may still use strings of the old Dict
	plain := make(map[string]int32)    // indexes of values on pages without a dictionary
	g.eachPage(column, func(p parquet.Page) error {
		if d := p.Dictionary(); d != nil {
			if s.Dict == nil {
				s.Dict = dictionaryStrings(d)
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
			g.storeError(fmt.Errorf("column %s: index %d outside of its dictionary", column, i))
			s.Index = nil
			break
		}
	}
	s.Index = fitToRowCount(g, column, s.Index)
	return s
}

// fitToRowCount returns values with exactly one value per row of the group. For a column that is
// missing or could not be read it returns zeros. For a column of any other length it also fails the
// group.
func fitToRowCount[T any](g *Group, column string, values []T) []T {
	n := g.NumRows()
	if len(values) == n {
		return values
	}
	if len(values) != 0 {
		g.storeError(fmt.Errorf("column %s has %d values for %d rows", column, len(values), n))
	}
	if g.Err() != nil || cap(values) < n {
		return make([]T, n)
	}
	values = values[:n]
	clear(values)
	return values
}
