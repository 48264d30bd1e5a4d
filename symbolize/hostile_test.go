package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
	"github.com/ulikunitz/xz"
)

func compressXZ(t testing.TB, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.WriterConfig{DictCap: 1 << 16}.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// example returns a small file with everything that the package reads. Tests damage copies of it.
func example(t testing.TB) []byte {
	var inner, outer elftest.Image
	inner.Add("inner_local", 0x1200, 32, elf.STB_LOCAL)
	outer.Add("outer_global", 0x1100, 32, elf.STB_GLOBAL)
	outer.Add("sizeless", 0x1300, 0, elf.STB_GLOBAL)
	outer.DebugData = compressXZ(t, inner.Bytes())
	return outer.Bytes()
}

func TestExampleIsWhole(t *testing.T) {
	testclass.Unit(t)
	o := open(t, example(t))
	if o.Len() != 3 || len(o.Skipped()) != 0 {
		t.Fatalf("Len() = %d, Skipped() = %v", o.Len(), o.Skipped())
	}
}

// exercise calls all methods of an object. The test only needs it to return.
func exercise(o *Object) {
	for s := range o.Symbols() {
		o.Lookup(s.Start)
		o.Lookup(s.Start + s.Size)
		o.Find(s.Name)
	}
	for _, a := range []uint64{0, 1, 0x1000, 1 << 63, ^uint64(0)} {
		o.Lookup(a)
		o.VAddr(a)
		o.FileOffset(a)
	}
}

func TestEveryTruncationIsSurvived(t *testing.T) {
	testclass.Unit(t)
	raw := example(t)
	for n := range raw {
		if o, err := NewObject(bytes.NewReader(raw[:n]), int64(n)); err == nil {
			exercise(o)
		}
		// The file shrinks while it is read.
		if o, err := NewObject(bytes.NewReader(raw[:n]), int64(len(raw))); err == nil {
			exercise(o)
		}
	}
}

func TestEveryDamagedByteIsSurvived(t *testing.T) {
	testclass.Unit(t)
	raw := example(t)
	for i := range raw {
		for _, value := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			damaged := bytes.Clone(raw)
			damaged[i] = value
			if o, err := NewObject(bytes.NewReader(damaged), int64(len(damaged))); err == nil {
				exercise(o)
			}
		}
	}
}

func TestClaimedSizesAllocateNothing(t *testing.T) {
	testclass.Unit(t)
	const size, link = 0x20, 0x28
	put := func(raw []byte, at int, v uint64) { binary.LittleEndian.PutUint64(raw[at:], v) }
	tests := []struct {
		name   string
		damage func(raw []byte)
	}{
		{
			"symbol table of 2^60 bytes",
			func(raw []byte) { put(raw, elftest.SectionHeader(elftest.Symtab)+size, 1<<60) },
		},
		{
			"string table of 2^60 bytes",
			func(raw []byte) { put(raw, elftest.SectionHeader(elftest.Strtab)+size, 1<<60) },
		},
		{"string table at 2^63", func(raw []byte) { put(raw, elftest.SectionHeader(elftest.Strtab)+0x18, 1<<63) }},
		{
			"section names of 2^60 bytes",
			func(raw []byte) { put(raw, elftest.SectionHeader(elftest.SectionNames)+size, 1<<60) },
		},
		{
			"debug data of 2^60 bytes",
			func(raw []byte) { put(raw, elftest.SectionHeader(elftest.DebugData)+size, 1<<60) },
		},
		{"2^60 sections", func(raw []byte) {
			binary.LittleEndian.PutUint16(raw[0x3c:], 0)
			put(raw, elftest.SectionHeader(0)+size, 1<<60)
		}},
		{"string table that does not exist", func(raw []byte) {
			binary.LittleEndian.PutUint32(raw[elftest.SectionHeader(elftest.Symtab)+link:], 1<<31)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			raw := example(t)
			test.damage(raw)
			var o *Object
			var err error
			got := elftest.AllocatedBytes(func() { o, err = NewObject(bytes.NewReader(raw), int64(len(raw))) })
			if err == nil && len(o.Skipped()) == 0 && o.Len() == 3 {
				t.Error("the damage was not noticed")
			}
			if got > 32<<20 {
				t.Errorf("allocated %d bytes", got)
			}
		})
	}
}

func TestBrokenMiniDebugInfoKeepsOtherSymbols(t *testing.T) {
	testclass.Unit(t)
	if testing.Short() {
		t.Skip("half a minute under the race detector; it has one goroutine")
	}
	bomb := compressXZ(t, make([]byte, maxMiniDebugInfoBytes+1))
	whole := compressXZ(t, []byte("not an ELF file"))
	badSum := bytes.Clone(whole)
	badSum[len(badSum)-40] ^= 1
	tests := map[string][]byte{
		"bomb":       bomb,
		"other data": whole,
		"cut":        whole[:len(whole)/2],
		"no xz":      []byte("hello, world"),
		"damaged":    badSum,
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			var s elftest.Image
			s.Add("survivor", 0x1100, 32, elf.STB_GLOBAL)
			s.DebugData = data
			o := open(t, s.Bytes())
			if len(o.Skipped()) != 1 {
				t.Errorf("Skipped() = %v", o.Skipped())
			}
			if _, ok := o.Find("survivor"); !ok {
				t.Error("lost the other symbol table")
			}
		})
	}
}

