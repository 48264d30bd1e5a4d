package symbolize

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestReadMaps(t *testing.T) {
	testclass.Unit(t)
	const anonymous = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 "
	tests := []struct {
		line string
		want Mapping
	}{
		{
			"55e0c5a00000-55e0c5a21000 r-xp 00002000 fd:01 1234                       /usr/bin/python3.11",
			Mapping{0x55e0c5a00000, 0x55e0c5a21000, 0x2000, "r-xp", "fd:01", 1234, "/usr/bin/python3.11", false},
		},
		{anonymous, Mapping{0x7f0000000000, 0x7f0000001000, 0, "rw-p", "00:00", 0, "", false}},
		{strings.TrimSpace(anonymous), Mapping{0x7f0000000000, 0x7f0000001000, 0, "rw-p", "00:00", 0, "", false}},
		{
			anonymous + "                         [heap]",
			Mapping{0x7f0000000000, 0x7f0000001000, 0, "rw-p", "00:00", 0, "[heap]", false},
		},
		{
			"1000-2000 r--s 00000000 00:01 99  /memfd:a b (deleted)",
			Mapping{0x1000, 0x2000, 0, "r--s", "00:01", 99, "/memfd:a b", true},
		},
		{
			"1000-2000 r-xp 00000000 00:01 99  /tmp/my lib  (x).so ",
			Mapping{0x1000, 0x2000, 0, "r-xp", "00:01", 99, "/tmp/my lib  (x).so ", false},
		},
		{
			`1000-2000 r-xp 00000000 00:01 99  /tmp/a\012b\\012`,
			Mapping{0x1000, 0x2000, 0, "r-xp", "00:01", 99, "/tmp/a\nb\\\n", false},
		},
		{
			"1000-2000 r-xp 00000000 00:01 99  /tmp/a\r",
			Mapping{0x1000, 0x2000, 0, "r-xp", "00:01", 99, "/tmp/a\r", false},
		},
		{
			"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{0xffffffffff600000, 0xffffffffff601000, 0, "--xp", "00:00", 0, "[vsyscall]", false},
		},
	}
	for _, test := range tests {
		got, err := ReadMaps(strings.NewReader(test.line + "\n"))
		if err != nil || len(got) != 1 || got[0] != test.want {
			t.Errorf("ReadMaps(%q) = %+v, %v; want %+v", test.line, got, err, test.want)
		}
	}
}

func TestReadMapsRefusesMalformedLines(t *testing.T) {
	testclass.Unit(t)
	lines := []string{
		"",
		" ",
		"hello",
		"1000-2000",
		"1000-2000 r-xp",
		"1000-2000 r-xp 0",
		"1000-2000 r-xp 0 00:00",
		"1000-2000 r-xp 0  0 /x",
		"2000-1000 r-xp 0 00:00 0",
		"1000-1000 r-xp 0 00:00 0",
		"x-2000 r-xp 0 00:00 0",
		"1000-2000 r-x 0 00:00 0",
		"1000-20000000000000000 r-xp 0 00:00 0",
		"1000-2000 r-xp -1 00:00 0",
		"1000-2000 r-xp 0 00:00 f",
		"-1000-2000 r-xp 0 00:00 0",
		"1000-2000 r-xp 0 00:00 1 /" + strings.Repeat("x", maxMapsLineBytes),
	}
	for _, line := range lines {
		if got, err := ReadMaps(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("ReadMaps(%.80q) = %+v", line, got)
		}
	}
	if got, err := ReadMaps(strings.NewReader("1000-2000 r-xp 0 00:00 0 /tmp/cut")); err == nil {
		t.Errorf("a line without end gave %+v", got)
	}
	if _, err := ReadMaps(iotest.ErrReader(os.ErrPermission)); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a failing reader gave %v", err)
	}
}

func TestFindMapping(t *testing.T) {
	testclass.Unit(t)
	maps, err := ReadMaps(strings.NewReader("5000-6000 r-xp 0 00:00 0 /c\n1000-2000 r-xp 0 00:00 0 /a\n2000-3000 " +
		"r-xp 0 00:00 0 /b\n"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		addr uint64
		want string
	}{
		{0, ""},
		{0xfff, ""},
		{0x1000, "/a"},
		{0x1fff, "/a"},
		{0x2000, "/b"},
		{0x3000, ""},
		{0x4fff, ""},
		{0x5000, "/c"},
		{0x6000, ""},
		{^uint64(0), ""},
	}
	for _, test := range tests {
		if m, ok := FindMapping(maps, test.addr); m.Path != test.want || ok != (test.want != "") {
			t.Errorf("FindMapping(%#x) = %+v, %v", test.addr, m, ok)
		}
	}
	if _, ok := FindMapping(nil, 1); ok {
		t.Error("found a mapping among none")
	}
}

func TestReadMapsOfThisProcess(t *testing.T) {
	testclass.Unit(t)
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		testclass.Missing(t, "no /proc/self/maps here: "+err.Error())
	}
	defer file.Close()
	maps, err := ReadMaps(file)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(maps, func(m Mapping) bool { return m.Path == self && m.Executable() }) {
		t.Errorf("%s is not mapped executable in %+v", self, maps)
	}
}

func FuzzReadMaps(f *testing.F) {
	f.Add("55e0c5a00000-55e0c5a21000 r-xp 00002000 fd:01 1234   /usr/bin/py\\012thon (deleted)\n1-2 ---p 0 00:00 0\n")
	f.Add("2-3 r-xp 0 0:0 0\n1-5 r-xp 0 0:0 0 x\n")
	f.Fuzz(func(t *testing.T, text string) {
		maps, err := ReadMaps(strings.NewReader(text))
		if err != nil && maps != nil {
			t.Fatal("error and value")
		}
		for _, m := range maps {
			if m.Start >= m.End {
				t.Fatalf("%+v", m)
			}
			FindMapping(maps, m.Start)
			FindMapping(maps, m.End)
		}
	})
}

// TestReadMapsBoundsPaths checks that ReadMaps bounds the total length of paths: a program can map
// files with long names.
func TestReadMapsBoundsPaths(t *testing.T) {
	testclass.Unit(t)
	text := func(mappings int) io.Reader {
		var lines []io.Reader
		name := strings.Repeat("x", 16<<10)
		for i := range mappings {
			lines = append(
				lines,
				strings.NewReader(fmt.Sprintf("%x-%x r-xp 0 00:00 1 /%d%s\n", (i+1)<<12, (i+2)<<12, i%2, name)),
			)
		}
		return io.MultiReader(lines...)
	}
	if maps, err := ReadMaps(text(4000)); err != nil || len(maps) != 4000 {
		t.Errorf("%d mappings, %v", len(maps), err)
	}
	if _, err := ReadMaps(text(4200)); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("65.6 MiB of paths: %v", err)
	}
}
