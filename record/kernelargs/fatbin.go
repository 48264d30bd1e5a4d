package kernelargs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Magic numbers at the start of images.
const (
	magicELF     = 0x464c457f
	magicFatbin  = 0xba55ed50
	magicWrapper = 0x466243b1 // a structure of the CUDA runtime; the address of the fatbin is at 8
)

// A fatbin is a header and entries: one for each GPU architecture, as cubin or PTX. NVIDIA does not
// document it. The fields are those of CUDA 11 to 13.
const (
	fatbinHeaderBytes = 16 // magic u32, version u16, header size u16, bytes of all entries u64
	entryHeaderBytes  = 64
	entryPTX          = 1
	entryCubin        = 2
	entryFlagLZ4      = 1 << 13
	entryFlagZstd     = 1 << 15
)

// Limits of one image.
const (
	maxImageBytes = 64 << 20
	maxEntries    = 4096
)

// readFatbin returns the layouts of the kernels in a fatbin. It leaves out entries that it cannot read.
func readFatbin(r io.ReaderAt) (layouts, int64, error) {
	var header [fatbinHeaderBytes]byte
	if _, err := r.ReadAt(header[:], 0); err != nil {
		return nil, 0, err
	}
	at := int64(binary.LittleEndian.Uint16(header[6:]))
	size := binary.LittleEndian.Uint64(header[8:])
	if binary.LittleEndian.Uint32(header[:]) != magicFatbin || at < fatbinHeaderBytes || size > maxImageBytes {
		return nil, 0, fmt.Errorf("fatbin of %d bytes: it is damaged or too large", size)
	}
	found, end := make(layouts), at+int64(size)
	for n := 0; at < end && n < maxEntries; n++ {
		next, err := readEntry(r, at, end, found)
		if err != nil {
			return found, end, err
		}
		at = next
	}
	return found, end, nil
}

// readEntry adds the kernels of the entry at an offset, and returns the offset of the next one.
func readEntry(r io.ReaderAt, at, end int64, found layouts) (next int64, err error) {
	var header [entryHeaderBytes]byte
	if _, err := r.ReadAt(header[:], at); err != nil {
		return 0, err
	}
	kind, start := binary.LittleEndian.Uint16(header[:]), int64(binary.LittleEndian.Uint32(header[4:]))
	size, packed := binary.LittleEndian.Uint64(header[8:]), binary.LittleEndian.Uint32(header[16:])
	flags, whole := binary.LittleEndian.Uint64(header[40:]), binary.LittleEndian.Uint64(header[56:])
	if start < entryHeaderBytes || start > end-at || size > uint64(end-at-start) {
		return 0, fmt.Errorf("entry at %d of a fatbin is damaged", at)
	}
	data := make([]byte, size)
	if _, err := r.ReadAt(data, at+start); err != nil {
		return 0, err
	}
	next = at + start + int64(size)
	if data, err = unpack(data, flags, packed, whole); err != nil {
		return next, nil //nolint:nilerr // other entries may be readable
	}
	switch kind {
	case entryPTX:
		text, _, _ := bytes.Cut(data, []byte{0})
		found.addAll(parsePTX(string(text)))
	case entryCubin:
		if kernels, err := readCubin(bytes.NewReader(data), int64(len(data))); err == nil {
			found.addAll(kernels)
		}
	}
	return next, nil
}

// unpack returns the data of an entry. It has packed bytes in the file, and whole bytes after decompression.
func unpack(data []byte, flags uint64, packed uint32, whole uint64) ([]byte, error) {
	if flags&(entryFlagLZ4|entryFlagZstd) == 0 {
		return data, nil
	}
	if uint64(packed) > uint64(len(data)) || whole > maxImageBytes {
		return nil, fmt.Errorf("compressed entry of %d bytes: it is damaged or too large", whole)
	}
	if data = data[:packed]; flags&entryFlagZstd != 0 {
		in, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxImageBytes))
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return in.DecodeAll(data, nil)
	}
	out := make([]byte, whole)
	n, err := lz4.UncompressBlock(data, out)
	return out[:max(n, 0)], err
}
