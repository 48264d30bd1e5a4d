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
	pickleProto    = 0x80 // followed by the protocol version
	pickleStop     = '.'
	pickleMark     = '('
	pickleList     = ']' // pushes an empty list
	pickleAppends  = 'e' // appends the items above the mark to the list below it
	pickleDict     = '}' // pushes an empty dictionary
	pickleSetItems = 'u'
	pickleTuple2   = 0x86
	pickleTrue     = 0x88
	pickleFalse    = 0x89
	pickleInt1     = 'K'
	pickleInt2     = 'M'
	pickleInt4     = 'J'
	pickleLong     = 0x8a
	pickleFloat    = 'G'
	pickleShortStr = 0x8c
	pickleStr      = 'X'
	pickleMemoize  = 0x94
	pickleGet      = 'h'
	pickleLongGet  = 'j'
)

// maxBatch is the largest number of items that one opcode appends to a list. Unpicklers keep these
// items on a stack. Python's pickler has the same limit.
const maxBatch = 1000

// pickler writes values as a Python pickle of protocol 4. It writes each distinct string once, and
// keeps these strings in memory. finish returns the first error of the writer.
type pickler struct {
	w       *bufio.Writer
	memos   int32            // number of memoized values
	strings map[string]int32 // memo numbers of strings
	scratch [9]byte
}

// newPickler returns a pickler that writes to w.
func newPickler(w io.Writer) *pickler {
	p := &pickler{w: bufio.NewWriterSize(w, 1<<16), strings: make(map[string]int32)}
	p.op(pickleProto, 4)
	return p
}

// finish ends the pickle and flushes the writer. The value of the pickle is the last value on the
// unpickler's stack.
func (p *pickler) finish() error {
	p.op(pickleStop)
	return p.w.Flush()
}

// op writes an opcode and its argument.
func (p *pickler) op(code ...byte) { _, _ = p.w.Write(code) } // finish returns the error

// memoize memoizes the value that was written last, and returns its number for writeMemo.
func (p *pickler) memoize() int32 {
	p.op(pickleMemoize)
	p.memos++
	return p.memos - 1
}

// writeMemo writes a reference to a memoized value. Python sees the same object, not an equal one.
func (p *pickler) writeMemo(n int32) {
	if n < 256 {
		p.op(pickleGet, byte(n))
		return
	}
	p.op(append(p.scratch[:0], pickleLongGet, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))...)
}

// str writes a string, or a reference if the string was written before.
func (p *pickler) str(s string) {
	if n, ok := p.strings[s]; ok {
		p.writeMemo(n)
		return
	}
	text := units.ValidUTF8(s)
	if len(text) < 256 {
		p.op(pickleShortStr, byte(len(text)))
	} else {
		p.op(binary.LittleEndian.AppendUint32(append(p.scratch[:0], pickleStr), uint32(len(text)))...)
	}
	_, _ = p.w.WriteString(text)
	p.strings[s] = p.memoize()
}

// int writes an integer with the shortest opcode.
func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		p.op(pickleInt1, byte(n))
	case n >= 0 && n < 1<<16:
		p.op(pickleInt2, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op(binary.LittleEndian.AppendUint32(append(p.scratch[:0], pickleInt4), uint32(n))...)
	default:
		p.op(pickleLong, 8)
		p.op(binary.LittleEndian.AppendUint64(p.scratch[:0], uint64(n))...)
	}
}

// float writes a floating-point number.
func (p *pickler) float(v float64) {
	p.op(binary.BigEndian.AppendUint64(append(p.scratch[:0], pickleFloat), math.Float64bits(v))...)
}

// bool writes True or False.
func (p *pickler) bool(v bool) {
	if v {
		p.op(pickleTrue)
	} else {
		p.op(pickleFalse)
	}
}

// pair writes a tuple of two integers.
func (p *pickler) pair(a, b int64) {
	p.int(a)
	p.int(b)
	p.op(pickleTuple2)
}

// dict writes a dictionary. fill writes key, value, key, value and so on.
func (p *pickler) dict(fill func()) {
	p.op(pickleDict, pickleMark)
	fill()
	p.op(pickleSetItems)
}

// list writes a list. fill must call item before it writes each item.
func (p *pickler) list(fill func(item func())) {
	p.op(pickleList, pickleMark)
	n := 0
	fill(func() {
		if n++; n > maxBatch {
			p.op(pickleAppends, pickleMark)
			n = 1
		}
	})
	p.op(pickleAppends)
}

// strItem, intItem and boolItem write a key and a value of a dictionary.

func (p *pickler) strItem(key, value string)       { p.str(key); p.str(value) }
func (p *pickler) intItem(key string, value int64) { p.str(key); p.int(value) }
func (p *pickler) boolItem(key string, value bool) { p.str(key); p.bool(value) }

// numbersItem writes a key whose value is a dictionary of integers, in order of keys.
func (p *pickler) numbersItem(key string, keys []string, values []int64) {
	p.str(key)
	p.dict(func() {
		for i, k := range slices.All(keys) {
			p.intItem(k, values[i])
		}
	})
}
