package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Limits of New and BuildID, far above the values of linkers: libLLVM 22, with 200 MB, has 42
// sections.
const (
	maxSections         = 1 << 17
	maxNoteSectionBytes = 1 << 20
	maxNoteSections     = 64
)

// File holds the program headers and section headers of one ELF file. Its methods are safe for
// concurrent use.
// Segments are the program headers, Sections the section headers.
type File struct {
	Segments []elf.Prog64
	Sections []elf.Section64
	// SectionsErr is the reason why Sections is empty although the file has sections. Segments
	// are still valid, since code runs without sections.
	SectionsErr error

	r        io.ReaderAt
	size     uint64
	shstrndx int // index in Sections of the section name table
}

// New reads the headers of the ELF file in r, which has size bytes. r must stay readable while the
// File is used. New returns an error unless the file is a 64-bit little-endian executable or shared
// library. CUDA programs consist of these only. Broken section headers are not an error: see
// SectionsErr.
func New(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, errors.New("read ELF header: negative file size")
	}
	f := &File{r: r, size: uint64(size)}
	var header elf.Header64
	raw, err := f.Read(0, uint64(binary.Size(header)), 1<<10)
	if err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if string(raw[:4]) != elf.ELFMAG {
		return nil, errors.New("read ELF header: not an ELF file")
	}
	class, order := elf.Class(raw[elf.EI_CLASS]), elf.Data(raw[elf.EI_DATA])
	if class != elf.ELFCLASS64 || order != elf.ELFDATA2LSB {
		return nil, errors.New("read ELF header: not a 64-bit little-endian file")
	}
	if _, err := binary.Decode(raw, binary.LittleEndian, &header); err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if t := elf.Type(header.Type); t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, fmt.Errorf(
			"read ELF header: %v is neither an executable nor a shared library", t)
	}
	if err := f.readProgramHeaders(&header); err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	if err := f.readSectionHeaders(&header); err != nil {
		f.Sections, f.SectionsErr = nil, fmt.Errorf("read section headers: %w", err)
	}
	return f, nil
}

// readProgramHeaders reads the program headers.
func (f *File) readProgramHeaders(h *elf.Header64) error {
	if h.Phoff == 0 || h.Phnum == 0 {
		return nil
	}
	f.Segments = make([]elf.Prog64, h.Phnum)
	return f.decodeHeaderTable(h.Phoff, h.Phentsize, f.Segments)
}

// readSectionHeaders reads the section headers.
func (f *File) readSectionHeaders(h *elf.Header64) error {
	if h.Shoff == 0 {
		return nil
	}
	count, names := uint64(h.Shnum), uint64(h.Shstrndx)
	// Files with 65280 or more sections store the numbers in the first section header.
	if h.Shnum == 0 || elf.SectionIndex(h.Shstrndx) == elf.SHN_XINDEX {
		var first [1]elf.Section64
		if err := f.decodeHeaderTable(h.Shoff, h.Shentsize, first[:]); err != nil {
			return err
		}
		if h.Shnum == 0 {
			count = first[0].Size
		}
		if elf.SectionIndex(h.Shstrndx) == elf.SHN_XINDEX {
			names = uint64(first[0].Link)
		}
	}
	if count > maxSections {
		return fmt.Errorf("%d sections are more than %d", count, maxSections)
	}
	f.Sections = make([]elf.Section64, count)
	f.shstrndx = int(min(names, maxSections))
	return f.decodeHeaderTable(h.Shoff, h.Shentsize, f.Sections)
}

// decodeHeaderTable decodes the headers at offset into a []elf.Prog64 or []elf.Section64.
func (f *File) decodeHeaderTable(offset uint64, entrySize uint16, into any) error {
	want, count := binary.Size(into), 0
	switch v := into.(type) {
	case []elf.Prog64:
		count = len(v)
	case []elf.Section64:
		count = len(v)
	}
	if count == 0 {
		return nil
	}
	if int(entrySize) != want/count {
		return fmt.Errorf("entries of %d bytes, not %d", entrySize, want/count)
	}
	raw, err := f.Read(offset, uint64(want), maxSections*64)
	if err != nil {
		return err
	}
	_, err = binary.Decode(raw, binary.LittleEndian, into)
	return err
}

// Read returns n bytes from offset. It returns an error, and allocates nothing, if n exceeds limit
// or the file ends earlier.
func (f *File) Read(offset, n, limit uint64) ([]byte, error) {
	if n > limit {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", n, limit)
	}
	if !f.Has(offset, n) {
		return nil, fmt.Errorf("%d bytes at %#x reach past the end of the file: %w",
			n, offset, io.ErrUnexpectedEOF)
	}
	raw := make([]byte, n)
	if err := f.ReadInto(raw, offset); err != nil {
		return nil, err
	}
	return raw, nil
}

