package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxDecompressedBytes bounds the size of a section after decompression, in bytes. The .debug_info
// of an LLVM build has 700 MB.
const maxDecompressedBytes = 1 << 30

// Section is the content of one section. Its methods read only the bytes that they need. The zero
// value is an empty section.
type Section struct {
	r         io.ReaderAt
	off, size uint64
}

// Section returns the content of the section with a name, or an empty Section if the file has none.
// It decompresses a compressed section into memory, up to 1 GiB.
func (f *File) Section(name string) (Section, error) {
	header := f.SectionByName(name)
	if header == nil {
		return Section{}, nil
	}
	if !f.Has(header.Off, header.Size) {
		return Section{}, fmt.Errorf("%s reaches past the end of the file", name)
	}
	if elf.SectionFlag(header.Flags)&elf.SHF_COMPRESSED == 0 {
		return Section{f.r, header.Off, header.Size}, nil
	}
	raw, err := f.decompressSection(header)
	if err != nil {
		return Section{}, fmt.Errorf("unpack %s: %w", name, err)
	}
	return Section{bytes.NewReader(raw), 0, uint64(len(raw))}, nil
}

// decompressSection returns the content of a compressed section. It uses debug/elf, the only access
// to the standard library's zstd. It passes debug/elf a file with only this section, because
// debug/elf reads files without limits.
func (f *File) decompressSection(header *elf.Section64) ([]byte, error) {
	ident := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	copy(ident.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	packed := *header
	packed.Name, packed.Off = 0, 4*64
	// The string table is one zero byte of the first section header.
	noNames := elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: 64, Size: 1}
	var head bytes.Buffer
	for _, part := range []any{ident, elf.Section64{}, packed, noNames} {
		if err := binary.Write(&head, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	body := io.NewSectionReader(f.r, int64(header.Off), int64(header.Size))
	file, err := elf.NewFile(&prependedReader{head.Bytes(), body})
	if err != nil {
		return nil, err
	}
	s := file.Sections[1]
	switch {
	case s.Size > maxDecompressedBytes:
		return nil, fmt.Errorf("more than %d bytes", maxDecompressedBytes)
	case s.Size/32 > header.Size:
		// Debug information typically compresses to a quarter. A much larger claim is not trusted:
		// Data grows its buffer as it decompresses.
		return s.Data()
	}
	raw := make([]byte, s.Size)
	_, err = io.ReadFull(s.Open(), raw)
	return raw, err
}

// prependedReader is an io.ReaderAt that reads head, then rest.
type prependedReader struct {
	head []byte
	rest io.ReaderAt
}

func (r *prependedReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	if off < int64(len(r.head)) {
		if n = copy(p, r.head[off:]); n == len(p) {
			return n, nil
		}
	}
	m, err := r.rest.ReadAt(p[n:], off+int64(n)-int64(len(r.head)))
	return n + m, err
}

// Size returns the size of the section in bytes.
func (s Section) Size() uint64 { return s.size }

// Bytes returns n bytes from offset. If the section ends earlier, the error matches
// io.ErrUnexpectedEOF.
func (s Section) Bytes(offset, n uint64) ([]byte, error) {
	if offset > s.size || n > s.size-offset {
		return nil, io.ErrUnexpectedEOF
	}
	if n == 0 {
		return nil, nil // an empty section has no reader
	}
	raw := make([]byte, n)
	if got, err := s.r.ReadAt(raw, int64(s.off+offset)); got < len(raw) {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return raw, nil
}

// Text returns the string from offset to the next NUL byte, at most MaxTextBytes+1 bytes. It
// returns "" for an offset outside of the section.
func (s Section) Text(offset uint64) string {
	if offset >= s.size {
		return ""
	}
	return readNULTerminatedText(s.r, s.off+offset, s.off+s.size)
}

// Number returns the little-endian number of size bytes, 1 to 8, at offset.
func (s Section) Number(offset uint64, size int) (uint64, error) {
	raw, err := s.Bytes(offset, uint64(size))
	if err != nil {
		return 0, err
	}
	c := Cursor{Data: raw}
	return c.Uint(size), nil
}

// Parse calls read with a Cursor at offset. If the Cursor fails, Parse calls read again with more
// bytes, up to 16 MiB. So read must start from scratch at each call.
func (s Section) Parse(offset uint64, read func(c *Cursor)) error {
	const most = 16 << 20
	if offset > s.size {
		return io.ErrUnexpectedEOF
	}
	for n := uint64(1 << 10); ; n *= 8 {
		raw, err := s.Bytes(offset, min(n, most, s.size-offset))
		if err != nil {
			return err
		}
		c := &Cursor{Data: raw}
		read(c)
		if !c.Failed {
			return nil
		}
		if n >= most || n >= s.size-offset {
			return io.ErrUnexpectedEOF
		}
	}
}
