package dwarf

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elffile"
	"github.com/gpurec/gpurec/symbolize/elftest"
	"github.com/ianlancetaylor/demangle"
)

const testdata = "../testdata"

// sourcePrograms are test programs that call here() on marked lines. Each value lists the functions
// at the call, innermost first.
var sourcePrograms = []struct {
	source string
	calls  map[string][]string
}{
	{"inlined.c", map[string][]string{
		"chain": {"innermost", "middle", "outer"}, "plain": {"outer"}, "elsewhere": {"elsewhere"},
	}},
	{"inlined.cpp", map[string][]string{
		"method": {"shapes::Widget::area", "shapes::twice<long>", "shapes::generic<long>"},
		"lambda": {"shapes::generic<long>()::{lambda(long)#1}::operator()", "shapes::generic<long>"},
	}},
}

// sourceFlags are compiler flags for different kinds of debug information.
var sourceFlags = map[string][]string{
	"DWARF 4":            {"-gdwarf-4"},
	"DWARF 5":            {"-gdwarf-5"},
	"DWARF 3":            {"-gdwarf-3", "-gstrict-dwarf"},
	"64-bit DWARF 5":     {"-gdwarf-5", "-gdwarf64"},
	"compressed":         {"-gdwarf-5", "-Wl,--compress-debug-sections=zlib"},
	"sections":           {"-gdwarf-4", "-ffunction-sections", "-Wl,--gc-sections"},
	"sections, DWARF 5":  {"-gdwarf-5", "-ffunction-sections", "-Wl,--gc-sections"},
	"link-time":          {"-gdwarf-5", "-flto"},
	"link-time, DWARF 4": {"-gdwarf-4", "-flto"},
}

// compileSource compiles a program of sourcePrograms at a fixed address.
func compileSource(t testing.TB, source string, flags ...string) string {
	t.Helper()
	flags = append([]string{"-O2", "-no-pie"}, flags...)
	return elftest.Compile(t, filepath.Join(testdata, source), "program", flags...)
}

// markedLine returns the line of a testdata source whose comment is the marker.
func markedLine(t testing.TB, source, marker string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testdata, source))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "// "+marker) {
			return i + 1
		}
	}
	t.Fatalf("%s has no marker %q", source, marker)
	return 0
}

// markedCalls runs a program that prints the return addresses of its marked calls.
func markedCalls(t testing.TB, program string) map[string]uint64 {
	t.Helper()
	calls := make(map[string]uint64)
	for _, line := range strings.Split(strings.TrimSpace(elftest.Run(t, program)), "\n") {
		name, text, _ := strings.Cut(line, " ")
		addr, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
		if err != nil {
			t.Fatalf("the program printed %q", line)
		}
		calls[name] = addr - 1
	}
	return calls
}

// open reads the debug information of a file.
func open(t testing.TB, path string) *Data {
	t.Helper()
	d, err := tryOpen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func tryOpen(t testing.TB, path string) (*Data, error) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return New(f)
}

// readable returns the demangled name without parameters.
func readable(name string) string {
	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams)
}

func checkMarkedCalls(
	t *testing.T, source string, want map[string][]string, calls map[string]uint64, d *Data,
) {
	t.Helper()
	for name, functions := range want {
		frames, err := d.Frames(calls[name])
		if err != nil {
			t.Fatal(err)
		}
		var got, expected []string
		for _, f := range frames {
			got = append(got, fmt.Sprintf("%s %s:%d %v", readable(f.Func), filepath.Base(f.File), f.Line, f.Inlined))
		}
		for i, function := range functions {
			line := markedLine(t, source, fmt.Sprintf("%s %d", name, i))
			expected = append(expected, fmt.Sprintf("%s %s:%d %v", function, source, line, i < len(functions)-1))
		}
		if !slices.Equal(got, expected) {
			t.Errorf("%s: got %q\nwant %q", name, got, expected)
		}
	}
}

