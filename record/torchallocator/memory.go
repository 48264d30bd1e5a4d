//go:build linux

package torchallocator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Memory is the memory of a process.
type Memory interface {
	// ReadParts fills the data of parts, and sets IsMissing of those that it cannot read as a whole. calls is the
	// number of system calls. It returns ErrDenied or ErrEnded if no part can be read.
	ReadParts(parts []Part) (calls int, err error)
}

// Part is a part of the memory of a process.
type Part struct {
	Address   uint64
	Data      []byte
	IsMissing bool
}

// ProcessMemory reads the memory of a process by process_vm_readv, which stops nothing. It is the process's pid.
type ProcessMemory int

// maxPartsPerCall is the number of parts that the kernel accepts: UIO_MAXIOV.
const maxPartsPerCall = 1024

// ReadParts implements Memory.
func (m ProcessMemory) ReadParts(parts []Part) (calls int, err error) {
	var local [maxPartsPerCall]unix.Iovec
	var remote [maxPartsPerCall]unix.RemoteIovec
	for len(parts) > 0 {
		batch := parts[:min(len(parts), maxPartsPerCall)]
		for i := range batch {
			local[i] = unix.Iovec{Base: &batch[i].Data[0]}
			local[i].SetLen(len(batch[i].Data))
			remote[i] = unix.RemoteIovec{Base: uintptr(batch[i].Address), Len: len(batch[i].Data)}
		}
		n, err := unix.ProcessVMReadv(int(m), local[:len(batch)], remote[:len(batch)], 0)
		calls++
		switch {
		case errors.Is(err, unix.EPERM):
			return calls, ErrDenied
		case errors.Is(err, unix.ESRCH):
			return calls, ErrEnded
		}
		done := 0
		for ; done < len(batch) && n >= len(batch[done].Data); done++ {
			n -= len(batch[done].Data)
		}
		if done < len(batch) {
			batch[done].IsMissing = true // the kernel stops at the first part that it cannot read
			done++
		}
		parts = parts[done:]
	}
	return calls, nil
}

// Bounds of one reading.
const (
	maxReadBytes    = 64 << 20
	maxMissingParts = 64  // a consistent allocator has none
	mergedGapBytes  = 256 // parts with at most so many bytes between them are read as one
)

// key names a part that a reading needs.
type key struct {
	at     uint64
	length uint64
}

// image has those parts of a process's memory that one reading needs. Each part is read once.
type image struct {
	memory         Memory
	parts          map[key][]byte // nil: missing
	used           []key          // in this reading; with repetitions
	buffers, spare [][]byte
	bytes, calls   int // that were read since the last refresh
	missing        int
}

func newImage(m Memory) *image { return &image{memory: m, parts: make(map[key][]byte)} }

// refresh begins a new reading. It reads all parts that the last reading used: nearly all that the new one needs.
func (img *image) refresh() error {
	known := img.used
	img.forget()
	return img.read(known)
}

// forget makes the image empty.
func (img *image) forget() {
	clear(img.parts)
	img.spare, img.buffers = append(img.spare, img.buffers...), nil
	img.used, img.bytes, img.calls, img.missing = nil, 0, 0, 0
}

// load reads those parts of length bytes that the image does not have.
func (img *image) load(addresses []uint64, length uint64) error {
	var unknown []key
	for _, at := range addresses {
		k := key{at, length}
		img.used = append(img.used, k)
		if _, ok := img.parts[k]; !ok {
			unknown = append(unknown, k)
		}
	}
	return img.read(unknown)
}

// get returns a part that was loaded. ok is false if it is missing.
func (img *image) get(at, length uint64) (data []byte, ok bool) {
	data = img.parts[key{at, length}]
	return data, data != nil
}

// fetch loads one part and returns it.
func (img *image) fetch(at, length uint64) (data []byte, err error) {
	if err := img.load([]uint64{at}, length); err != nil {
		return nil, err
	}
	data, ok := img.get(at, length)
	if !ok {
		return nil, errUnreadable
	}
	return data, nil
}

