package symbolize

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// maxSymbolsPerSection bounds the symbols of one section: reading them takes 34 bytes each. For
// comparison: libLLVM 22 has 260,000.
const maxSymbolsPerSection = 1 << 23

// symbolTable holds the functions of one symbol section, sorted by address, in 16 bytes each. Names
// remain in the file, and lookups read them. Names of a C++ library are ten times as large as the
// table, and lookups need few of them.
type symbolTable struct {
	file    *elffile.File
	symbols *elf.Section64
	names   *elf.Section64 // the string table
	entries []symbolEntry
}

// symbolEntry is one function. Entries with the same address are in order of preference, except for
// the name.
type symbolEntry struct {
	start uint64
	name  uint32 // offset in the string table
	size  uint32 // size in the low bits, then symbolFlagGuessedSize and symbolFlagLocal
}

// Bits of entry.size. A smaller value of both flags means a better name.
const (
	symbolFlagLocal       = 1 << 31
	symbolFlagGuessedSize = 1 << 30
	symbolSizeMask        = 1<<29 - 1
)

// sizeBytes returns the size of the function in bytes.
func (e *symbolEntry) sizeBytes() uint64 { return uint64(e.size & symbolSizeMask) }

// symbolFlags returns the flags of the function.
func (e *symbolEntry) symbolFlags() uint32 { return e.size & (symbolFlagLocal | symbolFlagGuessedSize) }

// compareSymbolEntries orders functions by address. At one address, global functions precede local
// ones, functions with a size precede those without, and long ones precede short ones. Weak
// functions count as global: in libc the usual names ("write") are weak, and the internal names
// ("__write") are global.
func compareSymbolEntries(a, b symbolEntry) int {
	return cmp.Or(compareSymbolExtents(a, b), cmp.Compare(a.name, b.name))
}

// compareSymbolExtents compares like compareSymbolEntries, but ignores names.
func compareSymbolExtents(a, b symbolEntry) int {
	return cmp.Or(
		cmp.Compare(a.start, b.start),
		cmp.Compare(a.symbolFlags(), b.symbolFlags()),
		cmp.Compare(b.sizeBytes(), a.sizeBytes()),
	)
}

// readSymbolTable reads the functions of the symbol section of type typ that known does not have
// yet. It returns nil, and no error, if the file has no such section. It compares functions by
// address and size, because .dynsym repeats functions of .symtab with other symbol versions in the
// name.
func readSymbolTable(f *elffile.File, typ elf.SectionType, known symbolTables) (*symbolTable, error) {
	section := f.SectionByType(typ)
	if section == nil {
		return nil, nil
	}
	if section.Entsize != elf.Sym64Size {
		return nil, fmt.Errorf("symbols of %d bytes, not %d", section.Entsize, elf.Sym64Size)
	}
	if uint64(section.Link) >= uint64(len(f.Sections)) ||
		elf.SectionType(f.Sections[section.Link].Type) != elf.SHT_STRTAB {
		return nil, errors.New("symbols without a string table")
	}
	t := &symbolTable{file: f, symbols: section, names: &f.Sections[section.Link]}
	if t.symbolCount() > maxSymbolsPerSection {
		return nil, fmt.Errorf("%d symbols are more than %d", t.symbolCount(), maxSymbolsPerSection)
	}
	for _, s := range []*elf.Section64{t.symbols, t.names} {
		if !f.Has(s.Off, s.Size) {
			return nil, errors.New("symbols or their names reach past the end of the file")
		}
	}
	var found entryCollector
	if err := t.eachFunction(func(_ uint64, e symbolEntry) { found.add(e) }); err != nil {
		return nil, err
	}
	t.entries = known.deleteKnown(found.sorted())
	return t, nil
}

// symbolCount returns the number of symbols of all types.
func (t *symbolTable) symbolCount() uint64 { return t.symbols.Size / elf.Sym64Size }

// eachFunction reads the symbols in pieces and calls use for each function that the file defines,
// with its symbol number.
func (t *symbolTable) eachFunction(use func(number uint64, e symbolEntry)) error {
	const piece = 4096
	raw := make([]byte, min(t.symbolCount(), piece)*elf.Sym64Size)
	for done := uint64(0); done < t.symbolCount(); done += piece {
		n := min(t.symbolCount()-done, piece)
		if err := t.file.ReadInto(raw[:n*elf.Sym64Size], t.symbols.Off+done*elf.Sym64Size); err != nil {
			return err
		}
		for i := range n {
			if e, ok := t.decodeFunction(raw[i*elf.Sym64Size:]); ok {
				use(done+i, e)
			}
		}
	}
	return nil
}

// readFunction reads the symbol with a number from the file.
func (t *symbolTable) readFunction(number uint64) (symbolEntry, bool) {
	raw := make([]byte, elf.Sym64Size)
	if err := t.file.ReadInto(raw, t.symbols.Off+number*elf.Sym64Size); err != nil {
		return symbolEntry{}, false
	}
	return t.decodeFunction(raw)
}

