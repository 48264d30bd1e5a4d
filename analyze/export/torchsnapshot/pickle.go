package torchsnapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// Opcodes of Python's pickle format. The memory_viz viewer has its own unpickler, which supports
// these opcodes and only a few others.
const (
	pickleOpProtocol      = 0x80 // followed by the protocol version
	pickleOpStop          = '.'
	pickleOpMark          = '('
	pickleOpEmptyList     = ']' // pushes an empty list
	pickleOpAppends       = 'e' // appends the items above the mark to the list below it
	pickleOpEmptyDict     = '}' // pushes an empty dictionary
	pickleOpSetItems      = 'u'
	pickleOpTuple2        = 0x86
	pickleOpTrue          = 0x88
	pickleOpFalse         = 0x89
	pickleOpInt1Byte      = 'K'
	pickleOpInt2Bytes     = 'M'
	pickleOpInt4Bytes     = 'J'
	pickleOpLongInt       = 0x8a
	pickleOpFloat         = 'G'
	pickleOpShortString   = 0x8c
	pickleOpString        = 'X'
	pickleOpMemoize       = 0x94
	pickleOpGetMemo       = 'h'
	pickleOpGetMemo4Bytes = 'j'
)

// maxAppendItems is the largest number of items that one opcode appends to a list. Unpicklers keep
// these items on a stack. Python's pickler has the same limit.
const maxAppendItems = 1000

// pickler writes values as a Python pickle of protocol 4. It writes each distinct string once, and
// keeps these strings in memory. finishPickle returns the first error of the writer.
type pickler struct {
	w       *bufio.Writer
	memos   int32            // number of memoized values
	strings map[string]int32 // memo numbers of strings
	scratch [9]byte
}

// newPickler returns a pickler that writes to w.
func newPickler(w io.Writer) *pickler {
	p := &pickler{w: bufio.NewWriterSize(w, 1<<16), strings: make(map[string]int32)}
	p.writeOpcode(pickleOpProtocol, 4)
	return p
}

// finishPickle ends the pickle and flushes the writer. The value of the pickle is the last value on
// the unpickler's stack.
func (p *pickler) finishPickle() error {
	p.writeOpcode(pickleOpStop)
	return p.w.Flush()
}

// writeOpcode writes a pickle opcode and its argument.
func (p *pickler) writeOpcode(code ...byte) { _, _ = p.w.Write(code) } // finishPickle returns the error

// memoizeLast memoizes the value that was written last, and returns its number for
// writeMemoReference.
func (p *pickler) memoizeLast() int32 {
	p.writeOpcode(pickleOpMemoize)
	p.memos++
	return p.memos - 1
}

// writeMemoReference writes a reference to a memoized value. Python sees the same object, not an
// equal one.
func (p *pickler) writeMemoReference(n int32) {
	if n < 256 {
		p.writeOpcode(pickleOpGetMemo, byte(n))
		return
	}
	p.writeOpcode(append(p.scratch[:0], pickleOpGetMemo4Bytes, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))...)
}

// writeString writes a string, or a reference if the string was written before.
func (p *pickler) writeString(s string) {
	if n, ok := p.strings[s]; ok {
		p.writeMemoReference(n)
		return
	}
	text := units.ReplaceInvalidUTF8(s)
	if len(text) < 256 {
		p.writeOpcode(pickleOpShortString, byte(len(text)))
	} else {
		p.writeOpcode(binary.LittleEndian.AppendUint32(append(p.scratch[:0], pickleOpString), uint32(len(text)))...)
	}
	_, _ = p.w.WriteString(text)
	p.strings[s] = p.memoizeLast()
}

// writeInt writes an integer with the shortest opcode.
func (p *pickler) writeInt(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		p.writeOpcode(pickleOpInt1Byte, byte(n))
	case n >= 0 && n < 1<<16:
		p.writeOpcode(pickleOpInt2Bytes, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.writeOpcode(binary.LittleEndian.AppendUint32(append(p.scratch[:0], pickleOpInt4Bytes), uint32(n))...)
	default:
		p.writeOpcode(pickleOpLongInt, 8)
		p.writeOpcode(binary.LittleEndian.AppendUint64(p.scratch[:0], uint64(n))...)
	}
}

// writeFloat writes a floating-point number.
func (p *pickler) writeFloat(v float64) {
	p.writeOpcode(binary.BigEndian.AppendUint64(append(p.scratch[:0], pickleOpFloat), math.Float64bits(v))...)
}

// writeBool writes True or False.
func (p *pickler) writeBool(v bool) {
	if v {
		p.writeOpcode(pickleOpTrue)
	} else {
		p.writeOpcode(pickleOpFalse)
	}
}

// writeIntPair writes a tuple of two integers.
func (p *pickler) writeIntPair(a, b int64) {
	p.writeInt(a)
	p.writeInt(b)
	p.writeOpcode(pickleOpTuple2)
}

// writeDict writes a dictionary. fill writes key, value, key, value and so on.
func (p *pickler) writeDict(fill func()) {
	p.writeOpcode(pickleOpEmptyDict, pickleOpMark)
	fill()
	p.writeOpcode(pickleOpSetItems)
}

// writeList writes a list. fill must call item before it writes each item.
func (p *pickler) writeList(fill func(item func())) {
	p.writeOpcode(pickleOpEmptyList, pickleOpMark)
	n := 0
	fill(func() {
		if n++; n > maxAppendItems {
			p.writeOpcode(pickleOpAppends, pickleOpMark)
			n = 1
		}
	})
	p.writeOpcode(pickleOpAppends)
}

// writeStringItem, writeIntItem and writeBoolItem write a key and a value of a dictionary.

func (p *pickler) writeStringItem(key, value string)    { p.writeString(key); p.writeString(value) }
func (p *pickler) writeIntItem(key string, value int64) { p.writeString(key); p.writeInt(value) }
func (p *pickler) writeBoolItem(key string, value bool) { p.writeString(key); p.writeBool(value) }

// writeIntDictItem writes a key whose value is a dictionary of integers, in order of keys.
func (p *pickler) writeIntDictItem(key string, keys []string, values []int64) {
	p.writeString(key)
	p.writeDict(func() {
		for i, k := range slices.All(keys) {
			p.writeIntItem(k, values[i])
		}
	})
}
