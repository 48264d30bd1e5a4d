package torchsnapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// Instructions of Python's pickle machine, as far as snapshots need them. The viewer of
// snapshots has a pickle machine of its own, which knows these and hardly any other.
const (
	pickleProto    = 0x80 // and the protocol
	pickleStop     = '.'
	pickleMark     = '('
	pickleList     = ']' // empty
	pickleAppends  = 'e' // what is above the mark to the list below it
	pickleDict     = '}' // empty
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

// pickleBatch is how many items are added to a list at once, as Python does it: readers
// hold those on a stack.
const pickleBatch = 1000

// pickler writes values as Python's pickle, protocol 4. It holds no more than the
// distinct strings, which it writes once. Errors of the writer are kept until finish.
type pickler struct {
	w       *bufio.Writer
	memos   int32 // values that can be written again by their number
	strings map[string]int32
	scratch [9]byte
}

func newPickler(w io.Writer) *pickler {
	p := &pickler{w: bufio.NewWriterSize(w, 1<<16), strings: make(map[string]int32)}
	p.op(pickleProto, 4)
	return p
}

// finish ends the pickle; the value is the one that was written.
func (p *pickler) finish() error {
	p.op(pickleStop)
	return p.w.Flush()
}

func (p *pickler) op(code ...byte) { _, _ = p.w.Write(code) } // Flush has the error

// memoize remembers the value written last and returns its number for again.
func (p *pickler) memoize() int32 {
	p.op(pickleMemoize)
	p.memos++
	return p.memos - 1
}

// again writes a value that was memoized: the same object, not an equal one.
func (p *pickler) again(n int32) {
	if n < 256 {
		p.op(pickleGet, byte(n))
		return
	}
	p.op(append(p.scratch[:0], pickleLongGet, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))...)
}

func (p *pickler) str(s string) {
	if n, ok := p.strings[s]; ok {
		p.again(n)
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

func (p *pickler) float(v float64) {
	p.op(binary.BigEndian.AppendUint64(append(p.scratch[:0], pickleFloat), math.Float64bits(v))...)
}

func (p *pickler) bool(v bool) {
	if v {
		p.op(pickleTrue)
	} else {
		p.op(pickleFalse)
	}
}

// pair writes a tuple of two numbers.
func (p *pickler) pair(a, b int64) {
	p.int(a)
	p.int(b)
	p.op(pickleTuple2)
}

// dict writes a dictionary; fill writes keys and values in turn.
func (p *pickler) dict(fill func()) {
	p.op(pickleDict, pickleMark)
	fill()
	p.op(pickleSetItems)
}

// list writes a list; fill calls item before it writes each of its items.
func (p *pickler) list(fill func(item func())) {
	p.op(pickleList, pickleMark)
	n := 0
	fill(func() {
		if n++; n > pickleBatch {
			p.op(pickleAppends, pickleMark)
			n = 1
		}
	})
	p.op(pickleAppends)
}

// Items of a dictionary.

func (p *pickler) strItem(key, value string)       { p.str(key); p.str(value) }
func (p *pickler) intItem(key string, value int64) { p.str(key); p.int(value) }
func (p *pickler) boolItem(key string, value bool) { p.str(key); p.bool(value) }

// numbersItem writes a dictionary of numbers in order of its keys.
func (p *pickler) numbersItem(key string, keys []string, values []int64) {
	p.str(key)
	p.dict(func() {
		for i, k := range slices.All(keys) {
			p.intItem(k, values[i])
		}
	})
}
