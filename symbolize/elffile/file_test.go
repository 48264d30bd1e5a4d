package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

func newFile(t testing.TB, raw []byte) *File {
	t.Helper()
	f, err := New(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHeadersAgreeWithDebugELF checks that New reads the same headers of a compiled program as
// debug/elf.
func TestHeadersAgreeWithDebugELF(t *testing.T) {
	testclass.Unit(t)
	path := elftest.Compile(t, "../testdata/functions.c", "program", "-Wl,--build-id=sha1", "-g")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	f := newFile(t, raw)
	if len(f.Segments) != len(want.Progs) || len(f.Sections) != len(want.Sections) || f.SectionsErr != nil {
		t.Fatalf("%d segments, %d sections, %v", len(f.Segments), len(f.Sections), f.SectionsErr)
	}
	for _, s := range want.Sections {
		if s.Type == elf.SHT_NOBITS || s.Name == "" {
			continue
		}
		header := f.SectionByName(s.Name)
		if header == nil || header.Off != s.Offset || header.Size != s.FileSize {
			t.Fatalf("SectionByName(%s) = %+v, want %+v", s.Name, header, s.SectionHeader)
		}
		content, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		section, err := f.Section(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := section.Bytes(0, section.Size()); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has another content: %v", s.Name, err)
		}
	}
	for i, p := range want.Progs {
		code := p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0
		if IsExecutable(&f.Segments[i]) != code {
			t.Errorf("IsExecutable of segment %d is %v", i, !code)
		}
	}
	text := want.Section(".text")
	if end := f.CodeEnd(elf.SHN_XINDEX, text.Addr); end < text.Addr+text.Size {
		t.Errorf("the executable segment of .text ends at %#x", end)
	}
	if notes := elftest.Run(t, "readelf", "-n", path); !strings.Contains(notes, "Build ID: "+f.BuildID()) {
		t.Errorf("BuildID() = %q, readelf says\n%s", f.BuildID(), notes)
	}
}

func TestCompressedSection(t *testing.T) {
	testclass.Unit(t)
	path := elftest.Compile(t, "../testdata/inlined.c", "program", "-g")
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elftest.Run(t, "objcopy", "--compress-debug-sections=zlib", path)
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if header := newFile(
		t,
		packed,
	).SectionByName(".debug_info"); elf.SectionFlag(
		header.Flags,
	)&elf.SHF_COMPRESSED == 0 {
		t.Fatal("objcopy compressed nothing")
	}
	var content [2][]byte
	for i, raw := range [][]byte{plain, packed} {
		s, err := newFile(t, raw).Section(".debug_info")
		if err != nil {
			t.Fatal(err)
		}
		if content[i], err = s.Bytes(0, s.Size()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(content[0], content[1]) || len(content[0]) == 0 {
		t.Error("the content differs after compression")
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	testclass.Unit(t)
	var m elftest.Image
	m.Add("f", 0x1000, 8, elf.STB_GLOBAL)
	change := func(at int, b byte) []byte {
		raw := m.Bytes()
		raw[at] = b
		return raw
	}
	tests := map[string]struct {
		raw  []byte
		want string
	}{
		"empty":       {nil, "reach past the end"},
		"text":        {bytes.Repeat([]byte("hello "), 100), "not an ELF file"},
		"32 bits":     {change(elf.EI_CLASS, byte(elf.ELFCLASS32)), "not a 64-bit little-endian file"},
		"big-endian":  {change(elf.EI_DATA, byte(elf.ELFDATA2MSB)), "not a 64-bit little-endian file"},
		"object file": {change(0x10, byte(elf.ET_REL)), "neither an executable nor a shared library"},
	}
	for name, test := range tests {
		f, err := New(bytes.NewReader(test.raw), int64(len(test.raw)))
		if f != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := New(bytes.NewReader(nil), -1); err == nil {
		t.Error("a negative size is accepted")
	}
}

func TestBrokenSectionHeadersAreNoError(t *testing.T) {
	testclass.Unit(t)
	var m elftest.Image
	m.Add("f", 0x1000, 8, elf.STB_GLOBAL)
	raw := m.Bytes()
	binary.LittleEndian.PutUint64(raw[0x28:], 1<<40) // e_shoff
	f := newFile(t, raw)
	if f.SectionsErr == nil || len(f.Sections) != 0 || len(f.Segments) != 1 {
		t.Errorf("%d sections, %d segments, %v", len(f.Sections), len(f.Segments), f.SectionsErr)
	}
}

func TestReadsStayWithinTheFile(t *testing.T) {
	testclass.Unit(t)
	raw := elftest.Sections(map[string][]byte{".debug_str": []byte("one\x00two")})
	f := newFile(t, raw)
	size := uint64(len(raw))
	for _, r := range []struct{ offset, n uint64 }{{size, 1}, {0, size + 1}, {1 << 63, 1}, {1, ^uint64(0)}} {
		if f.Has(r.offset, r.n) {
			t.Errorf("Has(%d, %d)", r.offset, r.n)
		}
		if _, err := f.Read(r.offset, r.n, ^uint64(0)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Read(%d, %d): %v", r.offset, r.n, err)
		}
	}
	if _, err := f.Read(0, 2, 1); err == nil {
		t.Error("Read goes beyond its limit")
	}
	s, err := f.Section(".debug_str")
	if err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[uint64]string{0: "one", 4: "two", 7: "", 1 << 63: ""} {
		if got := s.Text(offset); got != want {
			t.Errorf("Text(%d) = %q, want %q", offset, got, want)
		}
	}
	if n, err := s.Number(1, 2); n != 'n'|'e'<<8 || err != nil {
		t.Errorf("Number = %#x, %v", n, err)
	}
	if _, err := s.Number(6, 2); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Number past the end: %v", err)
	}
}

func FuzzFile(f *testing.F) {
	var m elftest.Image
	m.Add("f", 0x1000, 8, elf.STB_GLOBAL)
	f.Add(m.Bytes())
	f.Add(elftest.Sections(map[string][]byte{".debug_info": {1, 2, 3}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := New(bytes.NewReader(raw), int64(len(raw)))
		if (file == nil) == (err == nil) {
			t.Fatalf("file %v, error %v", file, err)
		}
		if err != nil {
			return
		}
		file.BuildID()
		for _, name := range []string{".debug_info", ".text", ".gnu_debuglink"} {
			if s, err := file.Section(name); err == nil {
				s.Text(0)
				_, _ = s.Number(s.Size(), 8)
			}
		}
	})
}
