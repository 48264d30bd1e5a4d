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

// PickleBatch is how many items are added to a list at once, as Python does it: readers
// hold those on a stack.
const PickleBatch = 1000

// Pickler writes values as Python's pickle, protocol 4. It holds no more than the
// distinct strings, which it writes once. Errors of the writer are kept until finish.
type Pickler struct {
	w       *bufio.Writer
	memos   int32 // values that can be written again by their number
	strings map[string]int32
	scratch [9]byte
}

func NewPickler(w io.Writer) *Pickler {
	p := &Pickler{w: bufio.NewWriterSize(w, 1<<16), strings: make(map[string]int32)}
	p.op(pickleProto, 4)
	return p
}

// Finish ends the pickle; the value is the one that was written.
func (p *Pickler) Finish() error {
	p.op(pickleStop)
	return p.w.Flush()
}

func (p *Pickler) op(code ...byte) { _, _ = p.w.Write(code) } // Flush has the error

// Memoize remembers the value written last and returns its number for again.
func (p *Pickler) Memoize() int32 {
	p.op(pickleMemoize)
	p.memos++
	return p.memos - 1
}

// Again writes a value that was memoized: the same object, not an equal one.
func (p *Pickler) Again(n int32) {
	if n < 256 {
		p.op(pickleGet, byte(n))
		return
	}
	p.op(append(p.scratch[:0], pickleLongGet, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))...)
}

func (p *Pickler) Str(s string) {
	if n, ok := p.strings[s]; ok {
		p.Again(n)
		return
	}
	text := units.ValidUTF8(s)
	if len(text) < 256 {
		p.op(pickleShortStr, byte(len(text)))
	} else {
		p.op(binary.LittleEndian.AppendUint32(append(p.scratch[:0], pickleStr), uint32(len(text)))...)
	}
	_, _ = p.w.WriteString(text)
	p.strings[s] = p.Memoize()
}

func (p *Pickler) Int(n int64) {
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

func (p *Pickler) Float(v float64) {
	p.op(binary.BigEndian.AppendUint64(append(p.scratch[:0], pickleFloat), math.Float64bits(v))...)
}

func (p *Pickler) bool(v bool) {
	if v {
		p.op(pickleTrue)
	} else {
		p.op(pickleFalse)
	}
}

// Pair writes a tuple of two numbers.
func (p *Pickler) Pair(a, b int64) {
	p.Int(a)
	p.Int(b)
	p.op(pickleTuple2)
}

// Dict writes a dictionary; fill writes keys and values in turn.
func (p *Pickler) Dict(fill func()) {
	p.op(pickleDict, pickleMark)
	fill()
	p.op(pickleSetItems)
}

// List writes a list; fill calls item before it writes each of its items.
func (p *Pickler) List(fill func(item func())) {
	p.op(pickleList, pickleMark)
	n := 0
	fill(func() {
		if n++; n > PickleBatch {
			p.op(pickleAppends, pickleMark)
			n = 1
		}
	})
	p.op(pickleAppends)
}

// Items of a dictionary.

func (p *Pickler) strItem(key, value string)       { p.Str(key); p.Str(value) }
func (p *Pickler) intItem(key string, value int64) { p.Str(key); p.Int(value) }
func (p *Pickler) BoolItem(key string, value bool) { p.Str(key); p.bool(value) }

// numbersItem writes a dictionary of numbers in order of its keys.
func (p *Pickler) numbersItem(key string, keys []string, values []int64) {
	p.Str(key)
	p.Dict(func() {
		for i, k := range slices.All(keys) {
			p.intItem(k, values[i])
		}
	})
}
