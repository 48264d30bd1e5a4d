// Package symbolize resolves addresses to function names and source lines, and demangles C++ and
// Rust names.
//
// An Object finds functions in the symbol tables of an ELF file. A Source finds source lines and
// inlined calls in its debug information. A Finder finds the files for both. A PerfMap has the
// functions that a JIT compiler wrote into a perf map. ReadMaps reads which files a process has
// mapped at which addresses.
//
// The package only reads files: it needs no privileges and builds on every system. It uses the
// network only if the caller creates a Debuginfod.
//
// Every input may be hostile, because a recorder that runs as root reads files of other users. Each
// function returns a value or an error within bounded memory and never panics. Names are returned
// as they are in the file and may contain any byte: escape control characters before you print them
// to a terminal.
package symbolize

// Symbol is one function of an ELF file or of a perf map.
type Symbol struct {
	// Name is as in the file: mangled, and in some files with a version behind an "@".
	Name string
	// Start is the first address: an ELF virtual address for an Object, a process address for a
	// PerfMap.
	Start uint64
	// Size is in bytes and never 0. Sizes of 512 MiB and more in an ELF file are cut to one byte
	// less.
	Size uint64
	// Guessed says that the file gives no size and that Size reaches to the next function or to the
	// end of the section. Where a file is stripped the true function may be much shorter.
	Guessed bool
}
