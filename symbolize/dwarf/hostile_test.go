package dwarf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elffile"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// debugExample returns a small file with debug information, which tests damage, and addresses to
// look up.
func debugExample(t testing.TB, source string, flags ...string) (raw []byte, addrs []uint64) {
	t.Helper()
	program := compileSource(t, source, flags...)
	for _, addr := range markedCalls(t, program) {
		addrs = append(addrs, addr)
	}
	debug := program + ".debug"
	elftest.Run(t, "objcopy", "--only-keep-debug", program, debug)
	raw, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	return raw, append(addrs, 0, 1, 0x401000, ^uint64(0))
}

// cost counts the work of reading a file. Time would depend on the load of the machine.
type cost struct {
	work             int   // largest work of one lookup, as spend counts it
	reads, readBytes int64 // all lookups together
}

// exercise looks up all addresses. The test only needs it to return.
func exercise(raw []byte, size int64, addrs []uint64) (c cost) {
	in := &elftest.CountingReader{R: bytes.NewReader(raw)}
	if f, err := elffile.New(in, size); err == nil {
		if d, err := New(f); err == nil {
			for _, addr := range addrs {
				_, _ = d.Frames(addr)
				c.work = max(c.work, maxWorkPerLookup-d.work)
			}
		}
	}
	c.reads, c.readBytes = in.Reads.Load(), in.Bytes.Load()
	return c
}

func TestEveryTruncationOfDebugInfoIsSurvived(t *testing.T) {
	testclass.Unit(t)
	raw, addrs := debugExample(t, "inlined.c", "-gdwarf-5")
	for n := 0; n < len(raw); n += 7 {
		exercise(raw[:n], int64(n), addrs)
		exercise(raw[:n], int64(len(raw)), addrs) // the file shrinks while it is read
	}
}

func TestEveryDamagedByteOfDebugInfoIsSurvived(t *testing.T) {
	testclass.Unit(t)
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		raw, addrs := debugExample(t, "inlined.c", version)
		f, err := elf.NewFile(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range f.Sections {
			if !strings.HasPrefix(section.Name, ".debug_") || section.Name == ".debug_str" {
				continue
			}
			for i := section.Offset; i < section.Offset+section.FileSize; i++ {
				for _, value := range []byte{0, 0x7f, 0xff} {
					damaged := bytes.Clone(raw)
					damaged[i] = value
					c := exercise(damaged, int64(len(damaged)), addrs)
					if c.work > 1<<14 || c.reads > 1<<10 || c.readBytes > 1<<20 {
						t.Errorf("%s byte %#x = %#x: %+v", section.Name, i-section.Offset, value, c)
					}
				}
			}
		}
	}
}

// withLength prepends the length of a DWARF unit or table.
func withLength(parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

var (
	// hostileAbbrevs: 1 is a unit with low_pc, high_pc (data8) and a line table, 2 a function with
	// low_pc and ranges, 3 one that has children and nothing else, 4 one inlined from a function
	// elsewhere.
	hostileAbbrevs = []byte{
		1, 0x11, 1, 0x11, 1, 0x12, 7, 0x10, 0x17, 0, 0,
		2, 0x2e, 0, 0x11, 1, 0x55, 0x17, 0, 0,
		3, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0,
		4, 0x2e, 0, 0x31, 0x13, 0x11, 1, 0x12, 7, 0, 0, 0,
	}
	hostileUnit = append(
		append([]byte{4, 0, 0, 0, 0, 0, 8, 1}, address(0x1000)...),
		append(address(0x1000), 0, 0, 0, 0)...)
)

func address(a uint64) []byte { return binary.LittleEndian.AppendUint64(nil, a) }

func TestHostileDebugInfoCostsLittle(t *testing.T) {
	testclass.Unit(t)
	function := append(append([]byte{3}, address(0x1000)...), address(0x1000)...)
	origin := append(
		append([]byte{4, 0x1c, 0, 0, 0}, address(0x1000)...),
		address(0x1000)...) // offset 0x1c is the DIE itself
	longRanges := append(bytes.Repeat(append(address(1), address(2)...), 1<<16), make([]byte, 16)...)
	lines := func(body ...byte) []byte {
		return withLength([]byte{5, 0, 8, 0}, withLength(append([]byte{1, 1, 1, 0xfb, 14, 1}, body...)))
	}
	tests := map[string]map[string][]byte{
		"functions nested without end": {".debug_info": withLength(hostileUnit, bytes.Repeat(function, 1<<18))},
		"a function made of itself":    {".debug_info": withLength(hostileUnit, origin)},
		"long ranges that all share": {
			".debug_info": withLength(
				hostileUnit,
				bytes.Repeat(append(append([]byte{2}, address(0)...), 0, 0, 0, 0), 1<<18),
			),
			".debug_ranges": longRanges,
		},
		"2^63 folders": {
			".debug_info": withLength(hostileUnit),
			".debug_line": lines(1, 1, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0),
		},
		"2^40 folders without a name": {
			".debug_info": withLength(hostileUnit),
			".debug_line": lines(0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20),
		},
		"units of 4 GiB":        {".debug_info": {0xf0, 0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0, 8, 1}},
		"no abbreviations":      {".debug_info": withLength(hostileUnit)},
		"a million empty units": {".debug_info": bytes.Repeat(withLength([]byte{4, 0, 0, 0, 0, 0, 8}), 1<<19)},
	}
	for name, contents := range tests {
		t.Run(name, func(t *testing.T) {
			if name != "no abbreviations" {
				contents[".debug_abbrev"] = hostileAbbrevs
			}
			raw := elftest.Sections(contents)
			var c cost
			got := elftest.AllocatedBytes(func() {
				c = exercise(raw, int64(len(raw)), []uint64{0x1000, 0x1800})
			})
			if got > 4<<30 || c.work > maxWorkPerLookup+workPerRangeList || c.reads > 4<<20 {
				t.Errorf("allocated %d bytes, %+v", got, c)
			}
			t.Log(got, c)
		})
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(
		elftest.Sections(map[string][]byte{".debug_info": withLength(hostileUnit), ".debug_abbrev": hostileAbbrevs}),
		uint64(0x1000),
	)
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		raw, addrs := debugExample(f, "inlined.c", version)
		f.Add(raw, addrs[0])
	}
	f.Fuzz(func(t *testing.T, raw []byte, addr uint64) {
		file, err := elffile.New(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			return
		}
		d, err := New(file)
		if err == nil == (d == nil) {
			t.Fatalf("data %v, error %v", d, err)
		}
		if err != nil {
			return
		}
		for _, a := range []uint64{addr, addr + 1, 0x1000, 0x401180} {
			if frames, err := d.Frames(a); err != nil && frames != nil {
				t.Fatalf("frames %v, error %v", frames, err)
			}
		}
	})
}
