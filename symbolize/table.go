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

// maxSymbols bounds the symbols of one section. For comparison: libLLVM 22 has 260,000.
const maxSymbols = 1 << 24

// table holds the functions of one symbol section, sorted by address, in 16 bytes each. Names
// remain in the file, and lookups read them. Names of a C++ library are ten times as large as the
// table, and lookups need few of them.
type table struct {
	file    *elffile.File
	symbols *elf.Section64
	names   *elf.Section64 // the string table
	entries []entry
}

// entry is one function. Entries with the same address are in order of preference, except for the
// name.
type entry struct {
	start uint64
	name  uint32 // offset in the string table
	size  uint32 // size in the low bits, then flagGuessed and flagLocal
}

// Bits of entry.size. A smaller value of both flags means a better name.
const (
	flagLocal   = 1 << 31
	flagGuessed = 1 << 30
	sizeMask    = 1<<29 - 1
)

// length returns the size of the function in bytes.
func (e *entry) length() uint64 { return uint64(e.size & sizeMask) }

// flags returns the flags of the function.
func (e *entry) flags() uint32 { return e.size & (flagLocal | flagGuessed) }

// compareEntries orders functions by address. At one address, global functions precede local ones,
// functions with a size precede those without, and long ones precede short ones. Weak functions
// count as global: in libc the usual names ("write") are weak, and the internal names ("__write")
// are global.
func compareEntries(a, b entry) int {
	return cmp.Or(compareExtents(a, b), cmp.Compare(a.name, b.name))
}

// compareExtents compares like compareEntries, but ignores names.
func compareExtents(a, b entry) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.flags(), b.flags()), cmp.Compare(b.length(), a.length()))
}

// readTable reads the functions of the symbol section of type typ that known does not have yet. It
// returns nil, and no error, if the file has no such section. It compares functions by address and
// size, because .dynsym repeats functions of .symtab with other symbol versions in the name.
func readTable(f *elffile.File, typ elf.SectionType, known tables) (*table, error) {
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
	t := &table{file: f, symbols: section, names: &f.Sections[section.Link]}
	if t.count() > maxSymbols {
		return nil, fmt.Errorf("%d symbols are more than %d", t.count(), maxSymbols)
	}
	for _, s := range []*elf.Section64{t.symbols, t.names} {
		if !f.Has(s.Off, s.Size) {
			return nil, errors.New("symbols or their names reach past the end of the file")
		}
	}
	// Counting first reads the section twice, but avoids the garbage of a growing slice.
	found := 0
	err := t.eachFunction(func(_ uint64, e entry) {
		if !known.contains(e) {
			found++
		}
	})
	if err != nil {
		return nil, err
	}
	t.entries = make([]entry, 0, found)
	err = t.eachFunction(func(_ uint64, e entry) {
		if !known.contains(e) {
			t.entries = append(t.entries, e)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.entries, compareEntries)
	return t, nil
}

// count returns the number of symbols of all types.
func (t *table) count() uint64 { return t.symbols.Size / elf.Sym64Size }

// eachFunction reads the symbols in pieces and calls use for each function that the file defines,
// with its symbol number.
func (t *table) eachFunction(use func(number uint64, e entry)) error {
	const piece = 4096
	raw := make([]byte, min(t.count(), piece)*elf.Sym64Size)
	for done := uint64(0); done < t.count(); done += piece {
		n := min(t.count()-done, piece)
		if err := t.file.ReadInto(raw[:n*elf.Sym64Size], t.symbols.Off+done*elf.Sym64Size); err != nil {
			return err
		}
		for i := range n {
			if e, ok := t.decode(raw[i*elf.Sym64Size:]); ok {
				use(done+i, e)
			}
		}
	}
	return nil
}

// function reads the symbol with a number from the file.
func (t *table) function(number uint64) (entry, bool) {
	raw := make([]byte, elf.Sym64Size)
	if err := t.file.ReadInto(raw, t.symbols.Off+number*elf.Sym64Size); err != nil {
		return entry{}, false
	}
	return t.decode(raw)
}

// decode decodes a symbol. It returns false unless the symbol is a function that the file defines,
// with a name and a size.
func (t *table) decode(raw []byte) (entry, bool) {
	name := binary.LittleEndian.Uint32(raw)
	info := raw[4]
	index := elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:]))
	start := binary.LittleEndian.Uint64(raw[8:])
	size := binary.LittleEndian.Uint64(raw[16:])
	if typ := elf.ST_TYPE(info); typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC {
		return entry{}, false
	}
	// Symbols with other reserved indexes (absolute, common) have no position in the file.
	if index == elf.SHN_UNDEF || (index >= elf.SHN_LORESERVE && index != elf.SHN_XINDEX) {
		return entry{}, false
	}
	if name == 0 || uint64(name) >= t.names.Size {
		return entry{}, false
	}
	flags := uint32(0)
	if elf.ST_BIND(info) == elf.STB_LOCAL {
		flags |= flagLocal
	}
	if size == 0 {
		flags |= flagGuessed
		if end := t.file.CodeEnd(index, start); end > start {
			size = end - start
		} else {
			return entry{}, false
		}
	}
	return entry{start, name, uint32(min(size, sizeMask)) | flags}, true
}

