package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// nmFunction is one function in the output of nm.
type nmFunction struct {
	name        string
	start, size uint64
}

// nmFunctions returns the functions that nm lists, as an independent reference.
func nmFunctions(t *testing.T, path string, flags ...string) []nmFunction {
	t.Helper()
	var all []nmFunction
	out := elftest.Run(t, "nm", append(flags, "--format=sysv", "--defined-only", path)...)
	for _, line := range strings.Split(out, "\n") {
		f := strings.Split(line, "|")
		if len(f) != 7 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if f[3] != "FUNC" && f[3] != "<OS specific>: 10" || f[6] == "*ABS*" { // 10 is STT_GNU_IFUNC
			continue
		}
		start, err := strconv.ParseUint(f[1], 16, 64)
		if err != nil {
			t.Fatalf("nm printed %q", line)
		}
		size := uint64(0)
		if f[4] != "" {
			if size, err = strconv.ParseUint(f[4], 16, 64); err != nil {
				t.Fatalf("nm printed %q", line)
			}
		}
		if name, _, versioned := strings.Cut(f[0], "@"); versioned && slices.Contains(flags, "-D") {
			f[0] = name // nm adds versions that .dynstr does not hold
		}
		all = append(all, nmFunction{f[0], start, size})
	}
	return all
}

// compareWithNM looks up the first, a middle and the last byte of each function, and finds each
// name.
func compareWithNM(t *testing.T, o *Object, want []nmFunction) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nm found no function")
	}
	names := map[uint64][]string{}
	for _, f := range want {
		names[f.start] = append(names[f.start], f.name)
	}
	for _, f := range want {
		last := uint64(0)
		if f.size > 0 {
			last = f.size - 1
		}
		for _, offset := range []uint64{0, last / 2, last} {
			s, got, ok := o.Lookup(f.start + offset)
			inner := ok && s.Start > f.start && s.Start <= f.start+offset
			if !ok || !inner && (s.Start != f.start || got != offset || !slices.Contains(names[f.start], s.Name)) {
				t.Errorf("Lookup(%#x) = %q %#x+%d, %v; nm says %q %#x+%d", f.start+offset, s.Name, s.Start, got, ok,
					names[f.start], f.start, offset)
			}
			if ok && s.Start == f.start && f.size == 0 && len(names[f.start]) == 1 && !s.Guessed {
				t.Errorf("Lookup(%#x): size of %s is not marked as guessed", f.start, s.Name)
			}
		}
		s, ok := o.Find(f.name)
		if !ok || s.Name != f.name {
			t.Errorf("Find(%q) = %v, %v", f.name, s, ok)
		}
	}
	for s := range o.Symbols() {
		if s.Size == 0 || s.Name == "" {
			t.Errorf("symbol without size or name: %+v", s)
		}
	}
	if skipped := o.Skipped(); len(skipped) > 0 {
		t.Errorf("skipped: %v", skipped)
	}
}

func openObject(t *testing.T, path string) *Object {
	t.Helper()
	o, err := OpenObject(path)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var variants = []struct {
	name, source string
	flags        []string
}{
	{"C PIE", "functions.c", []string{"-fPIE", "-pie"}},
	{"C at a fixed address", "functions.c", []string{"-no-pie"}},
	{"C static", "functions.c", []string{"-static"}},
	{"C library", "functions.c", []string{"-shared", "-fPIC", "-DNO_MAIN"}},
	{"C++ PIE", "functions.cpp", []string{"-fPIE", "-pie"}},
	{"C++ library", "functions.cpp", []string{"-shared", "-fPIC", "-DNO_MAIN"}},
	{"C library without build id", "functions.c", []string{"-shared", "-fPIC", "-DNO_MAIN", "-Wl,--build-id=none"}},
}

func TestLookupAgreesWithNM(t *testing.T) {
	testclass.Unit(t)
	elftest.NeedTools(t, "gcc", "g++", "readelf")
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			path := compile(t, v.source, "program", append([]string{"-Wl,--build-id=sha1"}, v.flags...)...)
			o := openObject(t, path)
			compareWithNM(t, o, nmFunctions(t, path))
			notes := elftest.Run(t, "readelf", "-n", path)
			want := ""
			if m := regexp.MustCompile(`Build ID: (\w+)`).FindStringSubmatch(notes); m != nil {
				want = m[1]
			}
			if o.BuildID() != want || (want == "") != strings.Contains(v.name, "without build id") {
				t.Errorf("BuildID() = %q, readelf says %q", o.BuildID(), want)
			}
			if _, ok := o.Find("printf"); ok && !strings.Contains(v.name, "static") {
				t.Error("found a function that is only imported")
			}
			if _, ok := o.Find("data_object"); ok {
				t.Error("found a variable")
			}
		})
	}
}

