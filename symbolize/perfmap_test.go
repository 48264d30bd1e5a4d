package symbolize

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gpurec/gpurec/internal/testclass"
)

func readPerfMap(t testing.TB, text string) *PerfMap {
	t.Helper()
	p, err := ReadPerfMap(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPerfMapLookup(t *testing.T) {
	testclass.Unit(t)
	p := readPerfMap(t, "1000 100 py::main:/a b.py\n0x2000 0x10 Ljava/lang/String;::<init>\n"+
		"3000 100 old\n3040 20 new\n4000 10 inside\n3ff0 100 around\n")
	tests := []struct {
		addr   uint64
		want   string
		offset uint64
	}{
		{0xfff, "", 0},
		{0x1000, "py::main:/a b.py", 0},
		{0x10ff, "py::main:/a b.py", 0xff},
		{0x1100, "", 0},
		{0x2008, "Ljava/lang/String;::<init>", 8},
		{0x303f, "old", 0x3f},
		{0x3040, "new", 0},
		{0x305f, "new", 0x1f},
		{0x3060, "old", 0x60},
		{0x4000, "around", 0x10},
		{0x400f, "around", 0x1f},
		{0x40f0, "", 0},
		{^uint64(0), "", 0},
		{0, "", 0},
	}
	for _, test := range tests {
		s, offset, ok := p.Lookup(test.addr)
		if s.Name != test.want || offset != test.offset || ok != (test.want != "") {
			t.Errorf("Lookup(%#x) = %+v, %#x, %v; want %q+%#x", test.addr, s, offset, ok, test.want, test.offset)
		}
	}
	if p.Len() != 6 || p.Skipped() != 0 || p.Truncated() {
		t.Errorf("Len() = %d, Skipped() = %d, Truncated() = %v", p.Len(), p.Skipped(), p.Truncated())
	}
}

func TestPerfMapSkipsAndCountsGarbage(t *testing.T) {
	testclass.Unit(t)
	p := readPerfMap(t, "1000 10 a\n\nhello\n1000\n1000 10\n1000 10 \nx 10 b\n1000 0 c\nffffffffffffffff 2 d\n"+
		"10 -1 e\n2000 10 "+strings.Repeat("x", maxPerfMapLineBytes)+"\n3000 10 f\n4000 10 cut off")
	if p.Len() != 2 || p.Skipped() != 11 || p.Truncated() {
		t.Errorf("Len() = %d, Skipped() = %d, Truncated() = %v", p.Len(), p.Skipped(), p.Truncated())
	}
	if s, _, _ := p.Lookup(0x3000); s.Name != "f" {
		t.Errorf("lost the line behind the long one: %+v", s)
	}
	if _, err := ReadPerfMap(iotest.ErrReader(os.ErrPermission)); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a failing reader gave %v", err)
	}
}

func TestPerfMapIsBounded(t *testing.T) {
	testclass.Unit(t)
	p := readPerfMap(t, strings.Repeat("1000 10 a\n", maxPerfMapEntries+5))
	if p.Len() != maxPerfMapEntries || p.Skipped() != 5 || !p.Truncated() {
		t.Errorf("Len() = %d, Skipped() = %d, Truncated() = %v", p.Len(), p.Skipped(), p.Truncated())
	}
}

// TestPerfMapLaterLinesWin checks that the last line that covers an address wins. The test compares
// with a simple implementation that marks each address.
func TestPerfMapLaterLinesWin(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var painted [300]string
		var text strings.Builder
		for i := range 40 {
			start, size := random.IntN(200), 1+random.IntN(1+random.IntN(90))
			fmt.Fprintf(&text, "%x %x f%d\n", start, size, i)
			for a := start; a < start+size; a++ {
				painted[a] = fmt.Sprintf("f%d", i)
			}
		}
		p := readPerfMap(t, text.String())
		for a, want := range painted {
			if s, _, ok := p.Lookup(uint64(a)); s.Name != want || ok != (want != "") {
				t.Fatalf("Lookup(%#x) = %q, want %q in\n%s", a, s.Name, want, text.String())
			}
		}
	}
}

func FuzzReadPerfMap(f *testing.F) {
	f.Add("1000 100 a\n1050 10 b\n0x2000 0x10 c d\nxx\nffffffffffffffff 1 e\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := readPerfMap(t, text)
		for _, e := range p.entries {
			for _, a := range []uint64{e.start, e.start + e.size - 1, e.start + e.size} {
				if s, offset, ok := p.Lookup(a); ok && (s.Name == "" || offset >= s.Size || s.Start+offset != a) {
					t.Fatalf("Lookup(%#x) = %+v, %d", a, s, offset)
				}
			}
		}
		if lines := strings.Count(text, "\n") + 1; p.Len()+p.Skipped() > lines {
			t.Fatalf("%d functions and %d skipped of %d lines", p.Len(), p.Skipped(), lines)
		}
	})
}