// name reads the name of an entry. It returns "" if the file can no longer be read.
func (t *table) name(e *entry) string {
	return t.file.Text(t.names.Off+uint64(e.name), t.names.Off+t.names.Size)
}

// firstAfter returns the index of the first entry that starts after vaddr.
func (t *table) firstAfter(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start > vaddr })
}

// firstAt returns the index of the first entry that starts at or after vaddr.
func (t *table) firstAt(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start >= vaddr })
}

// covering returns the start of the innermost entry that contains vaddr. nearest is the start of
// the closest function at or before vaddr in all tables.
func (t *table) covering(vaddr, nearest uint64) (start uint64, ok bool) {
	// Functions within functions (labels in assembly) are few. The limit bounds the time for
	// hostile files and for addresses after thousands of small functions.
	const maxWalk = 256
	next := t.firstAfter(vaddr)
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		e := &t.entries[i]
		if vaddr-e.start >= e.length() {
			continue
		}
		if e.size&flagGuessed != 0 && e.start != nearest {
			continue // a guessed extent ends at the next function
		}
		return e.start, true
	}
	return 0, false
}

// tables are all symbol tables of an object. A function is in one of them, unless its names differ
// in binding.
type tables []*table

// contains reports whether a table has a function with the same address, size and flags.
func (ts tables) contains(e entry) bool {
	for _, t := range ts {
		if _, ok := slices.BinarySearchFunc(t.entries, e, compareExtents); ok {
			return true
		}
	}
	return false
}

// lookup returns the best function at vaddr: the innermost one and, of several names, the preferred
// name.
func (ts tables) lookup(vaddr uint64) (Symbol, bool) {
	var nearest, start uint64
	for _, t := range ts {
		if i := t.firstAfter(vaddr); i > 0 {
			nearest = max(nearest, t.entries[i-1].start)
		}
	}
	found := false
	for _, t := range ts {
		if s, ok := t.covering(vaddr, nearest); ok && (!found || s > start) {
			start, found = s, true
		}
	}
	if !found {
		return Symbol{}, false
	}
	for _, s := range ts.named(start, func(e *entry) bool { return vaddr-start < e.length() }) {
		return s, true
	}
	return Symbol{}, false
}

// named returns the functions with a start address for which match is true, in order of preference.
// It reads at most maxAliases entries of each table, because a linker can fold thousands of
// identical functions into one.
func (ts tables) named(start uint64, match func(*entry) bool) []Symbol {
	const maxAliases = 64
	type alias struct {
		flags uint32
		Symbol
	}
	var found []alias
	end := ts.next(start)
	for _, t := range ts {
		first := t.firstAt(start)
		for i := first; i < len(t.entries) && i < first+maxAliases && t.entries[i].start == start; i++ {
			e := &t.entries[i]
			if !match(e) {
				continue
			}
			if name := t.name(e); name != "" {
				found = append(found, alias{e.flags(), symbol(e, name, end)})
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

// next returns the start of the first function after start, or the largest address.
func (ts tables) next(start uint64) uint64 {
	next := ^uint64(0)
	for _, t := range ts {
		if i := t.firstAfter(start); i < len(t.entries) {
			next = min(next, t.entries[i].start)
		}
	}
	return next
}

// symbol converts an entry to a Symbol. next is the start of the following function.
func symbol(e *entry, name string, next uint64) Symbol {
	s := Symbol{Name: name, Start: e.start, Size: e.length(), Guessed: e.size&flagGuessed != 0}
	if s.Guessed {
		s.Size = min(s.Size, next-e.start)
	}
	return s
}

// all yields the functions in the order of addresses, then of preference.
func (ts tables) all() iter.Seq[Symbol] {
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
			for _, s := range ts.named(start, func(*entry) bool { return true }) {
				if !yield(s) {
					return
				}
			}
			for k, t := range ts {
				at[k] = t.firstAfter(start)
			}
		}
	}
}
