package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	pq "github.com/parquet-go/parquet-go/format"
)

// column gathers the values of one column of a row group.
type column interface {
	// add takes the column's values out of rows.
	add(rows []Row)
	// dictionary is the column's distinct values as PLAIN encodes them, and their number;
	// 0 if its encoding is none with a dictionary.
	dictionary(dst []byte) ([]byte, int)
	// data is the values, encoded.
	data(dst []byte) ([]byte, error)
	// bounds are the least and the greatest value; null if there are none.
	bounds() (least, greatest parquet.Value)
	// textBytes is how long all texts together are.
	textBytes() int64
	reset()
}

// newColumn returns an empty column for a leaf of the layout, which adds to held how many bytes
// of texts it holds.
func newColumn(l *leaf, held *int64) (column, error) {
	at := l.field.Offset
	kind, encoding := l.field.Type.Kind(), l.page.Encoding
	switch {
	case l.inList:
		return &emptyColumn{}, nil
	case encoding == pq.RLEDictionary && kind == reflect.String:
		return &textColumn{at: at, held: held, numbers: make(map[string]int32)}, nil
	case encoding == pq.RLEDictionary && kind == reflect.Int32:
		return &numberColumn[int32]{at: at, seed: rand.Uint64()}, nil
	case encoding == pq.RLEDictionary && (kind == reflect.Int64 || kind == reflect.Float64):
		return &numberColumn[int64]{at: at, seed: rand.Uint64(), float: kind == reflect.Float64}, nil
	case encoding == pq.DeltaBinaryPacked && kind == reflect.Int64:
		return &deltaColumn{at: at}, nil
	case encoding == pq.DeltaLengthByteArray && kind == reflect.String:
		return &plainTextColumn{at: at, held: held, offsets: []uint32{0}}, nil
	}
	return nil, fmt.Errorf("column %v: no way to write %s as %s", l.chunk.PathInSchema, kind, encoding)
}

// value returns the member of a row that lies at an offset.
func value[T any](row *Row, at uintptr) T {
	return *(*T)(unsafe.Add(unsafe.Pointer(row), at))
}

// index is the number of each row's value in a dictionary. As long as all have the first
// number, as in many columns (one process, one device, no flags), rows are only counted.
type index struct {
	same   int
	values []int32
}

