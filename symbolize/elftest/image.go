package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Image describes a shared library with a .symtab, one executable segment, and one executable
// section at address 0x1000.
type Image struct {
	Symbols   []elf.Sym64
	Names     []byte // .strtab
	DebugData []byte // .gnu_debugdata, if any
	TextBytes uint64 // size of the executable section, at least 0x1000
}

// Add appends a function in the executable section.
func (i *Image) Add(name string, start, size uint64, bind elf.SymBind) {
	if len(i.Names) == 0 {
		i.Names = []byte{0}
	}
	i.Symbols = append(i.Symbols, elf.Sym64{
		Name: uint32(len(i.Names)), Info: elf.ST_INFO(bind, elf.STT_FUNC), Shndx: 1,
		Value: start, Size: size,
	})
	i.Names = append(append(i.Names, name...), 0)
}

// sectionHeadersOffset is the offset of the section headers. They follow the file header and one
// program header.
const sectionHeadersOffset = 64 + 56

// Numbers of the sections of an Image.
const (
	Text = iota + 1
	Symtab
	Strtab
	SectionNames
	DebugData
)

// SectionHeader returns the offset of a section's header in Image.Bytes.
func SectionHeader(section int) int { return sectionHeadersOffset + section*64 }

// Bytes returns the content of the ELF file.
func (i *Image) Bytes() []byte {
	names := []byte("\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00.gnu_debugdata\x00")
	nameAt := func(n string) uint32 { return uint32(bytes.Index(names, []byte("\x00"+n+"\x00")) + 1) }
	symbols := encodeLittleEndian(i.Symbols)
	text := max(i.TextBytes, 0x1000)
	offset := uint64(sectionHeadersOffset + 6*64)
	section := func(name string, typ elf.SectionType, content []byte) elf.Section64 {
		s := elf.Section64{Name: nameAt(name), Type: uint32(typ), Off: offset, Size: uint64(len(content))}
		offset += s.Size
		return s
	}
	sections := make([]elf.Section64, 6)
	sections[Text] = elf.Section64{
		Name: nameAt(".text"), Type: uint32(elf.SHT_PROGBITS), Addr: 0x1000, Size: text,
	}
	sections[Symtab] = section(".symtab", elf.SHT_SYMTAB, symbols)
	sections[Symtab].Link, sections[Symtab].Entsize = Strtab, elf.Sym64Size
	sections[Strtab] = section(".strtab", elf.SHT_STRTAB, i.Names)
	sections[SectionNames] = section(".shstrtab", elf.SHT_STRTAB, names)
	if len(i.DebugData) > 0 {
		sections[DebugData] = section(".gnu_debugdata", elf.SHT_PROGBITS, i.DebugData)
	}
	header := newELFHeader(sectionHeadersOffset, len(sections), SectionNames)
	header.Phoff, header.Phentsize, header.Phnum = 64, 56, 1
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: 0x1000, Filesz: text, Memsz: text,
	}
	return encodeLittleEndian(header, load, sections, symbols, i.Names, names, i.DebugData)
}

// Sections returns an ELF file that has only the sections with these names and contents.
func Sections(contents map[string][]byte) []byte {
	const start = 64
	names := []byte{0}
	sections := []elf.Section64{{}}
	var body bytes.Buffer
	for name, content := range contents {
		sections = append(sections, elf.Section64{
			Name: uint32(len(names)), Type: uint32(elf.SHT_PROGBITS),
			Off: start + uint64(body.Len()), Size: uint64(len(content)),
		})
		names = append(append(names, name...), 0)
		body.Write(content)
	}
	sections = append(sections, elf.Section64{
		Type: uint32(elf.SHT_STRTAB), Off: start + uint64(body.Len()), Size: uint64(len(names)),
	})
	body.Write(names)
	header := newELFHeader(start+uint64(body.Len()), len(sections), len(sections)-1)
	return encodeLittleEndian(header, body.Bytes(), sections)
}

// newELFHeader returns the header of a shared library whose section headers are at offset
// sectionsAt.
func newELFHeader(sectionsAt uint64, sections, names int) elf.Header64 {
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: sectionsAt, Ehsize: 64, Shentsize: 64, Shnum: uint16(sections), Shstrndx: uint16(names),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	return h
}

// encodeLittleEndian returns values in the little-endian layout of ELF files.
func encodeLittleEndian(values ...any) []byte {
	var out bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			panic(err) // values have a fixed size
		}
	}
	return out.Bytes()
}
