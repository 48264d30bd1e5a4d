//go:build linux

package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is the size of a chunk in bytes.
	chunkBytes = 1 << 20
	// MaxWaitingChunks is the largest number of chunks that wait for the row writer: 64 MiB.
	MaxWaitingChunks = 64
)

// ChunkPool provides memory for chunks between the Drain and the row writer. The memory is outside
// of the Go heap, which has a low limit: a slow row writer would otherwise spend its time in
// garbage collection. One goroutine gets chunks, another one puts them back.
type ChunkPool struct {
	mapped []byte // memory of MaxWaitingChunks waiting chunks and one chunk on each side
	unused []byte // part of mapped that has not been used yet
	// Chunks in hot are reused first. Chunks in cold are only needed in bursts: their memory is
	// returned to the kernel.
	hot, cold chan []byte
}

// maxHotChunks is the number of waiting chunks while the row writer keeps up.
const maxHotChunks = 8

// NewChunkPool reserves address space. The kernel allocates memory when a chunk is first written.
func NewChunkPool() (*ChunkPool, error) {
	const size = (MaxWaitingChunks + 2) * chunkBytes
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
	return &ChunkPool{
		mapped: mapped,
		unused: mapped,
		hot:    make(chan []byte, maxHotChunks),
		cold:   make(chan []byte, MaxWaitingChunks+2),
	}, nil
}

// getChunk returns an empty chunk. It blocks if all chunks are in use. Only the Drain calls it.
func (p *ChunkPool) getChunk() []byte {
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

// PutChunk returns a chunk to the pool. Only the row writer calls it.
func (p *ChunkPool) PutChunk(chunk []byte) {
	select {
	case p.hot <- chunk[:0]:
	default:
		_ = unix.Madvise(chunk[:cap(chunk)], unix.MADV_DONTNEED) // on error the memory stays allocated
		p.cold <- chunk[:0]
	}
}

// Close unmaps the memory. No chunk may be in use.
func (p *ChunkPool) Close() error { return unix.Munmap(p.mapped) }
