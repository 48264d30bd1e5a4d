//go:build linux

package communicator

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is the memory of a process.
type memory interface {
	// read fills the spans, and sets ok of those that it could read. It returns an error if it can read no more.
	read(spans []span) error
}

// span is a part of a memory: len(into) bytes from the address at on.
type span struct {
	at   uint64
	into []byte
	ok   bool
}

// Limits of reads in one process.
const (
	maxSpansPerRead = 512 // the kernel accepts 1,024
	maxReads        = 16384
)

// processMemory reads the memory of a process by process_vm_readv, which stops nothing.
type processMemory struct {
	pid   int
	reads int // so far
}

// errTooManyReads is the error of a process whose memory needs more reads than maxReads.
var errTooManyReads = errors.New("gpurec stopped the search for communicators: it needs too many reads")

// read implements memory.
func (m *processMemory) read(spans []span) error {
	var local [maxSpansPerRead]unix.Iovec
	var remote [maxSpansPerRead]unix.RemoteIovec
	for len(spans) > 0 {
		batch := spans[:min(len(spans), maxSpansPerRead)]
		for i := range batch {
			n := len(batch[i].into)
			local[i] = unix.Iovec{Base: unsafe.SliceData(batch[i].into)}
			local[i].SetLen(n)
			remote[i] = unix.RemoteIovec{Base: uintptr(batch[i].at), Len: n}
		}
		if m.reads++; m.reads > maxReads {
			return errTooManyReads
		}
		n, err := unix.ProcessVMReadv(m.pid, local[:len(batch)], remote[:len(batch)], 0)
		switch {
		case errors.Is(err, unix.EPERM):
			return ErrDenied
		case errors.Is(err, unix.ESRCH):
			return ErrEnded
		}
		spans = spans[markRead(batch, max(n, 0)):]
	}
	return nil
}

// markRead sets ok of the spans that n bytes fill. It returns the number of spans that need no further read: the
// first that is not filled is unreadable.
func markRead(batch []span, n int) int {
	for i := range batch {
		if n < len(batch[i].into) {
			return i + 1
		}
		n -= len(batch[i].into)
		batch[i].ok = true
	}
	return len(batch)
}

// readWords reads words of 8 bytes from consecutive addresses.
func readWords(m memory, at uint64, into []uint64) bool {
	s := []span{{at: at, into: bytesOf(into)}}
	return m.read(s) == nil && s[0].ok
}

// bytesOf returns the memory of words.
func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
