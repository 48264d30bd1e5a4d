//go:build linux

package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is what goes to the row writer at once.
	chunkBytes = 1 << 20
	// MaxChunks bounds what waits between drain and row writer: 64 MiB.
	MaxChunks = 64
)

// Pool holds the memory of chunks between the Drain and the row writer. It lies outside of the Go
// heap, whose limit is low: a row writer that is behind would otherwise spend its time collecting
// garbage. One goroutine takes chunks, another one returns them.
type Pool struct {
	mapped []byte // for MaxChunks, one in the hands of each side
	unused []byte
	// hot chunks are used again first. What a burst needed beyond them is cold: its memory
	// is given back until the next one.
	hot, cold chan []byte
}

// hotChunks are as many as wait while the row writer keeps up.
const hotChunks = 8

// NewPool reserves addresses. Memory is used when a chunk is first filled.
func NewPool() (*Pool, error) {
	const size = (MaxChunks + 2) * chunkBytes
	mapped, err := unix.Mmap(
		-1,
		0,
		size,
		unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE,
	)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes for records: %w", size, err)
	}
	return &Pool{
		mapped: mapped,
		unused: mapped,
		hot:    make(chan []byte, hotChunks),
		cold:   make(chan []byte, MaxChunks+2),
	}, nil
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

// Put returns a chunk to the pool.
func (p *Pool) Put(chunk []byte) {
	select {
	case p.hot <- chunk[:0]:
	default:
		_ = unix.Madvise(chunk[:cap(chunk)], unix.MADV_DONTNEED) // else it is only kept longer
		p.cold <- chunk[:0]
	}
}

// Close frees the memory. No chunk may be in use any more.
func (p *Pool) Close() error { return unix.Munmap(p.mapped) }
