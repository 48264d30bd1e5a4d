//go:build linux

package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is what goes to the scribe at once.
	chunkBytes = 1 << 20
	// MaxChunks bounds what waits between drain and scribe: 64 MiB.
	MaxChunks = 64
)

// Pool is the memory of what is on its way from drain to scribe. It lies outside of
// Go's heap, which is held small: there, a scribe that falls behind would leave no room
// for garbage, and collecting all the time would let it fall behind further.
type Pool struct {
	mapped []byte // for MaxChunks, one in the hands of each side
	unused []byte
	// hot chunks are used again first. What a burst needed beyond them is cold: its memory
	// is given back until the next one.
	hot, cold chan []byte
}

// hotChunks are as many as wait while the scribe keeps up.
const hotChunks = 8

// NewPool reserves addresses; memory is taken when a chunk is filled first.
func NewPool() (*Pool, error) {
	const size = (MaxChunks + 2) * chunkBytes
	mapped, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes for records: %w", size, err)
	}
	return &Pool{mapped: mapped, unused: mapped, hot: make(chan []byte, hotChunks), cold: make(chan []byte, MaxChunks+2)}, nil
}

// get returns an empty chunk. Only the drain calls it.
func (p *Pool) get() []byte {
	select {
	case chunk := <-p.hot:
		return chunk
	default:
	}
	select {
	case chunk := <-p.cold:
		return chunk
	default:
	}
	if len(p.unused) == 0 {
		select {
		case chunk := <-p.hot:
			return chunk
		case chunk := <-p.cold:
			return chunk
		}
	}
	chunk := p.unused[:0:chunkBytes]
	p.unused = p.unused[chunkBytes:]
	return chunk
}

// Put gives a chunk back.
func (p *Pool) Put(chunk []byte) {
	select {
	case p.hot <- chunk[:0]:
	default:
		_ = unix.Madvise(chunk[:cap(chunk)], unix.MADV_DONTNEED) // else it is only kept longer
		p.cold <- chunk[:0]
	}
}

// Close gives the memory back, when no chunk is in use any more.
func (p *Pool) Close() error { return unix.Munmap(p.mapped) }