// read reads parts. It merges neighbors, and reads the parts of a merged piece one by one if it is not readable.
func (img *image) read(keys []key) error {
	slices.SortFunc(
		keys,
		func(a, b key) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.length, b.length)) },
	)
	keys = slices.Compact(keys)
	pieces, err := img.plan(keys)
	if err != nil || len(pieces) == 0 {
		return err
	}
	if err := img.readPieces(pieces); err != nil {
		return err
	}
	var again []key
	next := 0
	for i := range pieces {
		p := &pieces[i]
		end := p.Address + uint64(len(p.Data))
		for first := next; next < len(keys) && keys[next].at+keys[next].length <= end; next++ {
			k := keys[next]
			switch {
			case !p.IsMissing:
				img.parts[k] = p.Data[k.at-p.Address:][:k.length]
			case first == next && k.length == uint64(len(p.Data)):
				img.parts[k] = nil
			default:
				again = append(again, k)
			}
		}
	}
	return img.readApart(again)
}

// readApart reads parts one by one.
func (img *image) readApart(keys []key) error {
	if len(keys) == 0 {
		return nil
	}
	pieces := make([]Part, len(keys))
	for i, k := range keys {
		data, err := img.buffer(k.length)
		if err != nil {
			return err
		}
		pieces[i] = Part{Address: k.at, Data: data}
	}
	if err := img.readPieces(pieces); err != nil {
		return err
	}
	for i, k := range keys {
		img.parts[k] = nil
		if !pieces[i].IsMissing {
			img.parts[k] = pieces[i].Data
		}
	}
	return nil
}

// plan returns pieces of memory that have all parts. keys is sorted.
func (img *image) plan(keys []key) (pieces []Part, err error) {
	type span struct{ at, end uint64 }
	var spans []span
	for _, k := range keys {
		end := k.at + k.length
		if end < k.at || k.at == 0 {
			return nil, errUnreadable
		}
		if n := len(spans); n > 0 && k.at <= spans[n-1].end+mergedGapBytes {
			spans[n-1].end = max(spans[n-1].end, end)
		} else {
			spans = append(spans, span{k.at, end})
		}
	}
	for _, s := range spans {
		data, err := img.buffer(s.end - s.at)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, Part{Address: s.at, Data: data})
	}
	return pieces, nil
}

func (img *image) readPieces(pieces []Part) error {
	calls, err := img.memory.ReadParts(pieces)
	img.calls += calls
	if err != nil {
		return err
	}
	for i := range pieces {
		if pieces[i].IsMissing {
			img.missing++
		}
	}
	if img.missing > maxMissingParts {
		return errUnreadable
	}
	return nil
}

// bufferBytes is the size of the buffers that pieces share.
const bufferBytes = 32 << 10

// buffer returns memory for a piece.
func (img *image) buffer(length uint64) ([]byte, error) {
	if length > maxReadBytes || img.bytes+int(length) > maxReadBytes {
		return nil, errTooLarge
	}
	img.bytes += int(length)
	n := len(img.buffers) - 1
	if n < 0 || uint64(cap(img.buffers[n])-len(img.buffers[n])) < length {
		img.buffers = append(img.buffers, img.newBuffer(length))
		n++
	}
	b := &img.buffers[n]
	begin := len(*b)
	*b = (*b)[:begin+int(length)]
	return (*b)[begin:len(*b):len(*b)], nil
}

// newBuffer returns an empty buffer of at least length bytes.
func (img *image) newBuffer(length uint64) []byte {
	for i, b := range img.spare {
		if uint64(cap(b)) >= length {
			img.spare = slices.Delete(img.spare, i, i+1)
			return b[:0]
		}
	}
	return make([]byte, 0, max(length, bufferBytes))
}

// word returns 8 bytes of data as a number.
func word(data []byte, at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }

// half returns 4 bytes of data as a number.
func half(data []byte, at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
