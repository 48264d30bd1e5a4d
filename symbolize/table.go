package symbolize

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sort"
)

// table holds functions sorted by address in 16 bytes each, plus the bytes of their names: a million Go strings with their
// headers would cost as much again, and the garbage collector would walk them.
type table struct {
	entries []entry
	names   []byte // one after the other in the order of entries, without separators
}

// entry is one function. Functions at one address stand in order of preference, see compareEntries.
type entry struct {
	start uint64
	name  uint32 // offset in names; the name ends where the next begins
	size  uint32 // size in the low bits, then the two flags
}

// Flags are ordered so that a smaller masked value is the better name.
const (
	flagLocal   = 1 << 31
	flagGuessed = 1 << 30
	sizeMask    = 1<<29 - 1
)

func (t *table) len() int {
	if t == nil {
		return 0
	}
	return len(t.entries)
}

func (t *table) name(i int) []byte {
	end := uint64(len(t.names))
	if i+1 < len(t.entries) {
		end = uint64(t.entries[i+1].name)
	}
	return t.names[t.entries[i].name:end]
}

// candidate is an entry while a table is built: its name still lies in the string table of the file.
type candidate struct {
	start               uint64
	size, name, nameLen uint32
}

// compareEntries orders functions by address; at one address global before local, with a size before without, then by the
// shortest and the first name in the alphabet. So the same file always gives the same name. Weak counts as global: libc
// calls the names that people know weak ("write") and its own ones global ("__write").
func compareEntries(startA uint64, sizeA uint32, nameA []byte, startB uint64, sizeB uint32, nameB []byte) int {
	const flags = flagLocal | flagGuessed
	if c := cmp.Compare(startA, startB); c != 0 {
		return c
	}
	if c := cmp.Compare(sizeA&flags, sizeB&flags); c != 0 {
		return c
	}
	if c := cmp.Compare(len(nameA), len(nameB)); c != 0 {
		return c
	}
	return bytes.Compare(nameA, nameB)
}

// readTable reads the functions of the symbol section of type t; nil without an error if the file has no such section.
func (f *elfFile) readTable(t elf.SectionType) (*table, error) {
	section := f.sectionByType(t)
	if section == nil {
		return nil, nil
	}
	if section.Entsize != elf.Sym64Size {
		return nil, fmt.Errorf("symbols of %d bytes, not %d", section.Entsize, elf.Sym64Size)
	}
	if uint64(section.Link) >= uint64(len(f.sections)) ||
		elf.SectionType(f.sections[section.Link].Type) != elf.SHT_STRTAB {
		return nil, errors.New("symbols without a string table")
	}
	link := &f.sections[section.Link]
	names, err := f.read(link.Off, link.Size, maxStringTable)
	if err != nil {
		return nil, fmt.Errorf("read string table: %w", err)
	}
	found, err := f.readCandidates(section, names)
	if err != nil {
		return nil, err
	}
	return newTable(found, names), nil
}

// readCandidates reads the defined functions among the symbols of section, piece by piece.
func (f *elfFile) readCandidates(section *elf.Section64, names []byte) ([]candidate, error) {
	count := section.Size / elf.Sym64Size
	if count > maxSymbols {
		return nil, fmt.Errorf("%d symbols are more than %d", count, maxSymbols)
	}
	if section.Off > f.size || count*elf.Sym64Size > f.size-section.Off {
		return nil, errors.New("symbols reach past the end of the file")
	}
	// Linkers let names share bytes only where one ends like another. A file whose names overlap more than that is made
	// to blow up whoever copies them. The constant term allows for a small name shared by many static functions.
	budget := min(4*uint64(len(names))+64<<20, 2<<30)
	var found []candidate
	raw := make([]byte, min(count, 4096)*elf.Sym64Size)
	for done := uint64(0); done < count; {
		n := min(count-done, 4096)
		piece := raw[:n*elf.Sym64Size]
		if err := f.readInto(piece, section.Off+done*elf.Sym64Size); err != nil {
			return nil, err
		}
		done += n
		for ; len(piece) > 0; piece = piece[elf.Sym64Size:] {
			c, ok := f.candidate(piece, names)
			if !ok {
				continue
			}
			if uint64(c.nameLen) > budget {
				return nil, errors.New("symbol names overlap more than any linker makes them")
			}
			budget -= uint64(c.nameLen)
			found = append(found, c)
		}
	}
	return found, nil
}

// candidate decodes one symbol and says whether it is a function that this file defines, with a name and an extent.
func (f *elfFile) candidate(raw, names []byte) (candidate, bool) {
	name := binary.LittleEndian.Uint32(raw)
	info := raw[4]
	index := elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:]))
	start := binary.LittleEndian.Uint64(raw[8:])
	size := binary.LittleEndian.Uint64(raw[16:])
	if t := elf.ST_TYPE(info); t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC {
		return candidate{}, false
	}
	// Reserved indexes but this one are symbols without a place in the file (absolute, common).
	if index == elf.SHN_UNDEF || (index >= elf.SHN_LORESERVE && index != elf.SHN_XINDEX) {
		return candidate{}, false
	}
	if uint64(name) >= uint64(len(names)) {
		return candidate{}, false
	}
	length := bytes.IndexByte(names[name:], 0)
	if length <= 0 {
		return candidate{}, false
	}
	flags := uint32(0)
	if elf.ST_BIND(info) == elf.STB_LOCAL {
		flags |= flagLocal
	}
	if size == 0 {
		flags |= flagGuessed
		if end := f.executableEnd(index, start); end > start {
			size = end - start
		} else {
			return candidate{}, false
		}
	}
	return candidate{start, uint32(min(size, sizeMask)) | flags, name, uint32(length)}, true
}

