package kernelargs

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// Attributes of sections .nv.info.KERNEL, as cuobjdump -elf prints them.
const (
	formatNone     = 1 // an attribute without a value
	formatByte     = 2
	formatHalf     = 3
	formatSized    = 4    // 2 bytes of length, and the value
	attrKparamInfo = 0x17 // EIATTR_KPARAM_INFO: index u32, ordinal u16, offset u16, size in the bits from 18 on
	kparamBytes    = 12
	sizeShift      = 18
)

// infoPrefix begins the names of sections with the attributes of a kernel.
const infoPrefix = ".nv.info."

// Limits of one cubin.
const (
	maxInfoBytes  = 1 << 20 // bytes of the attributes of a kernel
	maxNamesBytes = 16 << 20
	maxKernels    = 1 << 16
)

var errNoCubin = errors.New("is no cubin that gpurec can read")

// readCubin returns the layouts of the kernels in a cubin of size bytes.
func readCubin(r io.ReaderAt, size int64) (layouts, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return nil, err
	}
	names, err := sectionNames(f, r, size)
	if err != nil {
		return nil, err
	}
	found := make(layouts)
	for i := range f.Sections {
		s := &f.Sections[i]
		kernel, ok := strings.CutPrefix(nameAt(names, s.Name), infoPrefix)
		if !ok || kernel == "" || len(found) == maxKernels || elf.SectionType(s.Type) == elf.SHT_NOBITS {
			continue
		}
		raw, err := f.Read(s.Off, s.Size, maxInfoBytes)
		if err != nil {
			continue
		}
		if l, ok := parseInfo(raw); ok {
			found.add(kernel, l)
		}
	}
	return found, nil
}

// sectionNames returns the table of the names of sections.
func sectionNames(f *elffile.File, r io.ReaderAt, size int64) ([]byte, error) {
	var header elf.Header64
	raw := make([]byte, binary.Size(header))
	if _, err := r.ReadAt(raw, 0); err != nil {
		return nil, err
	}
	if _, err := binary.Decode(raw, binary.LittleEndian, &header); err != nil {
		return nil, err
	}
	if int(header.Shstrndx) >= len(f.Sections) {
		return nil, errNoCubin
	}
	table := &f.Sections[header.Shstrndx]
	return f.Read(table.Off, table.Size, min(maxNamesBytes, uint64(size)))
}

// nameAt returns the text at an offset of a table of names.
func nameAt(names []byte, at uint32) string {
	if uint64(at) >= uint64(len(names)) {
		return ""
	}
	text, _, _ := strings.Cut(string(names[at:min(len(names), int(at)+1<<15)]), "\x00")
	return text
}

// parseInfo returns the layout in the attributes of a kernel. It returns false if they are damaged.
func parseInfo(raw []byte) (Layout, bool) {
	type parameter struct {
		Parameter
		ordinal uint16
	}
	var list []parameter
	for len(raw) >= 4 {
		value, next := raw[4:], 4
		switch raw[0] {
		case formatNone, formatByte, formatHalf:
			value = nil
		case formatSized:
			n := int(binary.LittleEndian.Uint16(raw[2:]))
			if n > len(value) {
				return nil, false
			}
			value, next = value[:n], 4+n
		default:
			return nil, false
		}
		if raw[1] == attrKparamInfo && len(value) >= kparamBytes && len(list) < maxParameters {
			list = append(list, parameter{
				Parameter{
					uint32(binary.LittleEndian.Uint16(value[6:])),
					binary.LittleEndian.Uint32(value[8:]) >> sizeShift,
				},
				binary.LittleEndian.Uint16(value[4:]),
			})
		}
		raw = raw[next:]
	}
	slices.SortFunc(list, func(a, b parameter) int { return cmp.Compare(a.ordinal, b.ordinal) })
	l := make(Layout, len(list))
	for i, p := range list {
		if int(p.ordinal) != i {
			return nil, false
		}
		l[i] = p.Parameter
	}
	return l, l.isValid()
}
