// Package dwarf finds functions, inlined calls and source lines in DWARF 2 to 5 that may be
// hostile.
//
// It uses the constants of debug/dwarf, but not its reader: that reader needs all sections in
// memory, decodes all abbreviations before the first lookup, and allocates what a crafted header
// claims. This package reads the units that a lookup needs, and each lookup has a budget of work.
// It does not read the parts that -gsplit-dwarf and dwz keep in other files.
package dwarf
