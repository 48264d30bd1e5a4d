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
	maxMissingParts = 64 // a consistent allocator has none
)

// Parts with at most so many bytes between them are read as one. Few parts are read faster with larger gaps. Many would
// exceed the bound of a reading.
const (
	gapBytes        = 1024
	gapBytesForMany = 128
	manyParts       = 32 << 10
)

// key names a part of the memory that a reading needs.
type key struct {
	at     uint64
	length uint64
}

// image has those parts of a process's memory that readings of blocks need. It reads all of them again in one go, which
// takes few system calls, because the next reading needs nearly the same ones.
type image struct {
	memory Memory
	parts  map[key]*imagePart
	pieces []Part // what is read: each has one or several parts
	bytes  int    // of all pieces
	// arena has the pieces of the last call of prepare. unused is its rest while pieces are planned.
	arena, unused []byte
	// calls and readBytes count what was read since the last reread. isLoaded is set if parts were loaded since then.
	calls, readBytes int
	isLoaded         bool
	missing          int // pieces that could not be read since then
	rereads          int
}

// imagePart is a part in a piece. piece is a number in image.pieces.
type imagePart struct {
	data   []byte
	piece  int
	isUsed bool // since the last eviction
	// followed is the memory whose pointers a survey has followed already.
	followed []byte
}

func newImage(m Memory) *image { return &image{memory: m, parts: make(map[key]*imagePart)} }

// forget makes the image empty.
func (img *image) forget() {
	clear(img.parts)
	img.pieces, img.bytes, img.missing = nil, 0, 0
}

// rereadsPerEviction is the number of readings after which parts that were not needed meanwhile are left out. Objects
// come back to the same places in the heap, so parts that one reading does not need are often needed by a later one.
const rereadsPerEviction = 64

// prepare makes the next reread fast: it merges parts that are neighbors, and leaves out missing ones.
func (img *image) prepare() error {
	img.rereads++
	mustEvict := img.rereads%rereadsPerEviction == 0
	if !mustEvict && !img.isLoaded && img.missing == 0 {
		return nil
	}
	var keys []key
	for k, p := range img.parts {
		if img.pieces[p.piece].IsMissing || mustEvict && !p.isUsed {
			delete(img.parts, k)
			continue
		}
		p.isUsed = p.isUsed && !mustEvict
		keys = append(keys, k)
	}
	if cap(img.arena) < img.bytes {
		img.arena = make([]byte, img.bytes+img.bytes/4)
		clear(img.arena) // so that the kernel gives it memory now, and not while the allocator pauses
	}
	img.unused = img.arena
	img.pieces, img.bytes, img.missing, img.isLoaded = nil, 0, 0, false
	_, err := img.plan(keys)
	img.unused = nil // the next plan takes the whole arena
	return err
}

// reread reads all parts again, and what is watched before and behind them.
func (img *image) reread(before, behind Part) error {
	img.calls, img.readBytes, img.isLoaded, img.missing = 0, 0, false, 0
	all := slices.Concat([]Part{before}, img.pieces, []Part{behind})
	if err := img.readPieces(all); err != nil {
		return err
	}
	for i := range img.pieces {
		img.pieces[i].IsMissing = all[i+1].IsMissing
	}
	return nil
}

// load reads those parts of length bytes that the image does not have.
func (img *image) load(addresses []uint64, length uint64) error {
	var unknown []key
	for _, at := range addresses {
		k := key{at, length}
		if p := img.parts[k]; p == nil || img.pieces[p.piece].IsMissing {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	img.isLoaded = true
	first, err := img.plan(unknown)
	if err != nil {
		return err
	}
	if err := img.readPieces(img.pieces[first:]); err != nil {
		return err
	}
	return img.readApart(first)
}

// readApart reads the parts of pieces from a number on again, each as a piece of its own, if their piece is missing.
func (img *image) readApart(first int) error {
	if !slices.ContainsFunc(img.pieces[first:], func(p Part) bool { return p.IsMissing }) {
		return nil
	}
	var again []key
	for k, p := range img.parts {
		if p.piece >= first && img.pieces[p.piece].IsMissing && uint64(len(img.pieces[p.piece].Data)) > k.length {
			again = append(again, k)
		}
	}
	first = len(img.pieces)
	for _, k := range again {
		if err := img.addPiece(k.at, k.at+k.length); err != nil {
			return err
		}
		n := len(img.pieces) - 1
		img.parts[k] = &imagePart{data: img.pieces[n].Data, piece: n, isUsed: true}
	}
	return img.readPieces(img.pieces[first:])
}

// get returns a part that was loaded. ok is false if it could not be read.
func (img *image) get(at, length uint64) (data []byte, ok bool) {
	p := img.parts[key{at, length}]
	if p == nil || img.pieces[p.piece].IsMissing {
		return nil, false
	}
	p.isUsed = true
	return p.data, true
}

// has reports whether a part was loaded and could be read.
func (img *image) has(at, length uint64) bool {
	p := img.parts[key{at, length}]
	return p != nil && !img.pieces[p.piece].IsMissing
}

// drop leaves a part out of later readings.
func (img *image) drop(at, length uint64) {
	delete(img.parts, key{at, length})
	img.isLoaded = true // so that prepare plans the pieces again
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

// plan adds parts, and pieces that have them. It merges neighbors. It returns the number of the first new piece.
func (img *image) plan(keys []key) (first int, err error) {
	slices.SortFunc(
		keys,
		func(a, b key) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.length, b.length)) },
	)
	keys = slices.Compact(keys)
	first = len(img.pieces)
	gap := uint64(gapBytes)
	if len(keys)+len(img.parts) > manyParts {
		gap = gapBytesForMany
	}
	for i := 0; i < len(keys); {
		at, end, n := keys[i].at, uint64(0), i
		for ; n < len(keys) && (n == i || keys[n].at <= end+gap); n++ {
			if keys[n].at == 0 || keys[n].at+keys[n].length < keys[n].at {
				return first, errUnreadable
			}
			end = max(end, keys[n].at+keys[n].length)
		}
		if err := img.addPiece(at, end); err != nil {
			return first, err
		}
		piece := len(img.pieces) - 1
		for ; i < n; i++ {
			p := img.parts[keys[i]]
			if p == nil {
				p = new(imagePart)
				img.parts[keys[i]] = p
			}
			p.data, p.piece = img.pieces[piece].Data[keys[i].at-at:][:keys[i].length], piece
		}
	}
	return first, nil
}

// addPiece adds a piece from an address to another one.
func (img *image) addPiece(at, end uint64) error {
	if end-at > maxReadBytes || img.bytes+int(end-at) > maxReadBytes {
		return errTooLarge
	}
	img.bytes += int(end - at)
	img.pieces = append(img.pieces, Part{Address: at, Data: img.allocate(int(end - at))})
	return nil
}

// allocate returns memory: of the arena, if its rest is large enough.
func (img *image) allocate(n int) (data []byte) {
	if len(img.unused) < n {
		return make([]byte, n)
	}
	data, img.unused = img.unused[:n:n], img.unused[n:]
	return data
}

func (img *image) readPieces(pieces []Part) error {
	for i := range pieces {
		pieces[i].IsMissing = false
		img.readBytes += len(pieces[i].Data)
	}
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

// word returns 8 bytes of data as a number.
func word(data []byte, at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }

// half returns 4 bytes of data as a number.
func half(data []byte, at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
