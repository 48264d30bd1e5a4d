package symbolize

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
)

// ErrBuildID is what Object.AddDebug returns, wrapped, for a debug file that does not belong to the object.
var ErrBuildID = errors.New("build ids differ")

// Object is the functions of one ELF file (64-bit, little-endian, an executable or a shared library). Everything is read
// when it is opened: it holds no file open, and costs 16 bytes plus the name per function, and 8 to 16 bytes more once Find
// is used. All methods but AddDebug may be called from several goroutines at once.
type Object struct {
	buildID string
	loads   []elf.Prog64 // executable segments
	table   *table       // never nil
	skipped []error

	indexOnce *sync.Once
	index     *nameIndex
}

// OpenObject reads the functions of the file at path, which must be a regular file or a link to one. It reads the symbol
// tables only, so a library of 450 MB is no burden. For errors see NewObject.
func OpenObject(path string) (*Object, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	defer file.Close()
	o, err := NewObject(file, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// openRegular opens a regular file for reading. It looks before it opens, since opening a pipe would wait for a writer.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// NewObject reads the functions of the ELF file in r, which is size bytes long and is not used after the return. It fails
// if the file header or the program headers are broken or of another kind of file. A broken section or symbol table does
// not make it fail: see Skipped.
func NewObject(r io.ReaderAt, size int64) (*Object, error) {
	f, err := newELF(r, size)
	if err != nil {
		return nil, err
	}
	o := &Object{buildID: f.buildID(), table: new(table), indexOnce: new(sync.Once)}
	for i := range f.segments {
		if executable(&f.segments[i]) {
			o.loads = append(o.loads, f.segments[i])
		}
	}
	if f.sectionsErr != nil {
		o.skipped = append(o.skipped, f.sectionsErr)
	}
	o.add(f.readTable(elf.SHT_SYMTAB))
	o.add(f.readTable(elf.SHT_DYNSYM))
	o.add(f.miniDebugInfo())
	return o, nil
}

// add takes the outcome of reading one symbol table.
func (o *Object) add(t *table, err error) {
	if err == nil {
		t, err = mergeTables(o.table, t)
	}
	if err != nil {
		o.skipped = append(o.skipped, fmt.Errorf("read symbols: %w", err))
		return
	}
	o.table = t
}

// AddDebug adds the functions of a separate debug file (see DebugFile), so that a stripped object gets its local functions
// back. The error wraps ErrBuildID unless both files have a build id and it is the same; then, as after every error, the
// object is what it was. It must not be called at the same time as other methods.
func (o *Object) AddDebug(path string) error {
	debug, err := OpenObject(path)
	if err != nil {
		return fmt.Errorf("add debug file: %w", err)
	}
	if o.buildID == "" || o.buildID != debug.buildID {
		return fmt.Errorf("add debug file %s with build id %q to object with %q: %w", path, debug.buildID, o.buildID, ErrBuildID)
	}
	merged, err := mergeTables(o.table, debug.table)
	if err != nil {
		return fmt.Errorf("add debug file %s: %w", path, err)
	}
	o.table = merged
	o.skipped = append(o.skipped, debug.skipped...)
	o.index, o.indexOnce = nil, new(sync.Once)
	return nil
}

// BuildID returns the GNU build id in hexadecimal digits, "" if the file has none.
func (o *Object) BuildID() string { return o.buildID }

// Skipped says which tables of the file (sections, symbols) could not be read, and why; lookups work with the others.
func (o *Object) Skipped() []error { return o.skipped }

// Len returns the number of functions, counting each name at each address.
func (o *Object) Len() int { return o.table.len() }

// Symbols yields every function in the order of addresses; at one address the name that Lookup prefers comes first.
func (o *Object) Symbols() iter.Seq[Symbol] {
	t := o.table
	return func(yield func(Symbol) bool) {
		for i := range t.entries {
			if !yield(t.symbol(i)) {
				return
			}
		}
	}
}

// Lookup returns the function at an ELF virtual address (not an address of a process: see VAddr) and how many bytes vaddr
// lies behind its start; ok is false where no function is known. Where functions nest the inner one is meant. Of several
// names of a function a global one is preferred to a local one, one with a size to one without, then the shortest, then
// the first in the alphabet.
func (o *Object) Lookup(vaddr uint64) (s Symbol, offset uint64, ok bool) {
	i, ok := o.table.lookup(vaddr)
	if !ok {
		return Symbol{}, 0, false
	}
	s = o.table.symbol(i)
	return s, vaddr - s.Start, true
}

// Find returns the function of that name, exactly as it stands in the file, if the file defines it; a function that it only
// imports is not found. Of several (static functions, versions of one symbol) it takes a global one, then the one at the
// lowest address. The first call builds an index.
func (o *Object) Find(name string) (Symbol, bool) {
	o.indexOnce.Do(func() { o.index = newNameIndex(o.table) })
	if i := *o.index.slot(o.table, []byte(name)); i != 0 {
		return o.table.symbol(int(i - 1)), true
	}
	return Symbol{}, false
}

// VAddr converts an offset in the file to the ELF virtual address that its executable segments give it; false for an
// offset outside of them. For an address of a process, the offset is address - Mapping.Start + Mapping.Offset.
func (o *Object) VAddr(fileOffset uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; fileOffset-p.Off < p.Filesz {
			return fileOffset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// FileOffset converts an ELF virtual address to the offset in the file, where a uprobe is placed; false for an address that
// no executable segment takes from the file.
func (o *Object) FileOffset(vaddr uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// miniDebugInfo reads the symbol table that Fedora and its kin put, compressed, into stripped files.
func (f *elfFile) miniDebugInfo() (*table, error) {
	section := f.sectionByName(".gnu_debugdata")
	if section == nil {
		return nil, nil
	}
	packed, err := f.read(section.Off, section.Size, maxMiniDebugInfo)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	raw, err := decompressXZ(packed, maxMiniDebugInfo)
	if err != nil {
		return nil, fmt.Errorf("decompress .gnu_debugdata: %w", err)
	}
	inner, err := newELF(bytes.NewReader(raw), int64(len(raw)))
	if err == nil {
		err = inner.sectionsErr
	}
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	t, err := inner.readTable(elf.SHT_SYMTAB)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return t, nil
}
