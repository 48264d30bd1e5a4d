package symbolize

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/symbolize/elffile"
	"github.com/ianlancetaylor/demangle"
)

const (
	// maxUncutNameBytes is the longest name, in bytes, that Demangle returns in full.
	maxUncutNameBytes = elffile.MaxTextBytes
	// maxMangledNameBytes is the longest name, in bytes, that Demangle demangles. The library's
	// time is quadratic in the nesting of types: a hostile name of this length takes 0.2 s, one of
	// 64 KiB 3 s.
	maxMangledNameBytes = 16 << 10
	// maxDemangledLengthPower bounds the length of the demangled name as a power of 2. A short
	// mangled name can repeat parts exponentially often.
	maxDemangledLengthPower = 16
)

// Demangle returns the readable form of a C++ (Itanium) or Rust name. It keeps template arguments
// and leaves out return type, parameters and compiler suffixes such as ".cold". It returns names
// that are not mangled unchanged. Names over 16 KiB stay mangled. Names over 64 KiB, mangled or
// not, are cut and end in a note.
func Demangle(mangled string) string {
	name, _ := demangleWithoutVersion(mangled, demangle.NoParams, demangle.NoEnclosingParams)
	return name
}

// DemangleFull returns the complete readable form: with return type, parameters, compiler suffix
// and symbol version. It has the limits of Demangle.
func DemangleFull(mangled string) string {
	name, version := demangleWithoutVersion(mangled)
	return name + version
}

// demangleWithoutVersion returns the readable form of a name and, separately, the symbol version
// "@VERSION" that linkers append in .symtab.
func demangleWithoutVersion(mangled string, options ...demangle.Option) (name, version string) {
	switch {
	case len(mangled) > maxUncutNameBytes:
		return fmt.Sprintf("%s… (cut, %d bytes)", mangled[:maxUncutNameBytes], len(mangled)), ""
	case len(mangled) > maxMangledNameBytes:
		return mangled, ""
	}
	// The demangler recovers only from its own panics. A hostile name that crashes it is returned
	// unchanged.
	defer func() {
		if recover() != nil {
			name, version = mangled, ""
		}
	}()
	base := mangled
	if at := strings.IndexByte(mangled, '@'); at > 0 {
		base, version = mangled[:at], mangled[at:]
	}
	name, err := demangle.ToString(base, append(options, demangle.MaxLength(maxDemangledLengthPower))...)
	if err != nil || name == "" {
		return mangled, ""
	}
	if len(name) >= 1<<maxDemangledLengthPower {
		name += "… (cut)" // the demangler stops at the limit
	}
	return name, version
}
