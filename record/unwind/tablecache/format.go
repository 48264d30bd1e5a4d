//go:build linux

package tablecache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"unsafe"
)

// Table is an unwind table, as the BPF programs of the unwinder read it.
type Table struct {
	// FirstPage is the address of the first page of 64 KiB. Pages has the number of deltas in each
	// page.
	FirstPage uint64
	Pages     []uint16
	// Deltas are ordered by address. The low 16 bits are the address in the page. The high 16 bits
	// are the index of an info, or a command: its highest bit is set.
	Deltas []uint32
	// Infos describe how to unwind a frame, infoBytes each.
	Infos []byte
}

const (
	magic      = "GPRTABLE"
	version    = 1
	infoBytes  = 12
	commandBit = 1 << 15

	maxInfos  = 1 << 14
	maxPages  = 1 << 20
	maxDeltas = 1<<23 - 1

	crcAt       = 12
	keyAt       = 16
	prefixBytes = keyAt + 32 + 8 + 3*4 // all that precedes Infos
	// maxFileBytes is the size of the longest table.
	maxFileBytes = prefixBytes + infoBytes*maxInfos + 2*maxPages + 4*maxDeltas
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("the table is damaged")

// check returns an error if the table cannot be one that format accepts.
func (t *Table) check() error {
	infos := len(t.Infos) / infoBytes
	if len(t.Infos)%infoBytes != 0 || infos > maxInfos || len(t.Pages) > maxPages || len(t.Deltas) > maxDeltas {
		return errDamaged
	}
	sum := 0
	for _, n := range t.Pages {
		sum += int(n)
	}
	if sum != len(t.Deltas) {
		return errDamaged
	}
	for _, d := range t.Deltas {
		if number := d >> 16; number&commandBit == 0 && int(number) >= infos {
			return errDamaged
		}
	}
	return nil
}

// format returns the file of a table, in little-endian order: magic, version, checksum of all that
// follows, key, FirstPage, the numbers of bytes of Infos and of elements of Pages and Deltas, then
// Infos, Deltas and Pages.
func format(key [32]byte, t Table) ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, prefixBytes+len(t.Infos)+4*len(t.Deltas)+2*len(t.Pages))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, key[:]...)
	b = binary.LittleEndian.AppendUint64(b, t.FirstPage)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Infos)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Pages)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Deltas)))
	b = append(b, t.Infos...)
	for _, d := range t.Deltas {
		b = binary.LittleEndian.AppendUint32(b, d)
	}
	for _, n := range t.Pages {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	binary.LittleEndian.PutUint32(b[crcAt:], crc32.Checksum(b[keyAt:], castagnoli))
	return b, nil
}

// parse reads the file of a table. The table's members are parts of data, which begins at a multiple of 4 bytes.
func parse(key [32]byte, data []byte) (*Table, error) {
	if len(data) < prefixBytes || string(data[:len(magic)]) != magic ||
		binary.LittleEndian.Uint32(data[len(magic):]) != version ||
		binary.LittleEndian.Uint32(data[crcAt:]) != crc32.Checksum(data[keyAt:], castagnoli) ||
		!bytes.Equal(data[keyAt:keyAt+len(key)], key[:]) {
		return nil, errDamaged
	}
	sizes := data[keyAt+len(key)+8:]
	infos := int64(binary.LittleEndian.Uint32(sizes))
	pages := int64(binary.LittleEndian.Uint32(sizes[4:]))
	deltas := int64(binary.LittleEndian.Uint32(sizes[8:]))
	if int64(len(data)) != prefixBytes+infos+4*deltas+2*pages || infos%infoBytes != 0 {
		return nil, errDamaged
	}
	t := &Table{
		FirstPage: binary.LittleEndian.Uint64(data[keyAt+len(key):]),
		Infos:     data[prefixBytes : prefixBytes+infos],
	}
	// All processors that gpurec runs on are little-endian.
	rest := data[prefixBytes+infos:]
	if deltas > 0 {
		t.Deltas = unsafe.Slice((*uint32)(unsafe.Pointer(&rest[0])), deltas)
	}
	if rest = rest[4*deltas:]; pages > 0 {
		t.Pages = unsafe.Slice((*uint16)(unsafe.Pointer(&rest[0])), pages)
	}
	return t, t.check()
}
