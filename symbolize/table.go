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

// maxSymbols bounds the symbols of one section. libLLVM 22 has 260 thousand.
const maxSymbols = 1 << 24

// table is the functions of one symbol section, sorted by address, in 16 bytes each. Names stay in
// the file and are read when someone asks for one: those of a C++ library are ten times as long as
// what is kept here, and hardly any is ever asked for.
type table struct {
	file    *elffile.File
	symbols *elf.Section64
	names   *elf.Section64 // the string table
	entries []entry
}

// entry is one function. Functions at one address stand in order of preference as far as that needs
// no name.
type entry struct {
	start uint64
	name  uint32 // offset in the string table
	size  uint32 // size in the low bits, then the two flags
}

// Flags are ordered so that a smaller masked value is the better name.
const (
	flagLocal   = 1 << 31
	flagGuessed = 1 << 30
	sizeMask    = 1<<29 - 1
)

func (e *entry) length() uint64 { return uint64(e.size & sizeMask) }

func (e *entry) flags() uint32 { return e.size & (flagLocal | flagGuessed) }

// compareEntries orders functions by address; at one address global before local, with a size
// before without, long before short, since the long ones cover more. Weak counts as global: libc
// calls the names that people know weak ("write") and its own ones global ("__write").
func compareEntries(a, b entry) int {
	return cmp.Or(compareExtents(a, b), cmp.Compare(a.name, b.name))
}

// compareExtents is compareEntries but for the names.
func compareExtents(a, b entry) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.flags(), b.flags()), cmp.Compare(b.length(), a.length()))
}

// readTable reads the functions of the symbol section of type t that are not in the known tables
// yet; nil without an error if the file has no such section. What counts is the extent: .dynsym
// repeats functions of .symtab, now and then with a version behind the name or without.
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
	// Counting first costs a second reading and saves the garbage of a slice that grows.
	found := 0
	err := t.eachFunction(func(_ uint64, e entry) {
		if !known.have(e) {
			found++
		}
	})
	if err != nil {
		return nil, err
	}
	t.entries = make([]entry, 0, found)
	err = t.eachFunction(func(_ uint64, e entry) {
		if !known.have(e) {
			t.entries = append(t.entries, e)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.entries, compareEntries)
	return t, nil
}

// count returns the number of symbols, functions or not.
func (t *table) count() uint64 { return t.symbols.Size / elf.Sym64Size }

// eachFunction reads the symbols piece by piece and calls use for every function that this file
// defines, with the number of its symbol.
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

// function reads the symbol of that number once more.
func (t *table) function(number uint64) (entry, bool) {
	raw := make([]byte, elf.Sym64Size)
	if err := t.file.ReadInto(raw, t.symbols.Off+number*elf.Sym64Size); err != nil {
		return entry{}, false
	}
	return t.decode(raw)
}

// decode says whether a symbol is a function that this file defines, with a name and an extent.
func (t *table) decode(raw []byte) (entry, bool) {
	name := binary.LittleEndian.Uint32(raw)
	info := raw[4]
	index := elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:]))
	start := binary.LittleEndian.Uint64(raw[8:])
	size := binary.LittleEndian.Uint64(raw[16:])
	if typ := elf.ST_TYPE(info); typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC {
		return entry{}, false
	}
	// Reserved indexes but this one are symbols without a place in the file (absolute, common).
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

// name reads the name of an entry; "" where it is empty or the file can no longer be read.
func (t *table) name(e *entry) string {
	return t.file.Text(t.names.Off+uint64(e.name), t.names.Off+t.names.Size)
}

// after returns the index of the first entry that starts behind vaddr.
func (t *table) after(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start > vaddr })
}

// from returns the index of the first entry that starts at or behind vaddr.
func (t *table) from(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start >= vaddr })
}

// covering returns the start of the entry around vaddr that starts last. nearest is the last start
// of any function before.
func (t *table) covering(vaddr, nearest uint64) (start uint64, ok bool) {
	// Functions inside functions (labels in assembly) are few and shallow; the bound keeps a
	// crafted file, or an address behind the last of a thousand small functions, from costing a
	// walk over all.
	const maxWalk = 256
	next := t.after(vaddr)
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

// tables are all symbol tables of an object. A function stands in one of them only, unless its
// names differ in kind.
type tables []*table

// have reports whether a table has a function of the same extent and kind.
func (ts tables) have(e entry) bool {
	for _, t := range ts {
		if _, ok := slices.BinarySearchFunc(t.entries, e, compareExtents); ok {
			return true
		}
	}
	return false
}

// lookup returns the best function around vaddr: of those that cover it the ones that start last,
// of these the preferred one.
func (ts tables) lookup(vaddr uint64) (Symbol, bool) {
	var nearest, start uint64
	for _, t := range ts {
		if i := t.after(vaddr); i > 0 {
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

// named returns the functions at a start address that match, in order of preference. Identical
// functions folded by the linker stand there in thousands, so of each table it looks at the first
// few only.
func (ts tables) named(start uint64, match func(*entry) bool) []Symbol {
	const maxAliases = 64
	type alias struct {
		flags uint32
		Symbol
	}
	var found []alias
	end := ts.next(start)
	for _, t := range ts {
		first := t.from(start)
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

// next returns the first start of a function behind start.
func (ts tables) next(start uint64) uint64 {
	next := ^uint64(0)
	for _, t := range ts {
		if i := t.after(start); i < len(t.entries) {
			next = min(next, t.entries[i].start)
		}
	}
	return next
}

// symbol makes the public form of an entry; next is where the next function starts.
func symbol(e *entry, name string, next uint64) Symbol {
	s := Symbol{Name: name, Start: e.start, Size: e.length(), Guessed: e.size&flagGuessed != 0}
	if s.Guessed {
		s.Size = min(s.Size, next-e.start)
	}
	return s
}

// all yields every function in the order of addresses, then of preference.
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
				at[k] = t.after(start)
			}
		}
	}
}
