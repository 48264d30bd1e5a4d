package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Limits on what a file may make us read or keep, far above what linkers write: libLLVM 22, at 200 MB, has 42 sections,
// 260 thousand symbols and 18 MB of names.
const (
	maxSections  = 1 << 17
	maxSymbols   = 1 << 24
	maxNoteBytes = 1 << 20
	maxNotes     = 64
)

// elfFile is the header tables of one ELF file. It takes their layout from debug/elf but not elf.File, which copies a
// string per section and per symbol and lets a crafted file of 1 MB ask for gigabytes that way.
type elfFile struct {
	r        io.ReaderAt
	size     uint64
	segments []elf.Prog64
	sections []elf.Section64
	shstrndx int
	// sectionsErr says why sections is empty although the file has some: code runs without them, so that the segments
	// are still worth having.
	sectionsErr error
}

// newELF reads the headers of a 64-bit little-endian executable or shared library: the only kinds that CUDA runs in.
func newELF(r io.ReaderAt, size int64) (*elfFile, error) {
	if size < 0 {
		return nil, errors.New("read ELF header: negative file size")
	}
	f := &elfFile{r: r, size: uint64(size)}
	var header elf.Header64
	raw, err := f.read(0, uint64(binary.Size(header)), 1<<10)
	if err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if string(raw[:4]) != elf.ELFMAG {
		return nil, errors.New("read ELF header: not an ELF file")
	}
	if elf.Class(raw[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(raw[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errors.New("read ELF header: not a 64-bit little-endian file")
	}
	if _, err := binary.Decode(raw, binary.LittleEndian, &header); err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if t := elf.Type(header.Type); t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, fmt.Errorf("read ELF header: %v is neither an executable nor a shared library", t)
	}
	if err := f.readSegments(&header); err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	if err := f.readSections(&header); err != nil {
		f.sections, f.sectionsErr = nil, fmt.Errorf("read section headers: %w", err)
	}
	return f, nil
}

func (f *elfFile) readSegments(h *elf.Header64) error {
	if h.Phoff == 0 || h.Phnum == 0 {
		return nil
	}
	f.segments = make([]elf.Prog64, h.Phnum)
	return f.decodeTable(h.Phoff, h.Phentsize, f.segments)
}

func (f *elfFile) readSections(h *elf.Header64) error {
	if h.Shoff == 0 {
		return nil
	}
	count, names := uint64(h.Shnum), uint64(h.Shstrndx)
	// Files with 65280 sections or more keep the true numbers in the first section header.
	if h.Shnum == 0 || elf.SectionIndex(h.Shstrndx) == elf.SHN_XINDEX {
		var first [1]elf.Section64
		if err := f.decodeTable(h.Shoff, h.Shentsize, first[:]); err != nil {
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
	f.sections = make([]elf.Section64, count)
	f.shstrndx = int(min(names, maxSections))
	return f.decodeTable(h.Shoff, h.Shentsize, f.sections)
}

// decodeTable fills into with the fixed-size header structs (elf.Prog64 or elf.Section64) that start at offset.
func (f *elfFile) decodeTable(offset uint64, entrySize uint16, into any) error {
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
	raw, err := f.read(offset, uint64(want), maxSections*64)
	if err != nil {
		return err
	}
	_, err = binary.Decode(raw, binary.LittleEndian, into)
	return err
}

// read returns n bytes from offset. Nothing is allocated unless the file has these bytes and n is within limit.
func (f *elfFile) read(offset, n, limit uint64) ([]byte, error) {
	if n > limit {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", n, limit)
	}
	if offset > f.size || n > f.size-offset {
		return nil, fmt.Errorf("%d bytes at %#x reach past the end of the file: %w", n, offset, io.ErrUnexpectedEOF)
	}
	raw := make([]byte, n)
	if err := f.readInto(raw, offset); err != nil {
		return nil, err
	}
	return raw, nil
}

func (f *elfFile) readInto(raw []byte, offset uint64) error {
	got, err := f.r.ReadAt(raw, int64(offset))
	if got == len(raw) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %#x: %w", len(raw), offset, err)
}

// sectionByType returns the first section of a type that has bytes in the file. Only the first, because linkers write one
// and a crafted file could name the same table a hundred thousand times.
func (f *elfFile) sectionByType(t elf.SectionType) *elf.Section64 {
	for i := range f.sections {
		if elf.SectionType(f.sections[i].Type) == t {
			return &f.sections[i]
		}
	}
	return nil
}

// sectionByName returns the first section of that name, nil where there is none or the names cannot be read.
func (f *elfFile) sectionByName(name string) *elf.Section64 {
	if f.shstrndx <= 0 || f.shstrndx >= len(f.sections) {
		return nil
	}
	table := &f.sections[f.shstrndx]
	if elf.SectionType(table.Type) != elf.SHT_STRTAB {
		return nil
	}
	names, err := f.read(table.Off, table.Size, 16<<20)
	if err != nil {
		return nil
	}
	want := append([]byte(name), 0)
	for i := range f.sections {
		s := &f.sections[i]
		if uint64(s.Name) < uint64(len(names)) && elf.SectionType(s.Type) != elf.SHT_NOBITS &&
			bytes.HasPrefix(names[s.Name:], want) {
			return s
		}
	}
	return nil
}

// executableEnd returns the end of the memory in which code at vaddr lies: of section index where that is a true section,
// else of the executable segment around vaddr; 0 if neither is known.
func (f *elfFile) executableEnd(index elf.SectionIndex, vaddr uint64) uint64 {
	if index < elf.SHN_LORESERVE && int(index) < len(f.sections) {
		s := &f.sections[index]
		if vaddr-s.Addr < s.Size {
			return s.Addr + s.Size
		}
		return 0
	}
	for i := range f.segments {
		p := &f.segments[i]
		if executable(p) && vaddr-p.Vaddr < p.Memsz {
			return p.Vaddr + p.Memsz
		}
	}
	return 0
}

func executable(p *elf.Prog64) bool {
	return elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0
}

// buildID returns the GNU build id as hexadecimal digits, "" if there is none. Sections come first: the program headers of
// a separate debug file describe the file it was split from, not itself.
func (f *elfFile) buildID() string {
	read := 0
	try := func(offset, size, align uint64) string {
		if read++; read > maxNotes {
			return ""
		}
		raw, err := f.read(offset, size, maxNoteBytes)
		if err != nil {
			return ""
		}
		return buildIDNote(raw, align)
	}
	for i := range f.sections {
		if s := &f.sections[i]; elf.SectionType(s.Type) == elf.SHT_NOTE {
			if id := try(s.Off, s.Size, s.Addralign); id != "" {
				return id
			}
		}
	}
	for i := range f.segments {
		if p := &f.segments[i]; elf.ProgType(p.Type) == elf.PT_NOTE {
			if id := try(p.Off, p.Filesz, p.Align); id != "" {
				return id
			}
		}
	}
	return ""
}

// ReadBuildID returns the GNU build id of an ELF file without reading its symbols, "" if it has none.
func ReadBuildID(r io.ReaderAt, size int64) (string, error) {
	f, err := newELF(r, size)
	if err != nil {
		return "", err
	}
	return f.buildID(), nil
}

// buildIDNote finds the build id among the notes in raw. Notes are padded to 4 bytes, in segments aligned to 8 to 8 bytes.
func buildIDNote(raw []byte, align uint64) string {
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
			// The 12 bytes of the head count in the padding of the name.
			desc = padded(nameLen+12) - 12
		}
		if uint64(nameLen) > uint64(len(raw)) || desc+uint64(descLen) > uint64(len(raw)) {
			return ""
		}
		if typ == typeBuildID && string(raw[:nameLen]) == "GNU\x00" && descLen > 0 && descLen <= maxBuildID {
			return hex.EncodeToString(raw[desc : desc+uint64(descLen)])
		}
		raw = raw[min(desc+padded(descLen), uint64(len(raw))):]
	}
	return ""
}
