//go:build linux

package torchallocator

import (
	"fmt"
	"time"
)

// State has all blocks of the caching allocator of one device at a moment.
type State struct {
	Device int
	// AtNs is the moment, CLOCK_MONOTONIC. The allocator changed nothing between AtNs and EndNs. Calls of record_trace
	// that began before AtNs are in the state, and those that began later are not.
	AtNs, EndNs int64
	// AllocatedBytes and ReservedBytes are the totals of the allocator's statistics.
	AllocatedBytes, ReservedBytes uint64
	Segments                      []Segment // in order of address
	Version                       string    // the newest version of PyTorch with this layout of blocks
	Tries                         int       // readings until one was consistent
	LimitBytes                    uint64    // limit of reserved bytes that the program has set; 0: none, or unknown
	Totals                        []Total   // the allocator's statistics, and the same sums over the blocks
	Calls, ReadBytes              int       // system calls and bytes of the reading that was accepted
}

// Total is a statistic of the allocator, and the sum over its blocks.
type Total struct {
	Name               string
	Blocks, Statistics uint64
}

// BusyError is the reason if the allocator worked all the time. It wraps ErrBusy.
type BusyError struct {
	Tries  int
	Holder int           // thread that held the allocator's lock during the whole time; 0: none did
	Held   time.Duration // for how long at least, if Holder is not 0
	State  *State        // the last reading, not proved; nil if it contradicts itself. Totals says which sums agree
}

func (e *BusyError) Error() string {
	if e.Holder != 0 {
		return fmt.Sprintf("thread %d held the allocator's lock for at least %v", e.Holder, e.Held)
	}
	return fmt.Sprintf("%v: readings that it interrupted: %d", ErrBusy, e.Tries)
}

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// CountBlocks returns the number of blocks that the program or a stream uses.
func (s *State) CountBlocks() (n int) {
	for i := range s.Segments {
		for k := range s.Segments[i].Blocks {
			if s.Segments[i].Blocks[k].Use != Cached {
				n++
			}
		}
	}
	return n
}

// Segment is memory that the allocator has from the driver: one allocation, or a contiguous mapped range of an
// expandable segment.
type Segment struct {
	Address, Bytes uint64
	Stream         uint64
	Pool           PoolID
	IsSmall        bool // for blocks of at most 1 MiB
	IsExpandable   bool
	Blocks         []Block // in order of address. They cover the segment
}

// Block is a part of a segment.
type Block struct {
	Address, Bytes uint64
	Requested      uint64 // requested size in bytes; 0 for cached blocks
	Use            Use
}

// Use says who uses a block.
type Use uint8

const (
	Cached       Use = iota // the allocator, which can give it to the program again
	Allocated               // the program
	AwaitsStream            // the program freed the block, and a stream still uses it
)

// PoolID is the ID of a private pool. The default pool is {0, 0}, that of a captured graph {n, 0}, and one that the
// program created {0, n}.
type PoolID [2]uint64

// MismatchError is the reason if the blocks do not add up to the allocator's statistics.
type MismatchError struct {
	What               string
	Blocks, Statistics uint64
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: %d by the blocks, %d by the allocator's statistics", e.What, e.Blocks, e.Statistics)
}

// UnknownLayoutError is the reason if the memory fits no known layout.
type UnknownLayoutError struct {
	Err error // what did not fit, with the layout of the newest version
}

func (e *UnknownLayoutError) Error() string {
	return "gpurec does not know the memory layout of this PyTorch: " + e.Err.Error()
}

func (e *UnknownLayoutError) Unwrap() error { return e.Err }
