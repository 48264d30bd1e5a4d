package elffile

import (
	"bytes"
	"math"
)

// Cursor decodes consecutive numbers and strings from memory. A read past the end sets Failed and
// returns a zero value. Later values have no meaning.
type Cursor struct {
	// Data is the input.
	Data   []byte
	At     int // index in Data of the next read
	Failed bool
}

// Take returns the next n bytes, or nil if fewer are left.
func (c *Cursor) Take(n uint64) []byte {
	if c.Failed || n > uint64(len(c.Data)-c.At) {
		c.Failed = true
		c.At = len(c.Data)
		return nil
	}
	c.At += int(n)
	return c.Data[c.At-int(n) : c.At]
}

// Uint reads a little-endian number of size bytes, 1 to 8.
func (c *Cursor) Uint(size int) uint64 {
	var n uint64
	for i, b := range c.Take(uint64(size)) {
		n |= uint64(b) << (8 * i)
	}
	return n
}

// Uleb reads an unsigned LEB128 number. It drops bits beyond 64.
func (c *Cursor) Uleb() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		if c.At >= len(c.Data) || shift > math.MaxUint16 {
			c.Failed = true
			return 0
		}
		b := c.Data[c.At]
		c.At++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

// Sleb reads a signed LEB128 number.
func (c *Cursor) Sleb() int64 {
	start := c.At
	n := c.Uleb()
	if bits := 7 * (c.At - start); !c.Failed && bits < 64 && c.Data[c.At-1]&0x40 != 0 {
		n |= ^uint64(0) << bits
	}
	return int64(n)
}

// Text reads a string that ends in a NUL byte.
func (c *Cursor) Text() string {
	n := bytes.IndexByte(c.Data[c.At:], 0)
	if n < 0 {
		c.Failed = true
		return ""
	}
	c.At += n + 1
	return string(c.Data[c.At-n-1 : c.At-1])
}

// SkipText skips a string that ends in a NUL byte.
func (c *Cursor) SkipText() {
	n := bytes.IndexByte(c.Data[c.At:], 0)
	if n < 0 {
		c.Failed = true
		return
	}
	c.At += n + 1
}
