package columnwriter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	pq "github.com/parquet-go/parquet-go/format"
)

// column collects the values of one column of a row group.
type column[R any] interface {
	// addRows appends the column's values in rows.
	addRows(rows []R)
	// setRepeated adds the column's value in one row n times to an empty column, n > 0.
	setRepeated(row *R, n int)
	// encodeDictionary appends the distinct values to dst, in the encoding PLAIN, and returns their
	// number. It returns 0 if the column's encoding has no dictionary. It is called once for each
	// row group, before the methods below.
	encodeDictionary(dst []byte) ([]byte, int)
	// encodeData returns the encoded values. It reuses the memory of dst.
	encodeData(dst []byte) ([]byte, error)
	// valueBounds returns the smallest and the largest value. Both are null if the column has no
	// values.
	valueBounds() (least, greatest parquet.Value)
	// totalTextBytes returns the total length of all texts in bytes.
	totalTextBytes() int64
	// removeValues removes all values and keeps the memory.
	removeValues()
}

// newColumn returns an empty column for a leaf of the layout. The column's field is at a byte offset
// in a row. The column adds the lengths of texts that it keeps in memory to *textBytes.
func newColumn[R any](l *leafColumn, at uintptr, textBytes *int64) (column[R], error) {
	kind, encoding := l.field.Type.Kind(), l.page.Encoding
	switch {
	case l.inList && encoding != pq.RLEDictionary: // parquet-go does not write empty dictionaries
		return &emptyColumn[R]{}, nil
	case encoding == pq.RLEDictionary && kind == reflect.String:
		return &textColumn[R]{at: at, kept: textBytes, numbers: make(map[string]int32)}, nil
	case encoding == pq.RLEDictionary && kind == reflect.Int32:
		return &numberColumn[R, int32]{at: at, seed: rand.Uint64()}, nil
	case encoding == pq.RLEDictionary && (kind == reflect.Int64 || kind == reflect.Float64):
		isFloat := kind == reflect.Float64
		return &numberColumn[R, int64]{at: at, seed: rand.Uint64(), float: isFloat}, nil
	case encoding == pq.DeltaBinaryPacked && kind == reflect.Int64:
		return &deltaColumn[R]{at: at}, nil
	case encoding == pq.DeltaLengthByteArray && kind == reflect.String:
		return &plainTextColumn[R]{at: at, kept: textBytes, offsets: []uint32{0}}, nil
	}
	return nil, fmt.Errorf(
		"column %v: cannot write %s in the encoding %s", l.chunk.PathInSchema, kind, encoding)
}

// readField returns the field of a row at a byte offset.
func readField[T, R any](row *R, at uintptr) T {
	return *(*T)(unsafe.Add(unsafe.Pointer(row), at))
}

// dictionaryIndexes holds the dictionary index of each row's value. While all rows have index 0, it
// only counts them. Many columns are like that: one process, one device, no flags.
type dictionaryIndexes struct {
	same   int // number of rows with index 0 while values is empty
	values []int32
}

// appendRows appends n rows and returns their part of values.
func (d *dictionaryIndexes) appendRows(n int) []int32 {
	first := d.numRows()
	if need := first + n; need > cap(d.values) {
		// A quarter more, not twice as much: every column keeps this memory.
		values := make([]int32, len(d.values), max(cap(d.values)*5/4, need, 1024))
		copy(values, d.values)
		d.values = values
	}
	if d.same > 0 {
		clear(d.values[:d.same])
		d.same = 0
	}
	d.values = d.values[:first+n]
	return d.values[first:]
}

// numRows returns the number of rows.
func (d *dictionaryIndexes) numRows() int { return d.same + len(d.values) }

// removeRows removes all rows and keeps the memory.
func (d *dictionaryIndexes) removeRows() { d.same, d.values = 0, d.values[:0] }

var rleDictionaryEncoding rle.DictionaryEncoding

// encodeRLE returns the indexes in the RLE dictionary encoding of Parquet, in the memory of dst.
func (d *dictionaryIndexes) encodeRLE(dst []byte) ([]byte, error) {
	if len(d.values) == 0 { // one RLE run of indexes with 0 bits
		return binary.AppendUvarint(append(dst[:0], 0), uint64(d.same)<<1), nil
	}
	return rleDictionaryEncoding.EncodeInt32(dst, d.values)
}

// emptyColumn is a column within a list. The list is empty in all rows.
type emptyColumn[R any] struct{}

func (emptyColumn[R]) addRows([]R)                                  {}
func (emptyColumn[R]) setRepeated(*R, int)                          {}
func (emptyColumn[R]) encodeDictionary(dst []byte) ([]byte, int)    { return dst, 0 }
func (emptyColumn[R]) encodeData(dst []byte) ([]byte, error)        { return dst[:0], nil }
func (emptyColumn[R]) valueBounds() (least, greatest parquet.Value) { return }
func (emptyColumn[R]) totalTextBytes() int64                        { return 0 }
func (emptyColumn[R]) removeValues()                                {}

// constantColumn is a column that R does not have. All its values are those of one row of another
// type.
type constantColumn[R, Full any] struct {
	column[Full]
	row  *Full
	rows int
}

func (c *constantColumn[R, Full]) addRows(rows []R)        { c.rows += len(rows) }
func (c *constantColumn[R, Full]) setRepeated(_ *R, n int) { c.rows = n }

// encodeDictionary is the first of the methods that read the values, so it adds them.
func (c *constantColumn[R, Full]) encodeDictionary(dst []byte) ([]byte, int) {
	c.column.setRepeated(c.row, c.rows)
	c.rows = 0
	return c.column.encodeDictionary(dst)
}

func (c *constantColumn[R, Full]) removeValues() {
	c.rows = 0
	c.column.removeValues()
}