func TestUnpackingStopsAtTheLimit(t *testing.T) {
	testclass.Unit(t)
	const limit = 1 << 20
	if got, err := decompressXZStream(compressXZ(t, make([]byte, limit)), limit); err != nil || len(got) != limit {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
	if got, err := decompressXZStream(compressXZ(t, make([]byte, limit+1)), limit); err == nil {
		t.Errorf("behind the limit: %d bytes", len(got))
	}
}

// hugeDictionary returns an xz stream of empty blocks, each with a dictionary of 4 GiB.
func hugeDictionary(blocks int) []byte {
	out := append([]byte("\xfd7zXZ\x00\x00\x00"), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(out[8:], crc32.ChecksumIEEE(out[6:8]))
	header := []byte{2, 0, 0x21, 1, 40, 0, 0, 0}
	header = binary.LittleEndian.AppendUint32(header, crc32.ChecksumIEEE(header))
	for range blocks {
		out = append(append(out, header...), 0, 0, 0, 0) // end of the LZMA2 data, and padding
	}
	return append(out, 0)
}

func TestHugeDictionariesAreRefused(t *testing.T) {
	testclass.Unit(t)
	var err error
	got := elftest.AllocatedBytes(func() { _, err = decompressXZStream(hugeDictionary(10000), maxMiniDebugInfoBytes) })
	if err == nil || got > 512<<20 {
		t.Errorf("error %v, allocated %d bytes", err, got)
	}
	if _, err := decompressXZStream(hugeDictionary(1), maxMiniDebugInfoBytes); err != nil {
		t.Errorf("one block: %v", err)
	}
}

func TestOverlappingNamesCostNothing(t *testing.T) {
	testclass.Unit(t)
	var s elftest.Image
	s.Names = append(bytes.Repeat([]byte{'x'}, 1<<20), 0)
	for i := range 10_000 { // the names are suffixes of one name of 1 MiB
		s.Symbols = append(
			s.Symbols,
			elf.Sym64{Name: uint32(i), Info: byte(elf.STT_FUNC), Shndx: 1, Value: 0x1000 + uint64(i), Size: 1},
		)
	}
	raw := s.Bytes()
	var o *Object
	if got := elftest.AllocatedBytes(func() { o = open(t, raw) }); got > 1<<20 {
		t.Errorf("allocated %d bytes", got)
	}
	if got, _, ok := o.Lookup(
		0x1001,
	); !ok || len(got.Name) != maxUncutNameBytes+1 ||
		!strings.Contains(Demangle(got.Name), "cut") {
		t.Errorf("a name of %d bytes, %v", len(got.Name), ok)
	}
}

func TestNamesOfATruncatedFile(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(path, example(t), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := OpenObject(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if s, _, ok := o.Lookup(0x1100); ok {
		t.Errorf("Lookup = %+v in a file that was cut off", s)
	}
	exercise(o)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	exercise(o)
}

func TestLookupInThousandsOfAliasesIsFast(t *testing.T) {
	testclass.Unit(t)
	var s elftest.Image
	for range 200000 {
		s.Add("f", 0x1000, 1, elf.STB_LOCAL)
		s.Names[len(s.Names)-2] = byte('a' + len(s.Symbols)%26)
	}
	s.Add("wide", 0x1000, 1000, elf.STB_GLOBAL)
	many, few := open(t, s.Bytes()), open(t, example(t))
	if most := 100 * lookupTime(few, 0x1108); lookupTime(many, 0x1800) > most {
		t.Errorf("a lookup takes longer than %v", most)
	}
}

// lookupTime returns the time of the fastest of several hundred lookups, which is independent of
// the load of the machine.
func lookupTime(o *Object, addr uint64) time.Duration {
	fastest := time.Hour
	for range 500 {
		start := time.Now()
		for range 10 {
			o.Lookup(addr)
		}
		fastest = min(fastest, time.Since(start)/10)
	}
	return fastest
}

func FuzzObject(f *testing.F) {
	f.Add(example(f))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	var s elftest.Image
	s.Add("f", 0x1000, 8, elf.STB_GLOBAL)
	f.Add(s.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := NewObject(bytes.NewReader(raw), int64(len(raw)))
		if (o == nil) == (err == nil) {
			t.Fatalf("object %v, error %v", o, err)
		}
		if err == nil {
			exercise(o)
		}
		if _, err := decompressXZStream(raw, 1<<20); err == nil && len(raw) == 0 {
			t.Fatal("nothing unpacked")
		}
	})
}

// FuzzMiniDebugInfo damages decompressed data, which the xz checksums would hide from FuzzObject.
func FuzzMiniDebugInfo(f *testing.F) {
	var s elftest.Image
	s.Add("f", 0x1000, 8, elf.STB_GLOBAL)
	f.Add(compressXZ(f, s.Bytes())[24:])
	f.Fuzz(func(t *testing.T, body []byte) {
		packed := hugeDictionary(1)
		packed = append(packed[:24], body...)
		raw, err := decompressXZStream(packed, 1<<20)
		if len(raw) > 1<<20 || (err != nil && raw != nil) {
			t.Fatalf("%d bytes, error %v", len(raw), err)
		}
	})
}
