//go:build linux

package hold

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// Loader is a dynamic loader: where it calls its function for debuggers when its list of libraries has
// changed, and where that list begins.
type Loader struct {
	ID   process.FileID
	file *os.File
	// sites are the file offsets of the calls of _dl_debug_state. The function itself is not probed:
	// debuggers have a breakpoint there, which a probe would hide from them.
	sites  []uint64
	toList []uint64 // from each site to _r_debug, a struct r_debug (link.h)
}

// Names in glibc's loader: elf/dl-debug.c.
const (
	functionSymbol = "_dl_debug_state"
	listSymbol     = "_r_debug"
)

// OpenLoader opens the loader of the program that a process runs. A program without one is linked
// statically: the error is then ErrStatic.
func OpenLoader(p *process.Process) (*Loader, error) {
	path, err := loaderPath(p)
	if err != nil {
		return nil, err
	}
	file, err := p.OpenRegular(path, 0)
	if err != nil {
		return nil, fmt.Errorf("open the loader %s: %w", path, err)
	}
	l, err := newLoader(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("read the loader %s: %w", path, err)
	}
	return l, nil
}

// ErrStatic says that a program has no dynamic loader.
var ErrStatic = errors.New("the program is linked statically")

// loaderPath returns the interpreter that a process's program names.
func loaderPath(p *process.Process) (string, error) {
	file, err := os.Open(p.Path("exe"))
	if err != nil {
		return "", fmt.Errorf("open the program of process %d: %w", p.Pid, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("read the program of process %d: %w", p.Pid, err)
	}
	f, err := elffile.New(file, info.Size())
	if err != nil {
		return "", fmt.Errorf("read the program of process %d: %w", p.Pid, err)
	}
	for _, segment := range f.Segments {
		if elf.ProgType(segment.Type) == elf.PT_INTERP {
			return f.Text(segment.Off, segment.Off+segment.Filesz), nil
		}
	}
	return "", ErrStatic
}

// Limits on a loader's symbols, far above those of glibc (40 symbols, names of 1 KB).
const (
	maxSymbolBytes = 1 << 20
	maxNameBytes   = 1 << 20
	maxCodeBytes   = 8 << 20 // glibc's has 160 KB
)

// newLoader finds the two symbols of a loader. The Loader owns the file.
func newLoader(file *os.File) (*Loader, error) {
	f, id, err := openELF(file)
	if err != nil {
		return nil, err
	}
	addresses, err := dynamicSymbols(f, functionSymbol, listSymbol)
	if err != nil {
		return nil, err
	}
	for i, name := range []string{functionSymbol, listSymbol} {
		if addresses[i] == 0 {
			return nil, fmt.Errorf("it has no symbol %s", name)
		}
	}
	segment := segmentOf(f, addresses[0])
	if segment == nil {
		return nil, fmt.Errorf("%s is in no segment", functionSymbol)
	}
	code, err := f.Read(segment.Off, segment.Filesz, maxCodeBytes)
	if err != nil {
		return nil, err
	}
	var machine [2]byte // e_machine of the ELF header
	if _, err := file.ReadAt(machine[:], 18); err != nil {
		return nil, err
	}
	l := &Loader{ID: id, file: file}
	of := elf.Machine(binary.LittleEndian.Uint16(machine[:]))
	for _, at := range callInstructions(of, code, segment.Vaddr, addresses[0]) {
		l.sites = append(l.sites, segment.Off+at-segment.Vaddr)
		l.toList = append(l.toList, addresses[1]-at)
	}
	if len(l.sites) == 0 {
		return nil, fmt.Errorf("it has no calls of %s", functionSymbol)
	}
	return l, nil
}

// findFunctions returns the file offsets of those functions that an ELF file exports.
func findFunctions(file *os.File, names []string) (offsets []uint64, id process.FileID, err error) {
	f, id, err := openELF(file)
	if err != nil {
		return nil, id, err
	}
	addresses, err := dynamicSymbols(f, names...)
	if err != nil {
		return nil, id, err
	}
	for _, address := range addresses {
		segment := segmentOf(f, address)
		if address == 0 || segment == nil {
			continue
		}
		if offset := segment.Off + address - segment.Vaddr; !slices.Contains(offsets, offset) {
			offsets = append(offsets, offset)
		}
	}
	return offsets, id, nil
}

// openELF reads the headers of an ELF file.
func openELF(file *os.File) (*elffile.File, process.FileID, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, process.FileID{}, err
	}
	f, err := elffile.New(file, stat.Size)
	return f, process.FileID{Dev: stat.Dev, Inode: stat.Ino}, err
}

// segmentOf returns the executable segment that has code at an address, or nil.
func segmentOf(f *elffile.File, address uint64) *elf.Prog64 {
	for i := range f.Segments {
		segment := &f.Segments[i]
		if elffile.IsExecutable(segment) && address-segment.Vaddr < segment.Filesz {
			return segment
		}
	}
	return nil
}

// dynamicSymbols returns the virtual addresses of dynamic symbols by their names, 0 for those that
// the file does not have.
func dynamicSymbols(f *elffile.File, names ...string) ([]uint64, error) {
	section := f.SectionByType(elf.SHT_DYNSYM)
	if section == nil || uint64(section.Link) >= uint64(len(f.Sections)) {
		return nil, errors.New("it has no dynamic symbols")
	}
	symbols, err := f.Read(section.Off, section.Size, maxSymbolBytes)
	if err != nil {
		return nil, err
	}
	texts, err := f.Read(f.Sections[section.Link].Off, f.Sections[section.Link].Size, maxNameBytes)
	if err != nil {
		return nil, err
	}
	addresses := make([]uint64, len(names))
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		at := uint64(binary.LittleEndian.Uint32(symbols))
		for i, name := range names {
			if hasText(texts, at, name) {
				addresses[i] = binary.LittleEndian.Uint64(symbols[8:])
			}
		}
	}
	return addresses, nil
}

// hasText reports whether a string table has the NUL-terminated text at an offset.
func hasText(texts []byte, at uint64, text string) bool {
	end := at + uint64(len(text))
	return end < uint64(len(texts)) && string(texts[at:end]) == text && texts[end] == 0
}

// executable returns a path by which the kernel opens exactly this file.
func (l *Loader) executable() string { return pathOf(l.file) }

// pathOf returns a path by which the kernel opens exactly this file.
func pathOf(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// Close closes the loader's file. Probes on it stay.
func (l *Loader) Close() { l.file.Close() }