// grow makes room for n more rows and returns it.
func (x *index) grow(n int) []int32 {
	first := x.len()
	if need := first + n; need > cap(x.values) {
		// A quarter more, not twice as much: this memory is kept, for each column of each class.
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
	if len(x.values) == 0 { // numbers of 0 bits, in one run
		return binary.AppendUvarint(append(dst[:0], 0), uint64(x.same)<<1), nil
	}
	return dictionaryEncoding.EncodeInt32(dst, x.values)
}

// numberColumn is a column of numbers with a dictionary. Floating point numbers are what
// their bits say.
type numberColumn[T int32 | int64] struct {
	at    uintptr
	float bool
	index index
	dict  []T
	last  int32 // number of the value that came last
	// slots is a hash table with linear probing: number + 1 of a value in dict, 0 if none.
	// The seed keeps a recorded process from choosing values that collide.
	slots []int32
	seed  uint64
}

func (c *numberColumn[T]) add(rows []Row) {
	if len(c.index.values) == 0 && len(c.dict) < 2 {
		if len(c.dict) == 0 {
			c.last = c.number(value[T](&rows[0], c.at))
		}
		n := 0
		for n < len(rows) && value[T](&rows[n], c.at) == c.dict[0] {
			n++
		}
		c.index.same += n
		if rows = rows[n:]; len(rows) == 0 {
			return
		}
	}
	numbers := c.index.grow(len(rows))
	last, before := c.last, c.dict[c.last]
	for i := range rows {
		if v := value[T](&rows[i], c.at); v != before {
			last, before = c.number(v), v
		}
		numbers[i] = last
	}
	c.last = last
}

// number returns the number of a value in the dictionary.
func (c *numberColumn[T]) number(v T) int32 {
	if 2*len(c.dict) >= len(c.slots) {
		c.rehash()
	}
	for slot := c.hash(v); ; slot = (slot + 1) & uint64(len(c.slots)-1) {
		n := c.slots[slot]
		if n == 0 {
			c.dict = append(c.dict, v)
			c.slots[slot] = int32(len(c.dict))
			return int32(len(c.dict)) - 1
		}
		if c.dict[n-1] == v {
			return n - 1
		}
	}
}

// hash is the slot at which the search for a value begins.
func (c *numberColumn[T]) hash(v T) uint64 {
	h := (uint64(v) ^ c.seed) * 0x9e3779b97f4a7c15
	return (h ^ h>>32) & uint64(len(c.slots)-1)
}

func (c *numberColumn[T]) rehash() {
	c.slots = make([]int32, max(4*len(c.dict), 64))
	for i, v := range c.dict {
		slot := c.hash(v)
		for c.slots[slot] != 0 {
			slot = (slot + 1) & uint64(len(c.slots)-1)
		}
		c.slots[slot] = int32(i) + 1
	}
}

func (c *numberColumn[T]) dictionary(dst []byte) ([]byte, int) {
	for _, v := range c.dict {
		if unsafe.Sizeof(v) == 4 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
		} else {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst, len(c.dict)
}

func (c *numberColumn[T]) data(dst []byte) ([]byte, error) { return c.index.encode(dst) }

func (c *numberColumn[T]) bounds() (least, greatest parquet.Value) {
	if c.float {
		return floatBounds(c.dict)
	}
	low, high := c.dict[0], c.dict[0]
	for _, v := range c.dict {
		low, high = min(low, v), max(high, v)
	}
	return parquet.ValueOf(low), parquet.ValueOf(high)
}

// floatBounds leaves out what is no number, as Parquet's specification asks for.
func floatBounds[T int32 | int64](bits []T) (least, greatest parquet.Value) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, b := range bits {
		if v := math.Float64frombits(uint64(b)); !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return parquet.DoubleValue(min(low, high)), parquet.DoubleValue(max(low, high))
}

func (c *numberColumn[T]) textBytes() int64 { return 0 }

func (c *numberColumn[T]) reset() {
	c.index.reset()
	c.dict, c.last = c.dict[:0], 0
	clear(c.slots)
}

// textColumn is a column of texts with a dictionary.
type textColumn struct {
	at      uintptr
	held    *int64
	index   index
	dict    []string
	last    int32
	numbers map[string]int32
	// recent are numbers of texts by where they lie: most are constants, or come out of tables.
	recent [64]struct {
		text   string
		number int32
	}
}

func (c *textColumn) add(rows []Row) {
	if len(c.index.values) == 0 && len(c.dict) < 2 {
		if len(c.dict) == 0 {
			c.last = c.number(value[string](&rows[0], c.at))
		}
		n := 0
		for n < len(rows) && sameText(value[string](&rows[n], c.at), c.dict[0]) {
			n++
		}
		c.index.same += n
		if rows = rows[n:]; len(rows) == 0 {
			return
		}
	}
	numbers := c.index.grow(len(rows))
	last, before := c.last, c.dict[c.last]
	for i := range rows {
		if v := value[string](&rows[i], c.at); !sameText(v, before) {
			last = c.number(v)
			before = c.dict[last]
		}
		numbers[i] = last
	}
	c.last = last
}

// sameText is == that looks at where texts lie before it compares them.
func sameText(a, b string) bool {
	return len(a) == len(b) && (unsafe.StringData(a) == unsafe.StringData(b) || a == b)
}

func (c *textColumn) number(v string) int32 {
	at := uintptr(unsafe.Pointer(unsafe.StringData(v)))
	recent := &c.recent[(at>>3^at>>9^uintptr(len(v)))%uintptr(len(c.recent))]
	// The text that is kept here keeps its memory from being used again.
	if len(v) > 0 && len(recent.text) == len(v) && unsafe.StringData(recent.text) == unsafe.StringData(v) {
		return recent.number
	}
	n, ok := c.numbers[v]
	if !ok {
		n = int32(len(c.dict))
		c.dict = append(c.dict, v)
		c.numbers[v] = n
		*c.held += int64(len(v))
	}
	recent.text, recent.number = v, n
	return n
}

func (c *textColumn) dictionary(dst []byte) ([]byte, int) {
	for _, v := range c.dict {
		dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(v))), v...)
	}
	return dst, len(c.dict)
}

