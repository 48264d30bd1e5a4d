package columnwriter

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
)

// numberColumn is a column of numbers with a dictionary. It compares floating point numbers by
// their bits, so it keeps NaNs and -0.
type numberColumn[R any, T int32 | int64] struct {
	// at is the byte offset of the field in a row. float is true for bits of float64.
	at    uintptr
	float bool
	index dictionaryIndexes
	dict  []T
	last  int32 // index of the last value in dict
	// slots is a hash table with linear probing. A slot holds 1 + an index in dict, or 0 if it is
	// empty. The seed is random, so a hostile program cannot choose values that collide.
	slots []int32
	seed  uint64
}

func (c *numberColumn[R, T]) addRows(rows []R) {
	if len(c.index.values) == 0 && len(c.dict) < 2 {
		if len(c.dict) == 0 {
			c.last = c.dictionaryIndex(readField[T](&rows[0], c.at))
		}
		n := 0
		for n < len(rows) && readField[T](&rows[n], c.at) == c.dict[0] {
			n++
		}
		c.index.same += n
		if rows = rows[n:]; len(rows) == 0 {
			return
		}
	}
	numbers := c.index.appendRows(len(rows))
	last, before := c.last, c.dict[c.last]
	for i := range rows {
		if v := readField[T](&rows[i], c.at); v != before {
			last, before = c.dictionaryIndex(v), v
		}
		numbers[i] = last
	}
	c.last = last
}

func (c *numberColumn[R, T]) setRepeated(row *R, n int) {
	c.last = c.dictionaryIndex(readField[T](row, c.at))
	c.index.same = n
}

// dictionaryIndex returns the index of a value in the dictionary. It adds new values.
func (c *numberColumn[R, T]) dictionaryIndex(v T) int32 {
	if 2*len(c.dict) >= len(c.slots) {
		c.growHashTable()
	}
	for slot := c.firstHashSlot(v); ; slot = (slot + 1) & uint64(len(c.slots)-1) {
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

// firstHashSlot returns the first slot to probe for a value.
func (c *numberColumn[R, T]) firstHashSlot(v T) uint64 {
	h := (uint64(v) ^ c.seed) * 0x9e3779b97f4a7c15
	return (h ^ h>>32) & uint64(len(c.slots)-1)
}

// growHashTable builds a hash table with four times as many slots as values.
func (c *numberColumn[R, T]) growHashTable() {
	c.slots = make([]int32, max(4*len(c.dict), 64))
	for i, v := range c.dict {
		slot := c.firstHashSlot(v)
		for c.slots[slot] != 0 {
			slot = (slot + 1) & uint64(len(c.slots)-1)
		}
		c.slots[slot] = int32(i) + 1
	}
}

func (c *numberColumn[R, T]) encodeDictionary(dst []byte) ([]byte, int) {
	for _, v := range c.dict {
		if unsafe.Sizeof(v) == 4 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
		} else {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst, len(c.dict)
}

func (c *numberColumn[R, T]) encodeData(dst []byte) ([]byte, error) { return c.index.encodeRLE(dst) }

func (c *numberColumn[R, T]) valueBounds() (least, greatest parquet.Value) {
	if c.float {
		return floatMinMax(c.dict)
	}
	low, high := c.dict[0], c.dict[0]
	for _, v := range c.dict {
		low, high = min(low, v), max(high, v)
	}
	return parquet.ValueOf(low), parquet.ValueOf(high)
}

// floatMinMax returns the bounds of floating point numbers without NaNs, as the Parquet
// specification requires.
func floatMinMax[T int32 | int64](bits []T) (least, greatest parquet.Value) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, b := range bits {
		if v := math.Float64frombits(uint64(b)); !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return parquet.DoubleValue(min(low, high)), parquet.DoubleValue(max(low, high))
}

func (c *numberColumn[R, T]) totalTextBytes() int64 { return 0 }

func (c *numberColumn[R, T]) removeValues() {
	c.index.removeRows()
	c.dict, c.last = c.dict[:0], 0
	clear(c.slots)
}

// deltaColumn is a column of integers in the encoding DELTA_BINARY_PACKED.
type deltaColumn[R any] struct {
	at     uintptr
	values []int64
}

func (c *deltaColumn[R]) addRows(rows []R) {
	for i := range rows {
		c.values = append(c.values, readField[int64](&rows[i], c.at))
	}
}

func (c *deltaColumn[R]) setRepeated(row *R, n int) {
	c.values = slices.Grow(c.values, n)[:n]
	v := readField[int64](row, c.at)
	for i := range c.values {
		c.values[i] = v
	}
}

func (c *deltaColumn[R]) encodeDictionary(dst []byte) ([]byte, int) { return dst, 0 }

func (c *deltaColumn[R]) encodeData(dst []byte) ([]byte, error) {
	return new(delta.BinaryPackedEncoding).EncodeInt64(dst, c.values)
}

func (c *deltaColumn[R]) valueBounds() (least, greatest parquet.Value) {
	low, high := c.values[0], c.values[0]
	for _, v := range c.values {
		low, high = min(low, v), max(high, v)
	}
	return parquet.Int64Value(low), parquet.Int64Value(high)
}

func (c *deltaColumn[R]) totalTextBytes() int64 { return 0 }

func (c *deltaColumn[R]) removeValues() { c.values = c.values[:0] }