func newTable(found []candidate, names []byte) *table {
	nameOf := func(c *candidate) []byte { return names[c.name : c.name+c.nameLen] }
	slices.SortFunc(found, func(a, b candidate) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return compareEntries(a.start, a.size, nameOf(&a), b.start, b.size, nameOf(&b))
	})
	total := uint64(0)
	for i := range found {
		total += uint64(found[i].nameLen)
	}
	t := &table{entries: make([]entry, 0, len(found)), names: make([]byte, 0, total)}
	for i := range found {
		t.append(found[i].start, found[i].size, nameOf(&found[i]))
	}
	return t
}

// append adds an entry behind all others, unless the one before has the same address and name.
func (t *table) append(start uint64, size uint32, name []byte) {
	if n := len(t.entries); n > 0 && t.entries[n-1].start == start && bytes.Equal(t.name(n-1), name) {
		return
	}
	t.entries = append(t.entries, entry{start, uint32(len(t.names)), size})
	t.names = append(t.names, name...)
}

// mergeTables returns the functions of both in one table; a and b, which may be nil, stay as they are.
func mergeTables(a, b *table) (*table, error) {
	if b.len() == 0 {
		return a, nil
	}
	if a.len() == 0 {
		return b, nil
	}
	if uint64(len(a.names))+uint64(len(b.names)) > math.MaxUint32 {
		return nil, errors.New("names of more than 4 GiB")
	}
	t := &table{
		entries: make([]entry, 0, a.len()+b.len()),
		names:   make([]byte, 0, len(a.names)+len(b.names)),
	}
	for i, j := 0, 0; i < a.len() || j < b.len(); {
		fromA := j == b.len()
		if i < a.len() && j < b.len() {
			x, y := &a.entries[i], &b.entries[j]
			fromA = compareEntries(x.start, x.size, a.name(i), y.start, y.size, b.name(j)) <= 0
		}
		if fromA {
			t.append(a.entries[i].start, a.entries[i].size, a.name(i))
			i++
		} else {
			t.append(b.entries[j].start, b.entries[j].size, b.name(j))
			j++
		}
	}
	// What the two had in common was reserved twice.
	t.entries, t.names = slices.Clip(t.entries), slices.Clip(t.names)
	return t, nil
}

// after returns the index of the first entry that starts behind vaddr.
func (t *table) after(vaddr uint64) int {
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].start > vaddr })
}

// symbol makes the public form of entry i. The name is a copy: a caller who keeps it does not keep the table.
func (t *table) symbol(i int) Symbol {
	e := &t.entries[i]
	s := Symbol{Name: string(t.name(i)), Start: e.start, Size: uint64(e.size & sizeMask), Guessed: e.size&flagGuessed != 0}
	if s.Guessed {
		if next := t.after(e.start); next < len(t.entries) {
			s.Size = min(s.Size, t.entries[next].start-e.start)
		}
	}
	return s
}

// lookup returns the best entry around vaddr: of those that cover it the ones that start last, of these the preferred one.
func (t *table) lookup(vaddr uint64) (int, bool) {
	// Functions inside functions (labels in assembly) are few and shallow; the bound keeps a crafted file, or an address
	// behind the last of a thousand small functions, from costing a walk over all.
	const maxWalk = 256
	next := t.after(vaddr)
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		e := &t.entries[i]
		if vaddr-e.start >= uint64(e.size&sizeMask) {
			continue
		}
		if e.size&flagGuessed != 0 && e.start != t.entries[next-1].start {
			continue // a guessed extent ends at the next function
		}
		return t.preferred(i, vaddr), true
	}
	return 0, false
}

// preferred returns the first entry at the start address of entry i that covers vaddr. Identical functions folded by the
// linker stand there in thousands, so it looks at the first few only.
func (t *table) preferred(i int, vaddr uint64) int {
	const maxAliases = 16
	start := t.entries[i].start
	first := sort.Search(i, func(k int) bool { return t.entries[k].start >= start })
	for k := first; k < i && k < first+maxAliases; k++ {
		if vaddr-start < uint64(t.entries[k].size&sizeMask) {
			return k
		}
	}
	return i
}

// nameIndex finds entries by name: a hash table of entry indexes plus one, 8 to 16 bytes per function.
type nameIndex struct {
	seed  maphash.Seed
	slots []uint32
}

func newNameIndex(t *table) *nameIndex {
	size := 8
	for size < 2*t.len() {
		size *= 2
	}
	x := &nameIndex{seed: maphash.MakeSeed(), slots: make([]uint32, size)}
	for i := range t.entries {
		slot := x.slot(t, t.name(i))
		// Of functions with one name a global one wins, then the one at the lowest address.
		if old := *slot; old == 0 || t.entries[old-1].size&flagLocal > t.entries[i].size&flagLocal {
			*slot = uint32(i + 1)
		}
	}
	return x
}

// slot returns the slot of name: the one that holds it or the free one where it belongs.
func (x *nameIndex) slot(t *table, name []byte) *uint32 {
	mask := uint64(len(x.slots) - 1)
	for h := maphash.Bytes(x.seed, name) & mask; ; h = (h + 1) & mask {
		if s := &x.slots[h]; *s == 0 || bytes.Equal(t.name(int(*s-1)), name) {
			return s
		}
	}
}
