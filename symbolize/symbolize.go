// Package symbolize resolves addresses to function names and source lines, and demangles C++ and
// Rust names.
//
// An Object finds functions in the symbol tables of an ELF file. A Source finds source lines and
// inlined calls in debug information. A Finder finds the files for both. A PerfMap has the
// functions that a JIT compiler wrote into a perf map. ReadMaps parses /proc/PID/maps.
//
// The package only reads files. It needs no privileges and builds on every system. It uses the
// network only if the caller creates a Debuginfod.
//
// Every input may be hostile, because a recorder that runs as root reads files of other users. Each
// function returns a value or an error within bounded memory, and never panics. Names are returned
// as in the file and may contain any byte. Escape control characters before you print names to a
// terminal.
package symbolize

// Symbol is one function of an ELF file or of a perf map.
type Symbol struct {
	// Name is the symbol as in the file. It may be mangled, and may end in "@" and a symbol
	// version.
	Name string
	// Start is the first address of the function. For an Object it is an ELF virtual address, for a
	// PerfMap an address of the process.
	Start uint64
	// Size is in bytes and never 0. In an ELF file, sizes of 512 MiB and more are cut to 512 MiB -
	// 1.
	Size uint64
	// Guessed reports that the file has no size for the function. Size then extends to the next
	// function or to the end of the section. In a stripped file the real function may be much
	// shorter.
	Guessed bool
}
