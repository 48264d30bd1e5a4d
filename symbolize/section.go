package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// maxUnpacked bounds what one compressed section may unpack to. .debug_info of a build of LLVM has 700 MB.
const maxUnpacked = 1 << 30

// section is the bytes of one section of a file, of which only what is asked for is read. The zero value is empty.
type section struct {
	r         io.ReaderAt
	off, size uint64
}

// openSection returns the section of that name, empty where the file has none. A compressed one is unpacked into memory.
func (f *elfFile) openSection(name string) (section, error) {
	header := f.sectionByName(name)
	if header == nil {
		return section{}, nil
	}
	if header.Off > f.size || header.Size > f.size-header.Off {
		return section{}, fmt.Errorf("%s reaches past the end of the file", name)
	}
	if elf.SectionFlag(header.Flags)&elf.SHF_COMPRESSED == 0 {
		return section{f.r, header.Off, header.Size}, nil
	}
	raw, err := f.unpack(header)
	if err != nil {
		return section{}, fmt.Errorf("unpack %s: %w", name, err)
	}
	return section{bytes.NewReader(raw), 0, uint64(len(raw))}, nil
}

// unpack returns the contents of a compressed section. debug/elf does it, the only way to the standard library's zstd; it is
// given a file with nothing but this section, since whole files it reads without limits.
func (f *elfFile) unpack(header *elf.Section64) ([]byte, error) {
	ident := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: 64,
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2}
	copy(ident.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	packed := *header
	packed.Name, packed.Off = 0, 4*64
	noNames := elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: 64, Size: 1} // a zero byte of the first section header
	var head bytes.Buffer
	for _, part := range []any{ident, elf.Section64{}, packed, noNames} {
		if err := binary.Write(&head, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	file, err := elf.NewFile(&headed{head.Bytes(), io.NewSectionReader(f.r, int64(header.Off), int64(header.Size))})
	if err != nil {
		return nil, err
	}
	s := file.Sections[1]
	switch {
	case s.Size > maxUnpacked:
		return nil, fmt.Errorf("more than %d bytes", maxUnpacked)
	case s.Size/32 > header.Size: // debug information shrinks to a quarter: do not believe it, grow with what comes
		return s.Data()
	}
	raw := make([]byte, s.Size)
	_, err = io.ReadFull(s.Open(), raw)
	return raw, err
}

// headed is a reader with a few bytes in front of it.
type headed struct {
	head []byte
	rest io.ReaderAt
}

func (h *headed) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	if off < int64(len(h.head)) {
		if n = copy(p, h.head[off:]); n == len(p) {
			return n, nil
		}
	}
	m, err := h.rest.ReadAt(p[n:], off+int64(n)-int64(len(h.head)))
	return n + m, err
}

// bytes returns n bytes from offset on.
func (s section) bytes(offset, n uint64) ([]byte, error) {
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

// string returns the string at offset, "" if it lies outside.
func (s section) string(offset uint64) string {
	if offset >= s.size {
		return ""
	}
	return readString(s.r, s.off+offset, s.off+s.size)
}

// number returns the little-endian number of size bytes at offset.
func (s section) number(offset uint64, size int) (uint64, error) {
	raw, err := s.bytes(offset, uint64(size))
	if err != nil {
		return 0, err
	}
	c := cursor{data: raw}
	return c.uint(size), nil
}

// parse calls read with a cursor at offset, again with more bytes whenever these were not enough, up to 16 MiB. read starts
// from scratch each time.
func (s section) parse(offset uint64, read func(c *cursor)) error {
	const most = 16 << 20
	if offset > s.size {
		return io.ErrUnexpectedEOF
	}
	for n := uint64(1 << 10); ; n *= 8 {
		raw, err := s.bytes(offset, min(n, most, s.size-offset))
		if err != nil {
			return err
		}
		c := &cursor{data: raw}
		read(c)
		if !c.failed {
			return nil
		}
		if n >= most || n >= s.size-offset {
			return io.ErrUnexpectedEOF
		}
	}
}

// cursor reads numbers off bytes in memory. Behind the end all numbers are 0 and failed is set.
type cursor struct {
	data   []byte
	at     int
	failed bool
}

// take returns the next n bytes, nil if there are not as many.
func (c *cursor) take(n uint64) []byte {
	if c.failed || n > uint64(len(c.data)-c.at) {
		c.failed = true
		c.at = len(c.data)
		return nil
	}
	c.at += int(n)
	return c.data[c.at-int(n) : c.at]
}

// uint reads a number of 1 to 8 bytes.
func (c *cursor) uint(size int) uint64 {
	var n uint64
	for i, b := range c.take(uint64(size)) {
		n |= uint64(b) << (8 * i)
	}
	return n
}

// uleb reads an unsigned LEB128 number; bits beyond 64 are dropped.
func (c *cursor) uleb() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		if c.at >= len(c.data) || shift > math.MaxUint16 {
			c.failed = true
			return 0
		}
		b := c.data[c.at]
		c.at++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

// sleb reads a signed LEB128 number.
func (c *cursor) sleb() int64 {
	start := c.at
	n := c.uleb()
	if bits := 7 * (c.at - start); !c.failed && bits < 64 && c.data[c.at-1]&0x40 != 0 {
		n |= ^uint64(0) << bits
	}
	return int64(n)
}

// text reads a string that ends in a NUL byte.
func (c *cursor) text() string {
	n := bytes.IndexByte(c.data[c.at:], 0)
	if n < 0 {
		c.failed = true
		return ""
	}
	c.at += n + 1
	return string(c.data[c.at-n-1 : c.at-1])
}

// skipText is text for those who do not want it.
func (c *cursor) skipText() {
	n := bytes.IndexByte(c.data[c.at:], 0)
	if n < 0 {
		c.failed = true
		return
	}
	c.at += n + 1
}