func TestStrippedLibraryKeepsDynamicFunctions(t *testing.T) {
	testclass.Unit(t)
	path := compile(t, "functions.c", "lib.so", "-shared", "-fPIC", "-DNO_MAIN")
	local, ok := openObject(t, path).Find("local_function")
	if !ok {
		t.Fatal("local_function not found before stripping")
	}
	elftest.Run(t, "strip", "--strip-all", path)
	o := openObject(t, path)
	compareWithNM(t, o, nmFunctions(t, path, "-D"))
	if s, _, ok := o.Lookup(local.Start); ok && !s.Guessed {
		t.Errorf("Lookup at the stripped local function claims %+v", s)
	}
}

func TestStrippedProgramHasNoFunctions(t *testing.T) {
	testclass.Unit(t)
	path := compile(t, "functions.c", "program", "-static")
	elftest.Run(t, "strip", "--strip-all", path)
	o := openObject(t, path)
	if o.Len() != 0 || len(o.Skipped()) != 0 {
		t.Errorf("Len() = %d, Skipped() = %v", o.Len(), o.Skipped())
	}
	if _, _, ok := o.Lookup(0x401000); ok {
		t.Error("Lookup found a function")
	}
	if _, ok := o.Find("main"); ok {
		t.Error("Find found a function")
	}
}

// miniDebugInfo strips a file like Fedora's find-debuginfo. It compresses the symbols that .dynsym
// lacks into .gnu_debugdata.
func miniDebugInfo(t *testing.T, path string) {
	t.Helper()
	elftest.NeedTools(t, "xz")
	folder := filepath.Dir(path)
	in := func(name string) string { return filepath.Join(folder, name) }
	dynamic := map[string]bool{}
	if strings.HasSuffix(path, ".so") {
		for _, f := range nmFunctions(t, path, "-D") {
			dynamic[f.name] = true
		}
	}
	var keep strings.Builder
	for _, f := range nmFunctions(t, path) {
		if !dynamic[f.name] {
			keep.WriteString(f.name + "\n")
		}
	}
	if err := os.WriteFile(in("keep"), []byte(keep.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	elftest.Run(t, "objcopy", "--only-keep-debug", path, in("debug"))
	elftest.Run(t, "objcopy", "-S", "--remove-section", ".gdb_index", "--remove-section", ".comment",
		"--keep-symbols="+in("keep"), in("debug"), in("mini"))
	elftest.Run(t, "xz", in("mini"))
	elftest.Run(t, "strip", "--strip-all", path)
	elftest.Run(t, "objcopy", "--add-section", ".gnu_debugdata="+in("mini.xz"), path)
}

func TestMiniDebugInfoRestoresLocalFunctions(t *testing.T) {
	testclass.Unit(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			output := "program"
			if strings.Contains(v.name, "library") {
				output = "lib.so"
			}
			path := compile(t, v.source, output, v.flags...)
			want := nmFunctions(t, path)
			miniDebugInfo(t, path)
			compareWithNM(t, openObject(t, path), want)
		})
	}
}

