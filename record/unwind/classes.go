//go:build linux

package unwind

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// moduleFile is the end of the path of the file that defines nn.Module.
const moduleFile = "torch/nn/modules/module.py"

// ClassNameWords is the number of words of the name of a class, CLASS_NAME_WORDS in bpf/event.h.
const ClassNameWords = 8

// setClasses sets the classes of self in Python frames. at has the indexes of the Python frames, and
// words their words. classes are the code object of a method, and the names of the classes of self in
// its frames, leaf first.
func setClasses(words []uint64, at []int, classes []uint64, frames []Frame) {
	if len(classes) == 0 {
		return
	}
	method, classes := classes[0], classes[1:]
	rest := libpf.EbpfFrame(words)
	for _, i := range at {
		n := int(rest.Length())
		if n == 0 || n > len(rest) || len(classes) < ClassNameWords {
			return
		}
		if n > 1 && rest.Variable(0) == method {
			if f := &frames[i]; isModuleMethod(f) {
				f.SelfClass = readClassName(classes[:ClassNameWords])
			}
			classes = classes[ClassNameWords:]
		}
		rest = rest[n:]
	}
}

// isModuleMethod reports whether a frame is of a method with which PyTorch calls modules.
func isModuleMethod(f *Frame) bool {
	return strings.HasSuffix(f.File, moduleFile) && strings.HasSuffix(f.Function, "_call_impl")
}

// readClassName returns the name of a class without its module, as it was cut. It returns "" for text
// that is no name.
func readClassName(words []uint64) string {
	var text []byte
	for _, word := range words {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	end := bytes.IndexByte(text, 0)
	if end < 0 {
		return ""
	}
	name := string(text[:end])
	for cut := 0; end == len(text)-1 && cut < utf8.UTFMax-1 && !utf8.ValidString(name); cut++ {
		name = name[:len(name)-1] // the name was cut in a character
	}
	name = name[strings.LastIndexByte(name, '.')+1:]
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return name
}
