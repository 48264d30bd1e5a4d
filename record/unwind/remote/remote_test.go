//go:build linux && amd64

package remote

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// fakeSpace has the code of one file at an address, and a stack.
type fakeSpace struct {
	table      *Table
	code       symbolize.Mapping
	stackStart uint64
	stack      []byte
	returns    map[uint64]uint64
}

func (s *fakeSpace) Read(addr uint64, into []byte) error {
	at := addr - s.stackStart
	if at > uint64(len(s.stack)) || uint64(len(s.stack))-at < uint64(len(into)) {
		return errors.New("unreadable")
	}
	copy(into, s.stack[at:])
	return nil
}

func (s *fakeSpace) Mapping(addr uint64) (symbolize.Mapping, bool) {
	if addr == probeAddr {
		return symbolize.Mapping{Start: addr, End: addr + 4096, Perms: "r-xp", Path: "[uprobes]"}, true
	}
	return s.code, addr >= s.code.Start && addr < s.code.End
}

func (s *fakeSpace) Table(symbolize.Mapping) (*Table, error) { return s.table, nil }

func (s *fakeSpace) TrueReturn(slot uint64) (uint64, bool) {
	pc, ok := s.returns[slot]
	return pc, ok
}

const (
	codeStart  = 0x10000000
	stackStart = 0x70000000
	probeAddr  = 0x7fff0000
)

// newSpace compiles a program and returns a space with its code, and the addresses of functions.
func newSpace(t testing.TB) (*fakeSpace, func(name string) uint64) {
	t.Helper()
	path := elftest.Compile(t, "testdata/callers.c", "callers", "-fomit-frame-pointer", "-fpie", "-pie")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	table, err := ReadTable(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	object, err := symbolize.OpenObject(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { object.Close() })
	find := func(name string) uint64 {
		symbol, ok := object.Find(name)
		offset, ok2 := object.FileOffset(symbol.Start)
		if !ok || !ok2 {
			t.Fatalf("no function %s", name)
		}
		return codeStart + offset
	}
	return &fakeSpace{
		table:      table,
		code:       symbolize.Mapping{Start: codeStart, End: codeStart + 1<<20, Perms: "r-xp", Path: path, Inode: 1},
		stackStart: stackStart,
		stack:      make([]byte, 4096),
		returns:    make(map[uint64]uint64),
	}, find
}

// registers returns registers with a pc and a stack pointer.
func registers(pc, sp uint64) []uint64 {
	regs := make([]uint64, 21)
	regs[regPC], regs[regSP] = pc, sp
	return regs
}

// TestUnwind unwinds a stack at the first instruction of leaf, whose frame has only a return address.
func TestUnwind(t *testing.T) {
	testclass.Unit(t)
	s, find := newSpace(t)
	leaf, caller, start := find("leaf"), find("leaf_caller"), find("_start")
	put := func(at int, value uint64) { binary.LittleEndian.PutUint64(s.stack[at:], value) }
	put(0, caller+1) // before its push: the frame of leaf_caller has only a return address, too
	put(8, start+8)
	frames, err := Unwind(s, registers(leaf, stackStart))
	want := []Frame{{leaf, true}, {caller + 1, false}, {start + 8, false}}
	if err != nil || !slices.Equal(frames, want) {
		t.Errorf("%v, %v, want %v", frames, err, want)
	}
	// A return probe has replaced the return address of leaf.
	put(0, probeAddr)
	if frames, err := Unwind(s, registers(leaf, stackStart)); !errors.Is(err, ErrNoCode) || len(frames) != 1 {
		t.Errorf("a replaced address: %v, %v", frames, err)
	}
	s.returns[stackStart] = caller + 1
	if frames, err := Unwind(s, registers(leaf, stackStart)); err != nil || !slices.Equal(frames, want) {
		t.Errorf("a restored address: %v, %v", frames, err)
	}
	for name, test := range map[string]struct {
		pc, sp uint64
		want   error
	}{
		"no code":    {0x666, stackStart, ErrNoCode},
		"unreadable": {leaf, 0x666, ErrUnreadable},
		"data":       {codeStart + 1<<20 - 1, stackStart, ErrNoTable},
	} {
		if _, err := Unwind(s, registers(test.pc, test.sp)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, not %v", name, err, test.want)
		}
	}
}

// FuzzUnwind unwinds hostile stacks.
func FuzzUnwind(f *testing.F) {
	s, find := newSpace(f)
	leaf := find("leaf")
	f.Add([]byte{1, 2, 3}, leaf, uint64(stackStart), uint64(0))
	f.Fuzz(func(t *testing.T, stack []byte, pc, sp, other uint64) {
		s.stack = stack
		regs := slices.Repeat([]uint64{other}, 21)
		regs[regPC], regs[regSP] = pc, sp
		if frames, _ := Unwind(s, regs); len(frames) > MaxFrames {
			t.Errorf("%d frames", len(frames))
		}
	})
}

// TestBrokenFiles checks that files that are no ELF files have an error.
func TestBrokenFiles(t *testing.T) {
	testclass.Unit(t)
	if _, err := ReadImage([]byte("no ELF file")); err == nil {
		t.Error("a text has a table")
	}
	if _, err := ReadImage(nil); err == nil {
		t.Error("an empty file has a table")
	}
}
