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

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// ErrBuildID is what Object.AddDebug returns, wrapped, for a debug file that does not belong to the
// object.
var ErrBuildID = errors.New("build ids differ")

// Object is the functions of one ELF file (64-bit, little-endian, an executable or a shared
// library). It costs 16 bytes per function, and 8 more once Find is used; names stay in the file,
// which is read at each lookup and must therefore stay open and as it is. All methods but AddDebug
// and Close may be called from several goroutines at once.
type Object struct {
	buildID string
	loads   []elf.Prog64 // executable segments
	tables  tables
	skipped []error
	files   []*os.File // that Close closes

	indexOnce *sync.Once
	index     *nameIndex
}

// OpenObject reads the functions of the file at path, which must be a regular file or a link to
// one, and keeps the file open until Close. It reads the symbol tables only, so a library of 450 MB
// is no burden. For errors see NewObject.
func OpenObject(path string) (*Object, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	o, err := NewObject(file, size)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	o.files = append(o.files, file)
	return o, nil
}

// openRegular opens a regular file for reading. It looks before it opens, since opening a pipe
// would wait for a writer.
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

// NewObject reads the functions of the ELF file in r, which is size bytes long and is read from for
// as long as the object is used; the caller closes it. It fails if the file header or the program
// headers are broken or of another kind of file. A broken section or symbol table does not make it
// fail: see Skipped.
func NewObject(r io.ReaderAt, size int64) (*Object, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return nil, err
	}
	o := &Object{buildID: f.BuildID(), indexOnce: new(sync.Once)}
	for i := range f.Segments {
		if elffile.IsExecutable(&f.Segments[i]) {
			o.loads = append(o.loads, f.Segments[i])
		}
	}
	o.read(f)
	return o, nil
}

// read adds all functions of a file that are not there yet.
func (o *Object) read(f *elffile.File) {
	if f.SectionsErr != nil {
		o.skipped = append(o.skipped, f.SectionsErr)
	}
	o.add(readTable(f, elf.SHT_SYMTAB, o.tables))
	o.add(readTable(f, elf.SHT_DYNSYM, o.tables))
	o.add(readMiniDebugInfo(f, o.tables))
}

// add takes the outcome of reading one symbol table.
func (o *Object) add(t *table, err error) {
	switch {
	case err != nil:
		o.skipped = append(o.skipped, fmt.Errorf("read symbols: %w", err))
	case t != nil:
		o.tables = append(o.tables, t)
	}
}

// AddDebug adds the functions of a separate debug file (see Finder), so that a stripped object gets
// its local functions back, and keeps that file open until Close. The error wraps ErrBuildID unless
// both files have a build id and it is the same; then, as after every error, the object is what it
// was. It must not be called at the same time as other methods.
func (o *Object) AddDebug(path string) error {
	file, size, err := openRegular(path)
	if err != nil {
		return fmt.Errorf("add debug file: %w", err)
	}
	f, err := elffile.New(file, size)
	if err != nil {
		file.Close()
		return fmt.Errorf("add debug file %s: %w", path, err)
	}
	if id := f.BuildID(); o.buildID == "" || o.buildID != id {
		file.Close()
		return fmt.Errorf("add debug file %s with build id %q to object with %q: %w", path, id, o.buildID, ErrBuildID)
	}
	o.files = append(o.files, file)
	o.read(f)
	o.index, o.indexOnce = nil, new(sync.Once)
	return nil
}

// Close closes the files that OpenObject and AddDebug opened. An object is of no use afterwards.
func (o *Object) Close() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	o.files = nil
	return errors.Join(errs...)
}

// BuildID returns the GNU build id in hexadecimal digits, "" if the file has none.
func (o *Object) BuildID() string { return o.buildID }

// Skipped says which tables of the file (sections, symbols) could not be read, and why; lookups
// work with the others.
func (o *Object) Skipped() []error { return o.skipped }

// Len returns the number of functions, counting those of several names at one address once for
// each.
func (o *Object) Len() int {
	n := 0
	for _, t := range o.tables {
		n += len(t.entries)
	}
	return n
}

// Symbols yields every function in the order of addresses; at one address the name that Lookup
// prefers comes first. Of the names at one address it yields the first 64 of each symbol table.
func (o *Object) Symbols() iter.Seq[Symbol] { return o.tables.all() }

// Lookup returns the function at an ELF virtual address (not an address of a process: see VAddr)
// and how many bytes vaddr lies behind its start; ok is false where no function is known or its
// name cannot be read. Where functions nest the inner one is meant. Of several names of a function
// a global one is preferred to a local one, one with a size to one without, then the shortest, then
// the first in the alphabet. Names over 64 KiB are cut to one byte more.
func (o *Object) Lookup(vaddr uint64) (s Symbol, offset uint64, ok bool) {
	s, ok = o.tables.lookup(vaddr)
	if !ok {
		return Symbol{}, 0, false
	}
	return s, vaddr - s.Start, true
}

// Find returns the function of that name, exactly as it stands in the file, if the file defines it;
// a function that it only imports is not found. Of several (static functions, versions of one
// symbol) it takes a global one, then the one at the lowest address. The first call reads all
// names, about a second for a million, and builds an index.
func (o *Object) Find(name string) (Symbol, bool) {
	o.indexOnce.Do(func() { o.index = newNameIndex(o.tables) })
	return o.index.find(o.tables, name)
}

// VAddr converts an offset in the file to the ELF virtual address that its executable segments give
// it; false for an offset outside of them. For an address of a process, the offset is address -
// Mapping.Start + Mapping.Offset.
func (o *Object) VAddr(fileOffset uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; fileOffset-p.Off < p.Filesz {
			return fileOffset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// FileOffset converts an ELF virtual address to the offset in the file, where a uprobe is placed;
// false for an address that no executable segment takes from the file.
func (o *Object) FileOffset(vaddr uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// readMiniDebugInfo reads the compressed symbol table that Fedora and related distributions put
// into stripped files. The decompressed table stays in memory, since names are read from it.
func readMiniDebugInfo(f *elffile.File, known tables) (*table, error) {
	section := f.SectionByName(".gnu_debugdata")
	if section == nil {
		return nil, nil
	}
	packed, err := f.Read(section.Off, section.Size, maxMiniDebugInfo)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	raw, err := decompressXZ(packed, maxMiniDebugInfo)
	if err != nil {
		return nil, fmt.Errorf("decompress .gnu_debugdata: %w", err)
	}
	inner, err := elffile.New(bytes.NewReader(raw), int64(len(raw)))
	if err == nil {
		err = inner.SectionsErr
	}
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	t, err := readTable(inner, elf.SHT_SYMTAB, known)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return t, nil
}
