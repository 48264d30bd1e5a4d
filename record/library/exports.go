//go:build linux

package library

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// collectivesExport is the second name of ncclCommInitRank. It identifies NCCL under another file name, or linked
// into a library or the program. A wrapper of NCCL for LD_PRELOAD defines the first name only, and calls the second.
const collectivesExport = "pncclCommInitRank"

// shtGNUHash is the type of the section .gnu.hash.
const shtGNUHash = elf.SectionType(0x6ffffff6)

// maxHashChain bounds the symbols of a bucket that are read.
const maxHashChain = 1024

// exportsFunction reports whether an ELF file exports a function.
func exportsFunction(f *elffile.File, name string) bool {
	_, ok := findExport(f, name)
	return ok
}

// findExport returns the virtual address of an exported function or variable.
func findExport(f *elffile.File, name string) (vaddr uint64, ok bool) {
	symbol, ok := findSymbol(f, name)
	return symbol.Value, ok
}

// findSymbol returns an exported symbol. It reads the headers of the file and some words of its hash table, so that
// searching hundreds of libraries is cheap.
func findSymbol(f *elffile.File, name string) (symbol elf.Sym64, ok bool) {
	hash, symbols := f.SectionByType(shtGNUHash), f.SectionByType(elf.SHT_DYNSYM)
	if hash == nil || symbols == nil || int(symbols.Link) >= len(f.Sections) {
		return symbol, false
	}
	table := gnuHash{f: f, at: hash.Off}
	header, err := f.Read(hash.Off, 16, 16)
	if err != nil {
		return symbol, false
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(header[4*i:])) }
	table.buckets, table.first, table.bloom, table.shift = word(0), word(1), word(2), word(3)
	names := &f.Sections[symbols.Link]
	for _, i := range table.find(name) {
		const symbolBytes = 24
		raw, err := f.Read(symbols.Off+i*symbolBytes, symbolBytes, symbolBytes)
		if err != nil {
			return symbol, false
		}
		at := names.Off + uint64(binary.LittleEndian.Uint32(raw))
		if f.Text(at, names.Off+names.Size) == name {
			symbol.Value, symbol.Size = binary.LittleEndian.Uint64(raw[8:]), binary.LittleEndian.Uint64(raw[16:])
			return symbol, true
		}
	}
	return symbol, false
}

// gnuHash is a section .gnu.hash.
type gnuHash struct {
	f                            *elffile.File
	at                           uint64 // offset in the file
	buckets, first, bloom, shift uint64
}

// hashOf returns the hash of a name.
func hashOf(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

// find returns the numbers of the symbols that may have a name. Nearly all tables without it say so by one word.
func (g *gnuHash) find(name string) (list []uint64) {
	h := uint64(hashOf(name))
	if g.buckets == 0 || g.bloom == 0 || g.shift > 31 {
		return nil
	}
	const header, wordBits = 16, 64
	raw, err := g.f.Read(g.at+header+8*(h/wordBits%g.bloom), 8, 8)
	if err != nil {
		return nil
	}
	bits := binary.LittleEndian.Uint64(raw)
	if bits>>(h%wordBits)&1 == 0 || bits>>(h>>g.shift%wordBits)&1 == 0 {
		return nil
	}
	buckets := g.at + header + 8*g.bloom
	number, ok := g.word(buckets + 4*(h%g.buckets))
	if !ok || number < g.first {
		return nil
	}
	for range maxHashChain {
		value, ok := g.word(buckets + 4*g.buckets + 4*(number-g.first))
		if !ok {
			break
		}
		if value|1 == h|1 {
			list = append(list, number)
		}
		if value&1 != 0 { // the last of the bucket
			break
		}
		number++
	}
	return list
}

// word returns a word of 4 bytes at an offset of the file.
func (g *gnuHash) word(offset uint64) (uint64, bool) {
	raw, err := g.f.Read(offset, 4, 4)
	if err != nil {
		return 0, false
	}
	return uint64(binary.LittleEndian.Uint32(raw)), true
}

// maxOtherFiles bounds the files that are known not to contain NCCL. Then all are searched again.
const maxOtherFiles = 1 << 16

// otherFile identifies a mapped file that is known not to contain NCCL.
type otherFile struct {
	path  string
	inode uint64
}

// isOther reports whether a mapped file is known not to contain NCCL.
func (c *Cache) isOther(m *symbolize.Mapping) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.others[otherFile{m.Path, m.Inode}]
}

// addOther notes that a mapped file does not contain NCCL.
func (c *Cache) addOther(m *symbolize.Mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.others) >= maxOtherFiles {
		clear(c.others)
	}
	c.others[otherFile{m.Path, m.Inode}] = true
}

// hasCollectives reports whether a file with another name contains NCCL. Of the program itself, it reads all symbols,
// because a linked library is not exported.
func hasCollectives(file *os.File, isProgram bool) bool {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return false
	}
	f, err := elffile.New(file, st.Size)
	if err != nil {
		return false
	}
	if exportsFunction(f, collectivesExport) {
		return true
	}
	if !isProgram || f.SectionByType(elf.SHT_SYMTAB) == nil {
		return false
	}
	object, err := symbolize.NewObject(file, st.Size)
	if err != nil {
		return false
	}
	_, found := object.Find(collectivesExport)
	return found
}

// mayBeCollectives reports whether a mapped file may contain NCCL: it is a shared library, or the program.
func mayBeCollectives(path, program string) bool {
	return path == program || strings.Contains(path, ".so")
}
