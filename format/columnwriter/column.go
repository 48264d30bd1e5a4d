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
	// add appends the column's values in rows.
	add(rows []R)
	// dictionary appends the distinct values to dst, in the encoding PLAIN, and returns their
	// number. The number is 0 if the column's encoding has no dictionary.
	dictionary(dst []byte) ([]byte, int)
	// data returns the encoded values. It uses the memory of dst.
	data(dst []byte) ([]byte, error)
	// bounds returns the least and the greatest value, null if there are none.
	bounds() (least, greatest parquet.Value)
	// textBytes returns the sum of the lengths of all texts.
	textBytes() int64
	// reset removes all values and keeps the memory.
	reset()
}

// newColumn returns an empty column for a leaf of the layout. The column adds to textBytes the
// lengths of the texts that it keeps in memory.
func newColumn[R any](l *leaf, textBytes *int64) (column[R], error) {
	at := l.field.Offset
	kind, encoding := l.field.Type.Kind(), l.page.Encoding
	switch {
	case l.inList && encoding != pq.RLEDictionary: // a dictionary may not be empty
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
		"column %v: no way to write %s as %s", l.chunk.PathInSchema, kind, encoding)
}

// value returns the field of a row at an offset.
func value[T, R any](row *R, at uintptr) T {
	return *(*T)(unsafe.Add(unsafe.Pointer(row), at))
}

// index is the number of each row's value in a dictionary. While all rows have number 0, as in many
// columns (one process, one device, no flags), it only counts them.
type index struct {
	same   int // rows with number 0, if values is empty
	values []int32
}

// grow makes room for n more rows and returns it.
func (x *index) grow(n int) []int32 {
	first := x.len()
	if need := first + n; need > cap(x.values) {
		// A quarter more, not twice as much: every column keeps this memory.
		values := make([]int32, len(x.values), max(cap(x.values)*5/4, need, 1024))
		copy(values, x.values)
		x.values = values
	}
	if x.same > 0 {
		clear(x.values[:x.same])
		x.same = 0
	}
	x.values = x.values[:first+n]
	return x.values[first:]
}

func (x *index) len() int { return x.same + len(x.values) }

func (x *index) reset() { x.same, x.values = 0, x.values[:0] }

var dictionaryEncoding rle.DictionaryEncoding

func (x *index) encode(dst []byte) ([]byte, error) {
	if len(x.values) == 0 { // one run of numbers with 0 bits
		return binary.AppendUvarint(append(dst[:0], 0), uint64(x.same)<<1), nil
	}
	return dictionaryEncoding.EncodeInt32(dst, x.values)
}

// emptyColumn is a column within a list that is empty in all rows.
type emptyColumn[R any] struct{}

func (emptyColumn[R]) add([]R)                                 {}
func (emptyColumn[R]) dictionary(dst []byte) ([]byte, int)     { return dst, 0 }
func (emptyColumn[R]) data(dst []byte) ([]byte, error)         { return dst[:0], nil }
func (emptyColumn[R]) bounds() (least, greatest parquet.Value) { return }
func (emptyColumn[R]) textBytes() int64                        { return 0 }
func (emptyColumn[R]) reset()                                  {}