// decodeFunction decodes a symbol. It returns false unless the symbol is a function that the file
// defines, with a name and a size.
func (t *symbolTable) decodeFunction(raw []byte) (symbolEntry, bool) {
	name := binary.LittleEndian.Uint32(raw)
	info := raw[4]
	index := elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:]))
	start := binary.LittleEndian.Uint64(raw[8:])
	size := binary.LittleEndian.Uint64(raw[16:])
	if typ := elf.ST_TYPE(info); typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC {
		return symbolEntry{}, false
	}
	// Symbols with other reserved indexes (absolute, common) have no position in the file.
	if index == elf.SHN_UNDEF || (index >= elf.SHN_LORESERVE && index != elf.SHN_XINDEX) {
		return symbolEntry{}, false
	}
	if name == 0 || uint64(name) >= t.names.Size {
		return symbolEntry{}, false
	}
	flags := uint32(0)
	if elf.ST_BIND(info) == elf.STB_LOCAL {
		flags |= symbolFlagLocal
	}
	if size == 0 {
		flags |= symbolFlagGuessedSize
		if end := t.file.CodeEnd(index, start); end > start {
			size = end - start
		} else {
			return symbolEntry{}, false
		}
	}
	return symbolEntry{start, name, uint32(min(size, symbolSizeMask)) | flags}, true
}

// readName reads the name of an entry. It returns "" if the file can no longer be read.
func (t *symbolTable) readName(e *symbolEntry) string {
	return t.file.Text(t.names.Off+uint64(e.name), t.names.Off+t.names.Size)
}

// firstEntryAfter returns the index of the first entry that starts after vaddr.
func (t *symbolTable) firstEntryAfter(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start > vaddr })
}

// firstEntryFrom returns the index of the first entry that starts at or after vaddr.
func (t *symbolTable) firstEntryFrom(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start >= vaddr })
}

// innermostStart returns the start of the innermost entry that contains vaddr. nearest is the start
// of the closest function at or before vaddr in all tables.
func (t *symbolTable) innermostStart(vaddr, nearest uint64) (start uint64, ok bool) {
	// Functions within functions (labels in assembly) are few. The limit bounds the time for
	// hostile files and for addresses after thousands of small functions.
	const maxWalk = 256
	next := t.firstEntryAfter(vaddr)
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		e := &t.entries[i]
		if vaddr-e.start >= e.sizeBytes() {
			continue
		}
		if e.size&symbolFlagGuessedSize != 0 && e.start != nearest {
			continue // a guessed extent ends at the next function
		}
		return e.start, true
	}
	return 0, false
}

// symbolTables are all symbol tables of an object. A function is in one of them, unless its names
// differ in binding.
type symbolTables []*symbolTable

// lookupAddress returns the best function at vaddr: the innermost one and, of several names, the
// preferred name.
func (ts symbolTables) lookupAddress(vaddr uint64) (Symbol, bool) {
	var nearest, start uint64
	for _, t := range ts {
		if i := t.firstEntryAfter(vaddr); i > 0 {
			nearest = max(nearest, t.entries[i-1].start)
		}
	}
	found := false
	for _, t := range ts {
		if s, ok := t.innermostStart(vaddr, nearest); ok && (!found || s > start) {
			start, found = s, true
		}
	}
	if !found {
		return Symbol{}, false
	}
	for _, s := range ts.functionsAt(start, func(e *symbolEntry) bool { return vaddr-start < e.sizeBytes() }) {
		return s, true
	}
	return Symbol{}, false
}

// functionsAt returns the functions with a start address for which match is true, in order of
// preference. It reads at most maxAliases entries of each table, because a linker can fold
// thousands of identical functions into one.
func (ts symbolTables) functionsAt(start uint64, match func(*symbolEntry) bool) []Symbol {
	const maxAliases = 64
	type alias struct {
		flags uint32
		Symbol
	}
	var found []alias
	end := ts.nextFunctionStart(start)
	for _, t := range ts {
		first := t.firstEntryFrom(start)
		for i := first; i < len(t.entries) && i < first+maxAliases && t.entries[i].start == start; i++ {
			e := &t.entries[i]
			if !match(e) {
				continue
			}
			if name := t.readName(e); name != "" {
				found = append(found, alias{e.symbolFlags(), newSymbol(e, name, end)})
			}
		}
	}
	slices.SortFunc(found, func(a, b alias) int {
		return cmp.Or(cmp.Compare(a.flags, b.flags), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	var list []Symbol
	for _, a := range found {
		list = append(list, a.Symbol)
	}
	return list
}

// nextFunctionStart returns the start of the first function after start, or the largest address.
func (ts symbolTables) nextFunctionStart(start uint64) uint64 {
	next := ^uint64(0)
	for _, t := range ts {
		if i := t.firstEntryAfter(start); i < len(t.entries) {
			next = min(next, t.entries[i].start)
		}
	}
	return next
}

// newSymbol converts an entry to a Symbol. next is the start of the following function.
func newSymbol(e *symbolEntry, name string, next uint64) Symbol {
	s := Symbol{Name: name, Start: e.start, Size: e.sizeBytes(), Guessed: e.size&symbolFlagGuessedSize != 0}
	if s.Guessed {
		s.Size = min(s.Size, next-e.start)
	}
	return s
}

// allFunctions yields the functions in the order of addresses, then of preference.
func (ts symbolTables) allFunctions() iter.Seq[Symbol] {
	return func(yield func(Symbol) bool) {
		at := make([]int, len(ts))
		for {
			start, left := ^uint64(0), false
			for k, t := range ts {
				if at[k] < len(t.entries) {
					start, left = min(start, t.entries[at[k]].start), true
				}
			}
			if !left {
				return
			}
			for _, s := range ts.functionsAt(start, func(*symbolEntry) bool { return true }) {
				if !yield(s) {
					return
				}
			}
			for k, t := range ts {
				at[k] = t.firstEntryAfter(start)
			}
		}
	}
}