func TestFramesOfMarkedCalls(t *testing.T) {
	testclass.Unit(t)
	for _, p := range sourcePrograms {
		for name, flags := range sourceFlags {
			t.Run(p.source+" "+name, func(t *testing.T) {
				program := compileSource(t, p.source, flags...)
				calls := markedCalls(t, program)
				checkMarkedCalls(t, p.source, p.calls, calls, open(t, program))

				debug := program + ".debug"
				elftest.Run(t, "objcopy", "--only-keep-debug", program, debug)
				elftest.Run(t, "strip", "--strip-all", program)
				if _, err := tryOpen(t, program); !errors.Is(err, ErrNone) {
					t.Errorf("stripped program: %v", err)
				}
				checkMarkedCalls(t, p.source, p.calls, calls, open(t, debug))
			})
		}
	}
}

func TestFramesOfZstd(t *testing.T) {
	testclass.Unit(t)
	program := compileSource(t, "inlined.c", "-gdwarf-5")
	calls := markedCalls(t, program)
	if !strings.Contains(elftest.Run(t, "objcopy", "--help"), "zstd") {
		testclass.Missing(t, "objcopy knows no zstd")
	}
	elftest.Run(t, "objcopy", "--compress-debug-sections=zstd", program)
	if !strings.Contains(elftest.Run(t, "readelf", "-t", program), "ZSTD") {
		testclass.Missing(t, "objcopy does not compress with zstd")
	}
	checkMarkedCalls(t, "inlined.c", sourcePrograms[0].calls, calls, open(t, program))
}

// TestFramesAgreeWithAddr2line checks that Frames agrees with addr2line for every instruction of every
// function.
func TestFramesAgreeWithAddr2line(t *testing.T) {
	testclass.Unit(t)
	elftest.NeedTools(t, "addr2line", "objdump")
	for _, p := range sourcePrograms {
		for name, flags := range sourceFlags {
			// Debian's addr2line cannot read the former. It reports the files of the latter as
			// "<artificial>".
			if strings.HasPrefix(name, "64-bit") || strings.HasPrefix(name, "link-time") {
				continue
			}
			t.Run(p.source+" "+name, func(t *testing.T) {
				program := compileSource(t, p.source, flags...)
				d := open(t, program)
				var addrs []string
				for line := range strings.Lines(elftest.Run(t, "objdump", "-d", "-j", ".text", "--no-show-raw-insn", program)) {
					if addr, rest, ok := strings.Cut(
						strings.TrimSpace(line),
						":",
					); ok &&
						strings.HasPrefix(rest, "\t") {
						addrs = append(addrs, addr)
					}
				}
				want := addr2line(t, program, addrs)
				compared := 0
				for _, text := range addrs {
					addr, err := strconv.ParseUint(text, 16, 64)
					if err != nil {
						t.Fatal(err)
					}
					frames, err := d.Frames(addr)
					if err != nil {
						t.Fatal(err)
					}
					if len(frames) == 0 || frames[0].Func == "" {
						continue // start code of the C library, or padding after a function
					}
					compared++
					var got []string
					for _, f := range frames {
						got = append(got, fmt.Sprintf("%s %s:%d", f.Func, filepath.Base(f.File), f.Line))
					}
					if !slices.Equal(got, want[addr]) {
						t.Errorf("%#x: got %q, addr2line says %q", addr, got, want[addr])
					}
				}
				if compared < 20 {
					t.Errorf("compared only %d of %d instructions", compared, len(addrs))
				}
			})
		}
	}
}

// addr2line returns the functions at each address, innermost first, as "NAME FILE:LINE".
func addr2line(t testing.TB, program string, addrs []string) map[uint64][]string {
	t.Helper()
	out := elftest.Run(t, "addr2line", append([]string{"-a", "-i", "-f", "-e", program}, addrs...)...)
	frames := make(map[uint64][]string)
	lines := bufio.NewScanner(strings.NewReader(out))
	var addr uint64
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "0x"); ok {
			addr, _ = strconv.ParseUint(text, 16, 64)
			continue
		}
		function := lines.Text()
		lines.Scan()
		place, _, _ := strings.Cut(lines.Text(), " (discriminator")
		frames[addr] = append(frames[addr], function+" "+filepath.Base(place))
	}
	return frames
}
