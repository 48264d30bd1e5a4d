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

// ErrBuildID is the error of Object.AddDebug for a debug file of another object.
var ErrBuildID = errors.New("build ids differ")

// Object holds the functions of one ELF file: a 64-bit little-endian executable or shared library.
// It uses 16 bytes per function, and 8 more after the first Find. Names remain in the file, which
// lookups read. So the file must stay open and unchanged. All methods except AddDebug and Close are
// safe for concurrent use.
type Object struct {
	buildID string
	loads   []elf.Prog64 // executable segments
	tables  symbolTables
	skipped []error
	files   []*os.File // files that Close closes

	indexOnce *sync.Once
	index     *functionNameIndex
}

// OpenObject reads the functions of the file at path and keeps the file open until Close. path must
// be a regular file or a link to one. OpenObject reads only symbol tables, so a library of 450 MB
// opens fast. Errors are those of NewObject.
func OpenObject(path string) (*Object, error) {
	file, size, err := openRegularFile(path)
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

// openRegularFile opens a regular file for reading. It checks the type first, because opening a
// FIFO blocks until there is a writer.
func openRegularFile(path string) (*os.File, int64, error) {
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

// NewObject reads the functions of the ELF file in r, which has size bytes. r must stay readable
// while the object is used; the caller closes it. NewObject returns an error for broken file or
// program headers and for other kinds of files. Broken sections and symbol tables are not errors:
// Skipped lists them.
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
	o.addFunctions(f)
	return o, nil
}

// addFunctions adds the functions of a file that the object does not have yet.
func (o *Object) addFunctions(f *elffile.File) {
	if f.SectionsErr != nil {
		o.skipped = append(o.skipped, f.SectionsErr)
	}
	o.addSymbolTable(readSymbolTable(f, elf.SHT_SYMTAB, o.tables))
	o.addSymbolTable(readSymbolTable(f, elf.SHT_DYNSYM, o.tables))
	o.addSymbolTable(readMiniDebugInfo(f, o.tables))
}

// addSymbolTable adds a symbol table, or the error of reading one.
func (o *Object) addSymbolTable(t *symbolTable, err error) {
	switch {
	case err != nil:
		o.skipped = append(o.skipped, fmt.Errorf("read symbols: %w", err))
	case t != nil:
		o.tables = append(o.tables, t)
	}
}

// AddDebug adds the functions of a separate debug file (see Finder) and keeps the file open until
// Close. A stripped object gets its local functions back in this way. Both files must have the same
// build id; otherwise the error wraps ErrBuildID. On error, the object is unchanged. AddDebug must
// not run concurrently with other methods.
func (o *Object) AddDebug(path string) error {
	file, size, err := openRegularFile(path)
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
	o.addFunctions(f)
	o.index, o.indexOnce = nil, new(sync.Once)
	return nil
}

// Close closes the files that OpenObject and AddDebug opened. The object must not be used
// afterwards.
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

// Skipped returns one error for each section or symbol table that could not be read. Lookups use
// the others.
func (o *Object) Skipped() []error { return o.skipped }

// Len returns the number of functions. A function with several names counts once for each name.
func (o *Object) Len() int {
	n := 0
	for _, t := range o.tables {
		n += len(t.entries)
	}
	return n
}

// Symbols yields the functions in the order of their addresses. At one address, the name that
// Lookup prefers comes first. It yields at most 64 names per address and symbol table.
func (o *Object) Symbols() iter.Seq[Symbol] { return o.tables.allFunctions() }

// Lookup returns the function at an ELF virtual address, and the offset of vaddr from its start.
// VAddr converts other addresses. ok is false if no function is known or its name cannot be read.
// For nested functions Lookup returns the inner one. Of several names it prefers global to local
// ones, names with a size, the shortest, then the alphabetically first. Names over 64 KiB are cut
// to 64 KiB + 1 byte.
func (o *Object) Lookup(vaddr uint64) (s Symbol, offset uint64, ok bool) {
	s, ok = o.tables.lookupAddress(vaddr)
	if !ok {
		return Symbol{}, 0, false
	}
	return s, vaddr - s.Start, true
}

// Find returns the function that has exactly this name in the file. It finds only functions that
// the file defines, not imported ones. Of several functions (static functions, symbol versions) it
// prefers global ones, then the lowest address. The first call reads all names and builds an index,
// in about a second for a million names.
func (o *Object) Find(name string) (Symbol, bool) {
	o.indexOnce.Do(func() { o.index = newFunctionNameIndex(o.tables) })
	return o.index.findFunction(o.tables, name)
}

// VAddr converts a file offset to an ELF virtual address. It returns false for an offset outside of
// the executable segments. The file offset of a process address is address - Mapping.Start +
// Mapping.Offset.
func (o *Object) VAddr(fileOffset uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; fileOffset-p.Off < p.Filesz {
			return fileOffset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// FileOffset converts an ELF virtual address to a file offset, which uprobes use. It returns false
// for an address that no executable segment loads from the file.
func (o *Object) FileOffset(vaddr uint64) (uint64, bool) {
	for i := range o.loads {
		if p := &o.loads[i]; vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// readMiniDebugInfo reads the compressed symbol table (MiniDebugInfo) of stripped files, which
// Fedora and related distributions ship. The decompressed table stays in memory, because lookups
// read names from it.
func readMiniDebugInfo(f *elffile.File, known symbolTables) (*symbolTable, error) {
	section := f.SectionByName(".gnu_debugdata")
	if section == nil {
		return nil, nil
	}
	packed, err := f.Read(section.Off, section.Size, maxMiniDebugInfoBytes)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	raw, err := decompressXZStream(packed, maxMiniDebugInfoBytes)
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
	t, err := readSymbolTable(inner, elf.SHT_SYMTAB, known)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return t, nil
}
