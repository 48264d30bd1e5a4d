package elffile

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

func TestCursorReadsLEB128(t *testing.T) {
	testclass.Unit(t)
	for _, n := range []uint64{0, 1, 127, 128, 300, 1 << 35, math.MaxUint64} {
		c := Cursor{Data: binary.AppendUvarint(nil, n)}
		if got := c.Uleb(); got != n || c.Failed || c.At != len(c.Data) {
			t.Errorf("Uleb() = %d, want %d; %+v", got, n, c)
		}
	}
	// From the examples of DWARF 5, table 7.8.
	for want, data := range map[int64][]byte{
		2: {2}, -2: {0x7e}, 127: {0xff, 0}, -127: {0x81, 0x7f}, 128: {0x80, 1}, -128: {0x80, 0x7f},
		129: {0x81, 1}, -129: {0xff, 0x7e},
		math.MinInt64: {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f},
	} {
		c := Cursor{Data: data}
		if got := c.Sleb(); got != want || c.Failed {
			t.Errorf("Sleb() of % x = %d, want %d", data, got, want)
		}
	}
}

func TestCursorFailsPastTheEnd(t *testing.T) {
	testclass.Unit(t)
	reads := map[string]func(c *Cursor) bool{
		"Take": func(c *Cursor) bool { return c.Take(3) == nil },
		"Uint": func(c *Cursor) bool { return c.Uint(4) == 0 },
		"Uleb": func(c *Cursor) bool { return c.Uleb() == 0 },
		"Sleb": func(c *Cursor) bool { return c.Sleb() == 0 },
		"Text": func(c *Cursor) bool { return c.Text() == "" },
		"SkipText": func(c *Cursor) bool {
			c.SkipText()
			return true
		},
	}
	for name, read := range reads {
		c := Cursor{Data: []byte{0x80, 0x81}} // an unfinished number, which is also a string without its end
		if zero := read(&c); !zero || !c.Failed {
			t.Errorf("%s: zero %v, %+v", name, zero, c)
		}
		if c.Take(1) != nil {
			t.Errorf("%s: a failed cursor reads on", name)
		}
	}
}

func TestParseReadsMoreUntilItIsEnough(t *testing.T) {
	testclass.Unit(t)
	content := make([]byte, 100<<10)
	content[len(content)-1] = 7
	s, err := newFile(t, elftest.Sections(map[string][]byte{".debug_line": content})).Section(".debug_line")
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	tries := 0
	read := func(c *Cursor) {
		tries++
		c.Take(uint64(len(content)) - 1)
		last = c.Uint(1)
	}
	if err := s.Parse(0, read); err != nil || last != 7 || tries < 2 {
		t.Errorf("Parse: %v, last byte %d after %d tries", err, last, tries)
	}
	if err := s.Parse(1, read); err == nil {
		t.Error("Parse reads past the end of the section")
	}
}
