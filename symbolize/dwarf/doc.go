// Package dwarf finds functions, inlined calls and source lines in DWARF 2 to 5 that may be
// hostile.
//
// It uses the constants of debug/dwarf, but not its reader. That reader needs all sections in
// memory, decodes all abbreviations before the first lookup, and allocates the sizes in hostile
// headers. This package reads only the units that a lookup needs. Each lookup has a work budget.
// The package does not read the separate files of -gsplit-dwarf and dwz.
package dwarf
