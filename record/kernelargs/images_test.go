package kernelargs

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

var (
	mixed  = Layout{{0, 8}, {8, 4}, {12, 4}, {16, 8}, {24, 40}}
	single = Layout{{0, 8}}
)

func TestCubin(t *testing.T) {
	testclass.Unit(t)
	raw := cubinOf(testKernel{"_Z5mixedPfif", mixed}, testKernel{"none", Layout{}}, testKernel{"single", single})
	found, err := readCubin(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Layout{"_Z5mixedPfif": mixed, "none": {}, "single": single} {
		if l, ok := found.find(name); !ok || !slices.Equal(l, want) {
			t.Errorf("%s: %v, want %v", name, l, want)
		}
	}
	if _, ok := found.find("other"); ok || len(found) != 3 {
		t.Errorf("kernels %v", found)
	}
}

// TestPackedFatbin reads a fatbin with a plain, two compressed and one unknown entry, and PTX.
func TestPackedFatbin(t *testing.T) {
	testclass.Unit(t)
	long := strings.Repeat("padding_", 200) // makes the data compressible
	raw := fatbinOf(t,
		testEntry{entryCubin, cubinOf(testKernel{"plain", single}), 0},
		testEntry{entryCubin, cubinOf(testKernel{"lz4" + long, mixed}), entryFlagLZ4},
		testEntry{entryCubin, cubinOf(testKernel{"zstd" + long, mixed}), entryFlagZstd},
		testEntry{99, []byte("neither"), 0},
		testEntry{entryPTX, []byte(".version 8.0\n.visible .entry ptx(.param .u64 p) { ret; }\x00\x00"), 0},
	)
	found, size, err := readFatbin(bytes.NewReader(raw))
	if err != nil || size != int64(len(raw)) {
		t.Fatalf("%d bytes, %v", size, err)
	}
	for name, want := range map[string]Layout{"plain": single, "lz4" + long: mixed, "zstd" + long: mixed, "ptx": single} {
		if l, ok := found.find(name); !ok || !slices.Equal(l, want) {
			t.Errorf("%.20s: %v, want %v", name, l, want)
		}
	}
	section := append(append(make([]byte, 16), raw...), raw...)
	found = make(layouts)
	readFatbins(io.NewSectionReader(bytes.NewReader(section), 0, int64(len(section))), found)
	if len(found) != 4 {
		t.Errorf("section with %d kernels", len(found))
	}
}

// TestDifferentLayouts: a kernel with two layouts in different images has none.
func TestDifferentLayouts(t *testing.T) {
	testclass.Unit(t)
	found := make(layouts)
	for _, l := range []Layout{single, single, mixed, single} {
		found.addAll(layouts{"kernel": l})
	}
	if l, ok := found.find("kernel"); ok {
		t.Errorf("layout %v", l)
	}
}

func TestPTX(t *testing.T) {
	testclass.Unit(t)
	found := parsePTX(`
.version 8.0 // a comment with .entry no(.param .u64 x)
.visible .entry _Z5mixedPfif(
	.param .u64 .ptr .global .align 16 _Z5mixedPfif_param_0, // the data
	.param .u32 _Z5mixedPfif_param_1,
	.param .f32 _Z5mixedPfif_param_2,
	.param .f64 _Z5mixedPfif_param_3,
	.param .align 8 .b8 _Z5mixedPfif_param_4[40]
)
.maxntid 128
{ ret; }
.entry aligned(.param .u8 a, .param .align 16 .b8 b[20], .param .u16 c) { ret; }
.entry none() { ret; }
.entry strange(.param .texref t) { ret; }`)
	for name, want := range map[string]Layout{
		"_Z5mixedPfif": mixed, "aligned": {{0, 1}, {16, 20}, {36, 2}}, "none": {},
	} {
		if l, ok := found.find(name); !ok || !slices.Equal(l, want) {
			t.Errorf("%s: %v, want %v", name, l, want)
		}
	}
	for _, name := range []string{"strange", "no"} {
		if l, ok := found.find(name); ok {
			t.Errorf("%s: %v", name, l)
		}
	}
}

// FuzzImages reads damaged images. They must not fail or allocate without limit.
func FuzzImages(f *testing.F) {
	f.Add(cubinOf(testKernel{"mixed", mixed}))
	f.Add(fatbinOf(f, testEntry{entryCubin, cubinOf(testKernel{"kernel", mixed}), 0},
		testEntry{entryCubin, cubinOf(testKernel{strings.Repeat("kernel", 100), mixed}), entryFlagLZ4},
		testEntry{entryPTX, []byte(".entry k(.param .u64 a)"), entryFlagZstd}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, found := range []layouts{
			first(readCubin(bytes.NewReader(raw), int64(len(raw)))),
			firstOf3(readFatbin(bytes.NewReader(raw))), parsePTX(string(raw)),
		} {
			for name, l := range found {
				if l != nil && !l.isValid() {
					t.Errorf("%q has the layout %v", name, l)
				}
			}
		}
	})
}

func first(l layouts, _ error) layouts { return l }

func firstOf3(l layouts, _ int64, _ error) layouts { return l }
