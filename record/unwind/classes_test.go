//go:build linux

package unwind

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// classWords encodes the name of a class like unwind_stop.
func classWords(name string) []uint64 {
	var text [8 * ClassNameWords]byte
	copy(text[:len(text)-1], name)
	words := make([]uint64, ClassNameWords)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(text[8*i:])
	}
	return words
}

func TestClassNames(t *testing.T) {
	testclass.Unit(t)
	for name, want := range map[string]string{
		"":                        "",
		"GPT2Block":               "GPT2Block",
		"torch.jit.ScriptModule":  "ScriptModule",
		"Größe":                   "Größe",
		strings.Repeat("a", 63):   strings.Repeat("a", 63),
		strings.Repeat("a", 80):   strings.Repeat("a", 63),
		strings.Repeat("層", 30):   strings.Repeat("層", 21),
		strings.Repeat("ä", 32):   strings.Repeat("ä", 31),
		"a\xff":                   "",
		"a\nb":                    "",
		strings.Repeat("\x80", 9): "",
	} {
		if got := readClassName(classWords(name)); got != want {
			t.Errorf("%q is read as %q", name, got)
		}
	}
	if got := readClassName(
		[]uint64{1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1<<63 | 1},
	); got != "" {
		t.Errorf("text without an end is read as %q", got)
	}
}

func TestClassesBelongToFramesOfOneMethod(t *testing.T) {
	testclass.Unit(t)
	const method, other = 0x1000, 0x2000
	var words []uint64
	frames := make([]Frame, 5)
	at := []int{0, 2, 3, 4}
	for i, code := range []uint64{method, other, method, method} {
		words = append(words, pythonFrame(code, 4)...)
		frames[at[i]] = Frame{Python: true, Function: "Module._call_impl", File: "/x/torch/nn/modules/module.py"}
	}
	classes := append([]uint64{method}, classWords("Linear")...)
	classes = append(classes, classWords("Block")...) // the third frame of the method did not fit
	setClasses(words, at, classes, frames)
	for i, want := range []string{"Linear", "", "", "Block", ""} {
		if frames[i].SelfClass != want {
			t.Errorf("frame %d has class %q, want %q", i, frames[i].SelfClass, want)
		}
	}
	frames[0] = Frame{Python: true, Function: "Other._call_impl", File: "/x/other.py"}
	setClasses(words, at, classes, frames)
	if frames[0].SelfClass != "" {
		t.Errorf("a function of another file has class %q", frames[0].SelfClass)
	}
	for n := range classes { // records that are cut
		setClasses(words[:min(n, len(words))], at, classes[:n], frames)
	}
}
