package symbolize

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/symbolize/elffile"
	"github.com/ianlancetaylor/demangle"
)

const (
	// maxShown is the longest name, in bytes, that is given in full.
	maxShown = elffile.MaxTextBytes
	// maxMangled is the longest name, in bytes, that is demangled. The library needs time in the
	// square of how deep types nest: a crafted name of this length takes 0.2 s, one of 64 KiB 3 s.
	// No one reads what a longer one says.
	maxMangled = 16 << 10
	// maxDemangledPower bounds the demangled name, as a power of 2: a short mangled name can repeat
	// a part of itself exponentially often.
	maxDemangledPower = 16
)

// Demangle returns a C++ (Itanium) or Rust name in readable form, short for display: without return
// type, parameters and compiler suffixes such as ".cold", with template arguments. A name that is
// not mangled comes back as it is. Names over 16 KiB stay mangled; over 64 KiB, before or after,
// they are cut with a note at the end.
func Demangle(mangled string) string {
	name, _ := demangled(mangled, demangle.NoParams, demangle.NoEnclosingParams)
	return name
}

// DemangleFull is Demangle with everything that the name holds: return type, parameters, compiler
// suffix, symbol version.
func DemangleFull(mangled string) string {
	name, version := demangled(mangled)
	return name + version
}

// demangled returns the readable form of a name, apart from it the "@VERSION" that linkers append
// in .symtab.
func demangled(mangled string, options ...demangle.Option) (name, version string) {
	switch {
	case len(mangled) > maxShown:
		return fmt.Sprintf("%s… (cut, %d bytes)", mangled[:maxShown], len(mangled)), ""
	case len(mangled) > maxMangled:
		return mangled, ""
	}
	// The library recovers from its own errors only; a crafted name that crashes it is shown as it
	// is.
	defer func() {
		if recover() != nil {
			name, version = mangled, ""
		}
	}()
	base := mangled
	if at := strings.IndexByte(mangled, '@'); at > 0 {
		base, version = mangled[:at], mangled[at:]
	}
	name, err := demangle.ToString(base, append(options, demangle.MaxLength(maxDemangledPower))...)
	if err != nil || name == "" {
		return mangled, ""
	}
	if len(name) >= 1<<maxDemangledPower {
		name += "… (cut)" // the library stops at the limit
	}
	return name, version
}
