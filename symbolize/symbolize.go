// Package symbolize turns addresses and names into what a person can read: an address in an ELF file into a function or a source line, an
// address in code made at run time into the name its JIT wrote down, a mangled name into a C++ or Rust one, and an address
// of a process into the file mapped there.
//
// It works offline from files and readers: it attaches to nothing, needs no root, and builds on every system. Only a
// Debuginfod, which nobody but its caller makes, uses the network. An Object knows functions; a Source knows from debug
// information which lines and inlined calls code comes from; a Finder finds the files for both.
//
// Every input is taken as hostile, because a recorder that runs as root reads files that other users wrote: each function
// returns an error or a value within bounded memory and never panics. Names are given as they were written; they may hold
// any byte, so whoever prints them to a terminal must escape control characters.
package symbolize

// Symbol is one function of an ELF file or of a perf map.
type Symbol struct {
	// Name is as in the file: mangled, and in some files with a version behind an "@".
	Name string
	// Start is the first address: an ELF virtual address for an Object, a process address for a PerfMap.
	Start uint64
	// Size is in bytes and never 0. Sizes of 512 MiB and more in an ELF file are cut to one byte less.
	Size uint64
	// Guessed says that the file gives no size and that Size reaches to the next function or to the end of the section.
	// Where a file is stripped the true function may be much shorter.
	Guessed bool
}
