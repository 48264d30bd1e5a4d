//go:build linux

package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/symbolize"
)

// FuzzStat parses /proc/PID/stat, in which a process chooses its name.
func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 7 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4242 1"))
	f.Add([]byte("1 (\x1b]0;) ("))
	f.Fuzz(func(t *testing.T, stat []byte) {
		comm, _ := parseStat(stat)
		parentOf(stat)
		if name := defaultOutput(comm, 1, "now"); filepath.Base(name) != name || strings.ContainsAny(name, "\x1b\n") {
			t.Errorf("a recording is called %q", name)
		}
	})
}

// FuzzCodeMap makes the programs' table of code of any mappings.
func FuzzCodeMap(f *testing.F) {
	f.Add("00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/a\n7f0000000000-7f0000001000 r-xp 0 00:00 0\n")
	f.Add("0-ffffffffffffffff r-xp 0 08:02 1 /a\n")
	f.Fuzz(func(t *testing.T, text string) {
		if maps, err := symbolize.ReadMaps(strings.NewReader(text)); err == nil {
			codeMap(maps)
		}
	})
}

// FuzzLibrary looks for functions to probe in a damaged library.
func FuzzLibrary(f *testing.F) {
	library, err := os.ReadFile(filepath.Join(simcudaDir, "libcuda.so.1"))
	if err != nil {
		f.Skip("simcuda is not built: make simcuda")
	}
	// The input is what is done to a good library, so that inputs are small.
	f.Add(uint32(0), []byte{}, uint32(0), "libcuda.so.1")
	f.Add(uint32(18), []byte{0xb7, 0}, uint32(0), "libcuda.so.1")
	f.Add(uint32(0x28), []byte{0xff, 0xff}, uint32(100), "libc10_cuda.so")
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32, name string) {
		data := append([]byte(nil), library...)
		copy(data[int(at)%len(data):], patch)
		path := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(path, data[:len(data)-int(cut)%len(data)], 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openRegular(path)
		if err != nil {
			t.Fatal(err)
		}
		cache := newLibraryCache()
		defer cache.close()
		lib, err := cache.take(file, name)
		if err == nil && len(lib.probes) > bpf.NumCookies()+len(bpf.Allocators) {
			t.Errorf("%d probes", len(lib.probes))
		}
	})
}

// FuzzRawXid decodes records of the program that follows Xids.
func FuzzRawXid(f *testing.F) {
	f.Add(make([]byte, rawXidSize))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, _, ok := decodeRawXid(raw); ok && len(s.text)+len(s.pci) > len(raw) {
			t.Errorf("%+v of %d bytes", s, len(raw))
		}
	})
}
