package symbolize

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sourcePrograms are programs whose calls of here() are marked in the source, and who calls them: the innermost function first.
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

// sourceFlags are ways to compile with debug information.
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

// compileSource builds a program of sourcePrograms at a fixed address.
func compileSource(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return compile(t, source, "program", append([]string{"-O2", "-no-pie", "-Wl,--build-id=sha1"}, flags...)...)
}

// markedLine is the line of a source of testdata with that marker in a comment.
func markedLine(t testing.TB, source, marker string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", source))
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

// markedCalls runs a program that prints where its marked calls return to.
func markedCalls(t testing.TB, program string) map[string]uint64 {
	t.Helper()
	calls := make(map[string]uint64)
	for _, line := range strings.Split(strings.TrimSpace(command(t, program)), "\n") {
		name, text, _ := strings.Cut(line, " ")
		addr, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
		if err != nil {
			t.Fatalf("the program printed %q", line)
		}
		calls[name] = addr - 1
	}
	return calls
}

func openSource(t testing.TB, path string) *Source {
	t.Helper()
	s, err := OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func checkMarkedCalls(t *testing.T, source string, want map[string][]string, calls map[string]uint64, s *Source) {
	t.Helper()
	for name, functions := range want {
		frames, err := s.Frames(calls[name])
		if err != nil {
			t.Fatal(err)
		}
		var got, expected []string
		for _, f := range frames {
			got = append(got, fmt.Sprintf("%s %s:%d %v", Demangle(f.Func), filepath.Base(f.File), f.Line, f.Inlined))
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
	for _, p := range sourcePrograms {
		for name, flags := range sourceFlags {
			t.Run(p.source+" "+name, func(t *testing.T) {
				program := compileSource(t, p.source, flags...)
				calls := markedCalls(t, program)
				checkMarkedCalls(t, p.source, p.calls, calls, openSource(t, program))

				debug := program + ".debug"
				command(t, "objcopy", "--only-keep-debug", program, debug)
				command(t, "strip", "--strip-all", program)
				if _, err := OpenSource(program); err == nil {
					t.Error("the stripped program has debug information")
				}
				checkMarkedCalls(t, p.source, p.calls, calls, openSource(t, debug))
			})
		}
	}
}

func TestFramesOfZstd(t *testing.T) {
	program := compileSource(t, "inlined.c", "-gdwarf-5")
	calls := markedCalls(t, program)
	if !strings.Contains(command(t, "objcopy", "--help"), "zstd") {
		skip(t, "objcopy knows no zstd")
	}
	command(t, "objcopy", "--compress-debug-sections=zstd", program)
	if !strings.Contains(command(t, "readelf", "-t", program), "ZSTD") {
		skip(t, "objcopy does not compress with zstd")
	}
	checkMarkedCalls(t, "inlined.c", sourcePrograms[0].calls, calls, openSource(t, program))
}

// TestFramesAgreeWithAddr2line asks for every instruction of every function.
func TestFramesAgreeWithAddr2line(t *testing.T) {
	needTools(t, "addr2line", "objdump")
	for _, p := range sourcePrograms {
		for name, flags := range sourceFlags {
			// Debian's addr2line cannot read the former and calls the files of the latter "<artificial>".
			if strings.HasPrefix(name, "64-bit") || strings.HasPrefix(name, "link-time") {
				continue
			}
			t.Run(p.source+" "+name, func(t *testing.T) {
				program := compileSource(t, p.source, flags...)
				s := openSource(t, program)
				var addrs []string
				for line := range strings.Lines(command(t, "objdump", "-d", "-j", ".text", "--no-show-raw-insn", program)) {
					if addr, rest, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.HasPrefix(rest, "\t") {
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
					frames, err := s.Frames(addr)
					if err != nil {
						t.Fatal(err)
					}
					if len(frames) == 0 || frames[0].Func == "" {
						continue // code of the C library's start files, padding behind a function
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
	out := command(t, "addr2line", append([]string{"-a", "-i", "-f", "-e", program}, addrs...)...)
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