func TestDebugFileRestoresLocalFunctions(t *testing.T) {
	testclass.Unit(t)
	path := compile(t, "functions.c", "lib.so", "-shared", "-fPIC", "-DNO_MAIN", "-Wl,--build-id=sha1")
	want := nmFunctions(t, path)
	id := openObject(t, path).BuildID()
	root := t.TempDir()
	debug := filepath.Join(root, "usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(debug), 0o700); err != nil {
		t.Fatal(err)
	}
	elftest.Run(t, "objcopy", "--only-keep-debug", path, debug)
	elftest.Run(t, "strip", "--strip-all", path)
	o := openObject(t, path)
	if _, ok := o.Find("local_function"); ok {
		t.Fatal("local_function survived stripping")
	}
	if got := foundFiles(t, &Finder{root: root}, path, strings.ToUpper(id)); !slices.Equal(got, []string{debug}) {
		t.Fatalf("Files = %q, want %q", got, debug)
	}
	if err := o.AddDebug(debug); err != nil {
		t.Fatal(err)
	}
	compareWithNM(t, o, want)

	other := compile(t, "functions.cpp", "other.so", "-shared", "-fPIC", "-DNO_MAIN", "-Wl,--build-id=sha1")
	before := o.Len()
	if err := o.AddDebug(other); !errors.Is(err, ErrBuildID) {
		t.Errorf("AddDebug of a foreign file: %v", err)
	}
	if o.Len() != before {
		t.Error("a foreign debug file changed the object")
	}
}

func TestBuildIDIsFoundWithoutSectionHeaders(t *testing.T) {
	testclass.Unit(t)
	path := compile(t, "functions.c", "program", "-Wl,--build-id=sha1")
	want := openObject(t, path).BuildID()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(raw[0x28:], 0) // e_shoff
	binary.LittleEndian.PutUint32(raw[0x3c:], 0) // e_shnum, e_shstrndx
	if got := open(t, raw).BuildID(); got != want || want == "" {
		t.Errorf("BuildID() = %q, want %q", got, want)
	}
	binary.LittleEndian.PutUint64(raw[0x28:], 1<<40) // an offset without section headers
	o := open(t, raw)
	if got := o.BuildID(); got != want || len(o.Skipped()) == 0 {
		t.Errorf("BuildID() = %q, Skipped() = %v", got, o.Skipped())
	}
}

func TestFileOffsetsAndAddressesAreInverse(t *testing.T) {
	testclass.Unit(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			o := openObject(t, compile(t, v.source, "program", v.flags...))
			for s := range o.Symbols() {
				offset, ok := o.FileOffset(s.Start)
				if !ok {
					t.Fatalf("FileOffset(%#x) of %s: not in a segment", s.Start, s.Name)
				}
				if back, ok := o.VAddr(offset); !ok || back != s.Start {
					t.Errorf("VAddr(FileOffset(%#x)) = %#x, %v", s.Start, back, ok)
				}
			}
			if _, ok := o.VAddr(0); ok && v.name != "C static" { // the segment of the headers is not executable
				t.Error("VAddr(0) found an executable segment")
			}
			if _, ok := o.FileOffset(1 << 60); ok {
				t.Error("FileOffset(1<<60) found a segment")
			}
		})
	}
}

