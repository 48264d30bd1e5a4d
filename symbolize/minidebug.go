package symbolize

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// maxMiniDebugInfoBytes bounds the size of .gnu_debugdata in bytes, compressed and decompressed.
// For comparison: .symtab and .strtab of libLLVM have 24 MB.
const maxMiniDebugInfoBytes = 64 << 20

// errNotXZ is the error for data that is not an xz stream.
var errNotXZ = errors.New("not an xz stream")

// xzChecksumBytes is the length of a block's checksum in bytes, by check ID (xz file format 1.1,
// section 2.1.1.2).
var xzChecksumBytes = [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

// decompressXZStream decompresses one xz stream to at most limit bytes. It parses the container
// itself, because the library's xz reader allocates the dictionary that a block header claims, up
// to 4 GiB each. The library decodes only the LZMA2 data. decompressXZStream ignores the index and
// the footer after the blocks.
func decompressXZStream(packed []byte, limit int) (raw []byte, err error) {
	// The LZMA2 library indexes buffers by decoded values. No panic is known, but a panic must not
	// end the recorder.
	defer func() {
		if r := recover(); r != nil {
			raw, err = nil, fmt.Errorf("unpack LZMA2: %v", r)
		}
	}()
	if len(packed) < 12 || string(packed[:6]) != "\xfd7zXZ\x00" || packed[6] != 0 || packed[7] > 15 ||
		crc32.ChecksumIEEE(packed[6:8]) != binary.LittleEndian.Uint32(packed[8:]) {
		return nil, errNotXZ
	}
	x := &xzStream{rest: packed[12:], check: packed[7], limit: limit, dictionaries: 256 << 20}
	for {
		if len(x.rest) == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		if x.rest[0] == 0 { // the index starts here
			return bytes.Clone(x.raw.Bytes()), nil // without the buffer's spare capacity
		}
		if err := x.decompressBlock(); err != nil {
			return nil, err
		}
	}
}

// xzStream is the state of decompressing an xz stream.
type xzStream struct {
	rest  []byte // input from the start of the next block
	check byte   // check ID
	raw   bytes.Buffer
	limit int // largest length of raw in bytes
	// dictionaries is the remaining budget for dictionaries of all blocks, in bytes. 64 MiB of data
	// in blocks of the smallest size that xz creates need less than 128 MiB. Without a budget,
	// empty blocks would make the decoder clear gigabytes.
	dictionaries int64
}

// decompressBlock decompresses the next block and verifies its checksum.
func (x *xzStream) decompressBlock() error {
	dictionary, headerLen, err := x.readBlockHeader()
	if err != nil {
		return err
	}
	dictionary = max(lzma.MinDictCap, min(dictionary, int64(x.limit)))
	if x.dictionaries -= dictionary; x.dictionaries < 0 {
		return errors.New("dictionaries are too large in sum")
	}
	body := bytes.NewReader(x.rest[headerLen:])
	reader, err := lzma.Reader2Config{DictCap: int(dictionary)}.NewReader2(body)
	if err != nil {
		return err
	}
	start := x.raw.Len()
	if _, err := io.Copy(&x.raw, io.LimitReader(reader, int64(x.limit-start)+1)); err != nil {
		return err
	}
	if x.raw.Len() > x.limit {
		return fmt.Errorf("unpacks to more than %d bytes", x.limit)
	}
	if !reader.EOS() {
		return io.ErrUnexpectedEOF
	}
	end := len(x.rest) - body.Len()
	end += -end & 3 // blocks are padded to 4 bytes
	if end+xzChecksumBytes[x.check] > len(x.rest) {
		return io.ErrUnexpectedEOF
	}
	sum := x.rest[end : end+xzChecksumBytes[x.check]]
	x.rest = x.rest[end+len(sum):]
	return x.verifyBlockChecksum(x.raw.Bytes()[start:], sum)
}

// readBlockHeader returns the dictionary size in the block header and the length of the header, in
// bytes.
func (x *xzStream) readBlockHeader() (dictionary int64, length int, err error) {
	length = (int(x.rest[0]) + 1) * 4
	if length > len(x.rest) {
		return 0, 0, io.ErrUnexpectedEOF
	}
	header, sum := x.rest[:length-4], x.rest[length-4:length]
	if crc32.ChecksumIEEE(header) != binary.LittleEndian.Uint32(sum) {
		return 0, 0, errors.New("checksum of the block header differs")
	}
	flags, fields := header[1], header[2:]
	unpacked := int64(-1)
	for _, present := range []bool{flags&0x40 != 0, flags&0x80 != 0} { // compressed size, then uncompressed size
		if !present {
			unpacked = -1
			continue
		}
		value, n := binary.Uvarint(fields)
		if n <= 0 || value > 1<<62 {
			return 0, 0, errNotXZ
		}
		fields, unpacked = fields[n:], int64(value)
	}
	// Distributions use only one filter: LZMA2 (ID 0x21), with one byte of properties.
	if flags&0x3f != 0 || len(fields) < 3 || fields[0] != 0x21 || fields[1] != 1 {
		return 0, 0, errors.New("compressed by another method than LZMA2")
	}
	if dictionary, err = lzma.DecodeDictCap(fields[2]); err != nil {
		return 0, 0, err
	}
	if unpacked >= 0 {
		dictionary = min(dictionary, unpacked)
	}
	return dictionary, length, nil
}

// verifyBlockChecksum compares a block with its checksum. It accepts kinds of checksums that xz
// does not create by default.
func (x *xzStream) verifyBlockChecksum(raw, sum []byte) error {
	var h hash.Hash
	switch x.check {
	case 1:
		h = crc32.NewIEEE()
	case 4:
		h = crc64.New(crc64.MakeTable(crc64.ECMA))
	default:
		return nil
	}
	h.Write(raw)
	want := h.Sum(nil) // big-endian; xz stores little-endian
	for i := range want {
		if want[i] != sum[len(sum)-1-i] {
			return errors.New("checksum of the block differs")
		}
	}
	return nil
}