// ReadInto fills raw with the bytes from offset.
func (f *File) ReadInto(raw []byte, offset uint64) error {
	got, err := f.r.ReadAt(raw, int64(offset))
	if got == len(raw) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %#x: %w", len(raw), offset, err)
}

// Has reports whether the file has n bytes from offset.
func (f *File) Has(offset, n uint64) bool { return offset <= f.size && n <= f.size-offset }

// Text returns the string from offset to the next NUL byte or to end, at most MaxTextBytes+1 bytes.
// It returns "" if the file cannot be read.
func (f *File) Text(offset, end uint64) string { return readNULTerminatedText(f.r, offset, end) }

// SectionByType returns the first section of a type, or nil. It ignores later ones, because a
// hostile file could list the same table a hundred thousand times.
func (f *File) SectionByType(t elf.SectionType) *elf.Section64 {
	for i := range f.Sections {
		if elf.SectionType(f.Sections[i].Type) == t {
			return &f.Sections[i]
		}
	}
	return nil
}

// SectionByName returns the first section with a name and with bytes in the file. It returns nil if
// there is none or if the names cannot be read.
func (f *File) SectionByName(name string) *elf.Section64 {
	if f.shstrndx <= 0 || f.shstrndx >= len(f.Sections) {
		return nil
	}
	table := &f.Sections[f.shstrndx]
	if elf.SectionType(table.Type) != elf.SHT_STRTAB {
		return nil
	}
	names, err := f.Read(table.Off, table.Size, 16<<20)
	if err != nil {
		return nil
	}
	want := append([]byte(name), 0)
	for i := range f.Sections {
		s := &f.Sections[i]
		if uint64(s.Name) < uint64(len(names)) && elf.SectionType(s.Type) != elf.SHT_NOBITS &&
			bytes.HasPrefix(names[s.Name:], want) {
			return s
		}
	}
	return nil
}

// CodeEnd returns the end address of the memory that contains the code at vaddr: the section with
// that index or, for a reserved index, the executable segment. It returns 0 if neither contains
// vaddr.
func (f *File) CodeEnd(index elf.SectionIndex, vaddr uint64) uint64 {
	if index < elf.SHN_LORESERVE && int(index) < len(f.Sections) {
		s := &f.Sections[index]
		if vaddr-s.Addr < s.Size {
			return s.Addr + s.Size
		}
		return 0
	}
	for i := range f.Segments {
		p := &f.Segments[i]
		if IsExecutable(p) && vaddr-p.Vaddr < p.Memsz {
			return p.Vaddr + p.Memsz
		}
	}
	return 0
}

// IsExecutable reports whether a segment is loaded as code.
func IsExecutable(p *elf.Prog64) bool {
	return elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0
}

// BuildID returns the GNU build id in hexadecimal digits, or "" if there is none. It reads sections
// first: the program headers of a separate debug file describe the original file.
func (f *File) BuildID() string {
	read := 0
	try := func(offset, size, align uint64) string {
		if read++; read > maxNoteSections {
			return ""
		}
		raw, err := f.Read(offset, size, maxNoteSectionBytes)
		if err != nil {
			return ""
		}
		return findBuildIDNote(raw, align)
	}
	for i := range f.Sections {
		if s := &f.Sections[i]; elf.SectionType(s.Type) == elf.SHT_NOTE {
			if id := try(s.Off, s.Size, s.Addralign); id != "" {
				return id
			}
		}
	}
	for i := range f.Segments {
		if p := &f.Segments[i]; elf.ProgType(p.Type) == elf.PT_NOTE {
			if id := try(p.Off, p.Filesz, p.Align); id != "" {
				return id
			}
		}
	}
	return ""
}

// findBuildIDNote finds the build id in the notes in raw. Notes are padded to 4 bytes, or to 8 in a
// segment with an alignment of 8.
func findBuildIDNote(raw []byte, align uint64) string {
	const typeBuildID, maxBuildID = 3, 64
	if align != 8 {
		align = 4
	}
	padded := func(n uint32) uint64 { return (uint64(n) + align - 1) &^ (align - 1) }
	for len(raw) >= 12 {
		nameLen := binary.LittleEndian.Uint32(raw)
		descLen := binary.LittleEndian.Uint32(raw[4:])
		typ := binary.LittleEndian.Uint32(raw[8:])
		raw = raw[12:]
		desc := padded(nameLen)
		if align == 8 {
			// The padding of the name includes the 12 bytes of the note header.
			desc = padded(nameLen+12) - 12
		}
		if uint64(nameLen) > uint64(len(raw)) || desc+uint64(descLen) > uint64(len(raw)) {
			return ""
		}
		isBuildID := typ == typeBuildID && string(raw[:nameLen]) == "GNU\x00"
		if isBuildID && descLen > 0 && descLen <= maxBuildID {
			return hex.EncodeToString(raw[desc : desc+uint64(descLen)])
		}
		raw = raw[min(desc+padded(descLen), uint64(len(raw))):]
	}
	return ""
}