func TestOpenObjectRefusesOtherFiles(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	text := filepath.Join(folder, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("hello\n"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, text, filepath.Join(folder, "missing"), os.DevNull} {
		if o, err := OpenObject(path); err == nil || o != nil {
			t.Errorf("OpenObject(%s) = %v, %v", path, o, err)
		}
	}
}

func TestPreferredName(t *testing.T) {
	testclass.Unit(t)
	const local, global, weak = elf.STB_LOCAL, elf.STB_GLOBAL, elf.STB_WEAK
	tests := []struct {
		name string
		add  func(s *elftest.Image)
		want string
	}{
		{
			"global before local",
			func(s *elftest.Image) { s.Add("a", 0x1100, 16, local); s.Add("global", 0x1100, 16, global) },
			"global",
		},
		{
			"weak like global",
			func(s *elftest.Image) { s.Add("__write", 0x1100, 16, global); s.Add("write", 0x1100, 16, weak) },
			"write",
		},
		{
			"sized before sizeless",
			func(s *elftest.Image) { s.Add("a", 0x1100, 0, global); s.Add("sized", 0x1100, 16, global) },
			"sized",
		},
		{
			"shortest",
			func(s *elftest.Image) { s.Add("aaaa", 0x1100, 16, global); s.Add("zz", 0x1100, 16, global) },
			"zz",
		},
		{
			"first in the alphabet",
			func(s *elftest.Image) { s.Add("bb", 0x1100, 16, global); s.Add("ab", 0x1100, 16, global) },
			"ab",
		},
		{
			"one that covers the address",
			func(s *elftest.Image) { s.Add("a", 0x1100, 4, global); s.Add("long", 0x1100, 16, local) },
			"long",
		},
		{
			"inner before outer",
			func(s *elftest.Image) { s.Add("o", 0x10f0, 64, global); s.Add("inner", 0x1100, 16, local) },
			"inner",
		},
		{
			"outer behind inner",
			func(s *elftest.Image) { s.Add("o", 0x10f0, 64, global); s.Add("inner", 0x1100, 2, local) },
			"o",
		},
		{
			"sizeless to the next",
			func(s *elftest.Image) { s.Add("a", 0x1000, 0, global); s.Add("b", 0x1200, 16, global) },
			"a",
		},
		{
			"sizeless not beyond the next",
			func(s *elftest.Image) { s.Add("a", 0x1000, 0, global); s.Add("b", 0x1100, 2, global) },
			"",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var s elftest.Image
			test.add(&s)
			for range 2 { // both orders of the symbols
				got, _, _ := open(t, s.Bytes()).Lookup(0x1108)
				if got.Name != test.want {
					t.Errorf("Lookup = %q, want %q", got.Name, test.want)
				}
				slices.Reverse(s.Symbols)
			}
		})
	}
}

func TestSizelessFunctionEndsWithItsSection(t *testing.T) {
	testclass.Unit(t)
	var s elftest.Image
	s.Add("last", 0x1f00, 0, elf.STB_GLOBAL)
	o := open(t, s.Bytes())
	got, _, ok := o.Lookup(0x1fff)
	if !ok || got != (Symbol{"last", 0x1f00, 0x100, true}) {
		t.Errorf("Lookup = %+v, %v", got, ok)
	}
	if got, _, ok := o.Lookup(0x2000); ok {
		t.Errorf("Lookup behind the section = %+v", got)
	}
}

func TestFindPrefersGlobal(t *testing.T) {
	testclass.Unit(t)
	var s elftest.Image
	s.Add("twin", 0x1000, 16, elf.STB_LOCAL)
	s.Add("twin", 0x1100, 16, elf.STB_GLOBAL)
	s.Add("twin", 0x1200, 16, elf.STB_LOCAL)
	if got, ok := open(t, s.Bytes()).Find("twin"); !ok || got.Start != 0x1100 {
		t.Errorf("Find = %+v, %v", got, ok)
	}
}

func TestLookupsAtTheSameTime(t *testing.T) {
	testclass.Unit(t)
	o := openObject(t, compile(t, "functions.c", "program", "-static"))
	defer o.Close()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			n := 0
			for s := range o.Symbols() {
				if got, _, ok := o.Lookup(s.Start); !ok || got.Start != s.Start {
					t.Errorf("Lookup(%#x) = %+v, %v", s.Start, got, ok)
				}
				if _, ok := o.Find(s.Name); !ok {
					t.Errorf("Find(%q) fails", s.Name)
				}
				if n++; n == 500 {
					break
				}
			}
		})
	}
	group.Wait()
}