func (c *textColumn) data(dst []byte) ([]byte, error) { return c.index.encode(dst) }

func (c *textColumn) bounds() (least, greatest parquet.Value) {
	low, high := c.dict[0], c.dict[0]
	for _, v := range c.dict {
		low, high = min(low, v), max(high, v)
	}
	return parquet.ByteArrayValue([]byte(low)), parquet.ByteArrayValue([]byte(high))
}

func (c *textColumn) textBytes() int64 {
	n := int64(c.index.same) * int64(len(c.dict[0]))
	for _, i := range c.index.values {
		n += int64(len(c.dict[i]))
	}
	return n
}

func (c *textColumn) reset() {
	c.index.reset()
	clear(c.dict) // texts are not kept
	c.dict, c.last = c.dict[:0], 0
	clear(c.recent[:])
	if len(c.numbers) > maxGroupRows/16 {
		c.numbers = make(map[string]int32)
	}
	clear(c.numbers)
}

// deltaColumn is a column of numbers stored as differences.
type deltaColumn struct {
	at     uintptr
	values []int64
}

func (c *deltaColumn) add(rows []Row) {
	for i := range rows {
		c.values = append(c.values, value[int64](&rows[i], c.at))
	}
}

func (c *deltaColumn) dictionary(dst []byte) ([]byte, int) { return dst, 0 }

func (c *deltaColumn) data(dst []byte) ([]byte, error) {
	return new(delta.BinaryPackedEncoding).EncodeInt64(dst, c.values)
}

func (c *deltaColumn) bounds() (least, greatest parquet.Value) {
	low, high := c.values[0], c.values[0]
	for _, v := range c.values {
		low, high = min(low, v), max(high, v)
	}
	return parquet.Int64Value(low), parquet.Int64Value(high)
}

func (c *deltaColumn) textBytes() int64 { return 0 }

func (c *deltaColumn) reset() { c.values = c.values[:0] }

// plainTextColumn is a column of texts without a dictionary.
type plainTextColumn struct {
	at      uintptr
	held    *int64
	bytes   []byte
	offsets []uint32 // where each begins, and where the last one ends
}

func (c *plainTextColumn) add(rows []Row) {
	for i := range rows {
		v := value[string](&rows[i], c.at)
		*c.held += int64(len(v))
		c.bytes = append(c.bytes, v...)
		c.offsets = append(c.offsets, uint32(len(c.bytes)))
	}
}

func (c *plainTextColumn) dictionary(dst []byte) ([]byte, int) { return dst, 0 }

func (c *plainTextColumn) data(dst []byte) ([]byte, error) {
	return new(delta.LengthByteArrayEncoding).EncodeByteArray(dst, c.bytes, c.offsets)
}

func (c *plainTextColumn) bounds() (least, greatest parquet.Value) {
	low, high := []byte{}, []byte{}
	if len(c.bytes) > 0 {
		for i, end := range c.offsets[1:] {
			v := c.bytes[c.offsets[i]:end]
			if i == 0 || bytes.Compare(v, low) < 0 {
				low = v
			}
			if bytes.Compare(v, high) > 0 {
				high = v
			}
		}
	}
	return parquet.ByteArrayValue(low), parquet.ByteArrayValue(high)
}

func (c *plainTextColumn) textBytes() int64 { return int64(len(c.bytes)) }

func (c *plainTextColumn) reset() { c.bytes, c.offsets = c.bytes[:0], c.offsets[:1] }

// emptyColumn is a column in a list that has no elements in any row.
type emptyColumn struct{}

func (emptyColumn) add([]Row)                               {}
func (emptyColumn) dictionary(dst []byte) ([]byte, int)     { return dst, 0 }
func (emptyColumn) data(dst []byte) ([]byte, error)         { return dst[:0], nil }
func (emptyColumn) bounds() (least, greatest parquet.Value) { return }
func (emptyColumn) textBytes() int64                        { return 0 }
func (emptyColumn) reset()                                  {}
