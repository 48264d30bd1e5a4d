package columnwriter

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
)

// maxKeptHashTexts is the largest hash table, in texts, that a column keeps for the next row group.
const maxKeptHashTexts = 8 << 10

// textColumn is a column of texts with a dictionary.
type textColumn[R any] struct {
	// at is the byte offset of the field in a row. kept counts bytes of texts in memory.
	at    uintptr
	kept  *int64
	index dictionaryIndexes
	dict  []string
	last  int32
	// numbers has the index in dict of each text.
	numbers map[string]int32
	// recent caches indexes by the address of the text, because most texts are Go constants.
	recent [64]struct {
		text   string
		number int32
	}
}

func (c *textColumn[R]) addRows(rows []R) {
	if len(c.index.values) == 0 && len(c.dict) < 2 {
		if len(c.dict) == 0 {
			c.last = c.dictionaryIndex(readField[string](&rows[0], c.at))
		}
		n := 0
		for n < len(rows) && equalTexts(readField[string](&rows[n], c.at), c.dict[0]) {
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
		if v := readField[string](&rows[i], c.at); !equalTexts(v, before) {
			last = c.dictionaryIndex(v)
			before = c.dict[last]
		}
		numbers[i] = last
	}
	c.last = last
}

func (c *textColumn[R]) setRepeated(row *R, n int) {
	c.last = c.dictionaryIndex(readField[string](row, c.at))
	c.index.same = n
}

// equalTexts reports whether two texts are equal. It is fast for texts at the same address.
func equalTexts(a, b string) bool {
	return len(a) == len(b) && (unsafe.StringData(a) == unsafe.StringData(b) || a == b)
}

// dictionaryIndex returns the index of a text in the dictionary. It adds new texts.
func (c *textColumn[R]) dictionaryIndex(v string) int32 {
	at := uintptr(unsafe.Pointer(unsafe.StringData(v)))
	recent := &c.recent[(at>>3^at>>9^uintptr(len(v)))%uintptr(len(c.recent))]
	// No other text has this address, since recent holds a reference to the memory.
	if len(v) > 0 && len(recent.text) == len(v) &&
		unsafe.StringData(recent.text) == unsafe.StringData(v) {
		return recent.number
	}
	n, ok := c.numbers[v]
	if !ok {
		n = int32(len(c.dict))
		c.dict = append(c.dict, v)
		c.numbers[v] = n
		*c.kept += int64(len(v))
	}
	recent.text, recent.number = v, n
	return n
}

func (c *textColumn[R]) encodeDictionary(dst []byte) ([]byte, int) {
	for _, v := range c.dict {
		dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(v))), v...)
	}
	return dst, len(c.dict)
}

func (c *textColumn[R]) encodeData(dst []byte) ([]byte, error) { return c.index.encodeRLE(dst) }

func (c *textColumn[R]) valueBounds() (least, greatest parquet.Value) {
	low, high := c.dict[0], c.dict[0]
	for _, v := range c.dict {
		low, high = min(low, v), max(high, v)
	}
	return parquet.ByteArrayValue([]byte(low)), parquet.ByteArrayValue([]byte(high))
}

func (c *textColumn[R]) totalTextBytes() int64 {
	n := int64(c.index.same) * int64(len(c.dict[0]))
	for _, i := range c.index.values {
		n += int64(len(c.dict[i]))
	}
	return n
}

func (c *textColumn[R]) removeValues() {
	c.index.removeRows()
	clear(c.dict) // releases the memory of the texts
	c.dict, c.last = c.dict[:0], 0
	clear(c.recent[:])
	if len(c.numbers) > maxKeptHashTexts {
		c.numbers = make(map[string]int32)
	}
	clear(c.numbers)
}

// plainTextColumn is a column of texts without dictionary, in the encoding DELTA_LENGTH_BYTE_ARRAY.
type plainTextColumn[R any] struct {
	at      uintptr
	kept    *int64
	bytes   []byte
	offsets []uint32 // start of each text in bytes, then the end of the last text
}

func (c *plainTextColumn[R]) addRows(rows []R) {
	for i := range rows {
		v := readField[string](&rows[i], c.at)
		*c.kept += int64(len(v))
		c.bytes = append(c.bytes, v...)
		c.offsets = append(c.offsets, uint32(len(c.bytes)))
	}
}

func (c *plainTextColumn[R]) setRepeated(row *R, n int) {
	rows := [1]R{*row}
	for range n {
		c.addRows(rows[:])
	}
}

func (c *plainTextColumn[R]) encodeDictionary(dst []byte) ([]byte, int) { return dst, 0 }

func (c *plainTextColumn[R]) encodeData(dst []byte) ([]byte, error) {
	return new(delta.LengthByteArrayEncoding).EncodeByteArray(dst, c.bytes, c.offsets)
}

func (c *plainTextColumn[R]) valueBounds() (least, greatest parquet.Value) {
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

func (c *plainTextColumn[R]) totalTextBytes() int64 { return int64(len(c.bytes)) }

func (c *plainTextColumn[R]) removeValues() { c.bytes, c.offsets = c.bytes[:0], c.offsets[:1] }
