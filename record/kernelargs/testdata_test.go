package kernelargs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// testKernel is a kernel of a cubin for tests.
type testKernel struct {
	name   string
	layout Layout
}

// infoOf returns the attributes of a kernel as nvcc writes them: the last parameter first, between others.
func infoOf(l Layout) []byte {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	put(uint8(formatSized), uint8(0x37), uint16(4), uint32(130)) // EIATTR_CUDA_API_VERSION
	put(uint8(formatHalf), uint8(0x1b), uint16(255))             // EIATTR_MAXREG_COUNT
	for i := len(l) - 1; i >= 0; i-- {
		put(uint8(formatSized), uint8(attrKparamInfo), uint16(kparamBytes), uint32(0), uint16(i), uint16(l[i].Offset),
			l[i].Size<<sizeShift|0x1f000)
	}
	put(uint8(formatNone), uint8(0x02), uint16(0))
	return b.Bytes()
}

// cubinOf returns a cubin with kernels.
func cubinOf(kernels ...testKernel) []byte {
	names := []byte("\x00.shstrtab\x00")
	var data bytes.Buffer
	sections := []elf.Section64{{}, {Name: 1, Type: uint32(elf.SHT_STRTAB)}}
	const headerBytes = 64
	for _, k := range kernels {
		info := infoOf(k.layout)
		sections = append(sections, elf.Section64{
			Name: uint32(len(names)), Type: 0x70000000, Off: uint64(headerBytes + data.Len()), Size: uint64(len(info)),
		})
		names = append(append(names, infoPrefix+k.name...), 0)
		data.Write(info)
	}
	sections[1].Off, sections[1].Size = uint64(headerBytes+data.Len()), uint64(len(names))
	data.Write(names)
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: 190, Version: 1, Shoff: uint64(headerBytes + data.Len()), Ehsize: 64,
		Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	var b bytes.Buffer
	for _, part := range []any{header, data.Bytes(), sections} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// testEntry is an entry of a fatbin for tests.
type testEntry struct {
	kind  uint16
	data  []byte
	flags uint64
}

// fatbinOf returns a fatbin. It compresses the entries with a flag.
func fatbinOf(t testing.TB, entries ...testEntry) []byte {
	t.Helper()
	var body bytes.Buffer
	for _, e := range entries {
		data, whole := e.data, 0
		switch {
		case e.flags&entryFlagLZ4 != 0:
			whole = len(data)
			packed := make([]byte, lz4.CompressBlockBound(len(data)))
			n, err := lz4.CompressBlock(data, packed, nil)
			if err != nil || n == 0 {
				t.Fatalf("compress %d bytes: %d, %v", len(data), n, err)
			}
			data = packed[:n]
		case e.flags&entryFlagZstd != 0:
			whole = len(data)
			out, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			data = out.EncodeAll(data, nil)
		}
		packed := len(data)
		for len(data)%8 != 0 {
			data = append(data, 0)
		}
		header := make([]byte, entryHeaderBytes)
		binary.LittleEndian.PutUint16(header, e.kind)
		binary.LittleEndian.PutUint32(header[4:], entryHeaderBytes)
		binary.LittleEndian.PutUint64(header[8:], uint64(len(data)))
		binary.LittleEndian.PutUint32(header[16:], uint32(packed))
		binary.LittleEndian.PutUint64(header[40:], e.flags)
		binary.LittleEndian.PutUint64(header[56:], uint64(whole))
		body.Write(header)
		body.Write(data)
	}
	header := make([]byte, fatbinHeaderBytes)
	binary.LittleEndian.PutUint32(header, magicFatbin)
	binary.LittleEndian.PutUint16(header[4:], 1)
	binary.LittleEndian.PutUint16(header[6:], fatbinHeaderBytes)
	binary.LittleEndian.PutUint64(header[8:], uint64(body.Len()))
	return append(header, body.Bytes()...)
}
