// Package elffile reads the headers, sections and build id of ELF files that may be hostile.
//
// It uses the constants and header structs of debug/elf, but not elf.File. elf.File copies a string
// for each section and each symbol, so a hostile file of 1 MB can make it allocate gigabytes. This
// package allocates only memory for data in the file, within fixed limits. It returns an error for
// everything else.
package elffile
