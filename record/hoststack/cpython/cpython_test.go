//go:build linux

package cpython

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLines compares lines with code.co_lines() of CPython 3.12 for a function of eleven lines.
func TestLines(t *testing.T) {
	testclass.Unit(t)
	table, err := hex.DecodeString(
		"8000e00809d80809f10301090a8041e40d1290318b58f2000205128801d808098c518871d80f10f303" +
			"010e12f1000109128901f003020512f00c00131490519016f605030c06e00c0df20300090af203030c06f000030506f9f200030c06",
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ first, last, line int }{
		{0, 0, 1},
		{1, 1, 3},
		{2, 2, 4},
		{3, 5, 3},
		{6, 19, 5},
		{20, 26, 6},
		{27, 27, 7},
		{28, 35, 6},
		{36, 36, 5},
		{37, 39, 11},
		{40, 46, 9},
		{47, 47, 11},
		{48, 50, 10},
		{51, 54, 9},
		{55, 56, 0},
		{57, 59, 9},
		{60, 80, 0},
	} {
		for i := want.first; i <= want.last; i++ {
			if got := findLine(table, 1, int64(i)); got != want.line {
				t.Errorf("instruction %d is in line %d, not %d", i, got, want.line)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		kind int
		raw  string
		want string
	}{
		{1, "step", "step"},
		{1, "\xe4b", "äb"},
		{2, "\x0d\x54\x4d\x52", "名前"},
		{4, "\x00\xf6\x01\x00", "\U0001f600"},
		{4, "\xff\xff\xff\xff", "\ufffd"},
	} {
		if got := decode([]byte(test.raw), test.kind); got != test.want {
			t.Errorf("%q is %q, not %q", test.raw, got, test.want)
		}
	}
}

// fakeMemory is memory from address 0.
type fakeMemory []byte

func (m fakeMemory) Read(addr uint64, into []byte) error {
	if addr > uint64(len(m)) || uint64(len(m))-addr < uint64(len(into)) {
		return errors.New("unreadable")
	}
	copy(into, m[addr:])
	return nil
}

// TestUnknownLayouts checks that structures which are not as expected are refused.
func TestUnknownLayouts(t *testing.T) {
	testclass.Unit(t)
	// An interpreter at 0x1000 with one thread state at 0x2000, in the layout of 3.12.
	newProcess := func() (fakeMemory, map[string]Symbol) {
		m := make(fakeMemory, 0x4000)
		put := func(at, value uint64) { binary.LittleEndian.PutUint64(m[at:], value) }
		l := layouts[version{3, 12}]
		put(0x100+l.interpreters, 0x1000)
		put(0x1000+l.threads, 0x2000)
		put(0x2000+l.interpreter, 0x1000)
		put(0x2000+l.threadID, 0x7777)
		put(0x20, 0x030c01f0)
		return m, map[string]Symbol{
			symbolRuntime: {0x100, 8}, symbolVersion: {0x20, 4}, symbolCodeType: {0x30, 8}, symbolLoop: {0x40, 16},
		}
	}
	isThread := func(pointer, _ uint64) bool { return pointer == 0x7777 }
	threads := func(change func(m fakeMemory, symbols map[string]Symbol)) ([]Thread, error) {
		m, symbols := newProcess()
		change(m, symbols)
		p, err := Find(m, symbols)
		if p == nil || err != nil {
			return nil, err
		}
		return p.Threads(isThread)
	}
	found, err := threads(func(fakeMemory, map[string]Symbol) {})
	if err != nil || len(found) != 1 || found[0].Pointer != 0x7777 {
		t.Errorf("the known layout: %v, %v", found, err)
	}
	l := layouts[version{3, 12}]
	for name, change := range map[string]func(m fakeMemory, symbols map[string]Symbol){
		"3.10":               func(_ fakeMemory, s map[string]Symbol) { delete(s, symbolVersion) },
		"3.14":               func(m fakeMemory, _ map[string]Symbol) { m[0x22] = 14 },
		"3.13 no offsets":    func(m fakeMemory, _ map[string]Symbol) { m[0x22] = 13 },
		"other interpreter":  func(m fakeMemory, _ map[string]Symbol) { m[0x2000+l.interpreter] = 8 },
		"no thread matches":  func(m fakeMemory, _ map[string]Symbol) { m[0x2000+l.threadID] = 0 },
		"threads in a cycle": func(m fakeMemory, _ map[string]Symbol) { m[0x2000+l.nextThread+1] = 0x20 },
		"unreadable":         func(m fakeMemory, _ map[string]Symbol) { m[0x1000+l.threads+7] = 1 },
	} {
		if found, err := threads(change); err == nil || len(found) > 0 {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

// FuzzFrames reads the frames of a thread in hostile memory.
func FuzzFrames(f *testing.F) {
	f.Add(make([]byte, 4096), uint64(64), byte(12))
	f.Fuzz(func(t *testing.T, raw []byte, state uint64, minor byte) {
		m := fakeMemory(raw)
		p := &Interpreter{memory: m, layout: layouts[version{3, 12}], codes: make(map[uint64]codeObject)}
		if minor == 11 {
			p.layout = layouts[version{3, 11}]
		}
		frames, _ := p.Frames(Thread{State: state}) // an error is expected
		if len(frames) > maxFrames {
			t.Errorf("%d frames", len(frames))
		}
		for _, frame := range frames {
			if len(frame.Function) > 4*maxTextBytes || len(frame.File) > 4*maxTextBytes {
				t.Error("a text is too long")
			}
		}
		findLine(raw, 1, int64(state))
	})
}
