//go:build linux

package torchallocator

import (
	"errors"
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
	// LimitBytes is the limit of reserved bytes that the program has set. 0: none, or unknown.
	LimitBytes uint64
	Segments   []Segment // in order of address
	// Version is the newest known version of PyTorch with this layout of blocks. It is empty if the layout was found by
	// a search.
	Version string
	Tries   int // readings until one was consistent
	// Totals has the allocator's statistics, and the same sums over the blocks: nine statistics of all, of small and of
	// large pools. A state that Read returns without an error has equal ones. They are nil for an allocator that was
	// never used.
	Totals []Total
	// Calls and ReadBytes are the system calls and the bytes of the reading that was accepted.
	Calls, ReadBytes int
}

// Total is a statistic of the allocator, and the sum over its blocks. Name is its name in torch.cuda.memory_stats().
type Total struct {
	Name               string
	Blocks, Statistics uint64
}

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

// Reasons why there is nothing to read, or why it cannot be read.
var (
	// ErrUnused is the reason if the allocator has no list of devices. Mostly, it has no blocks.
	ErrUnused = errors.New("the process has not used PyTorch's caching allocator yet, or gpurec does not know its " +
		"memory layout")
	// ErrBusy is the reason if the allocator worked all the time.
	ErrBusy = errors.New("the allocator did not pause for long enough")
	// ErrDenied is the reason if the memory of the process may not be read.
	ErrDenied = errors.New("the memory of the process may not be read: reading it needs CAP_SYS_PTRACE")
	// ErrEnded is the reason if the process has ended.
	ErrEnded = errors.New("the process has ended")
)

// BusyError is the reason if the allocator worked all the time. It wraps ErrBusy.
type BusyError struct {
	Tries int // readings that the allocator interrupted
	// Holder is the thread that held the allocator's lock all the time without any change of its statistics. 0: none
	// did. It is a thread id in the pid namespace of the process.
	Holder int
	Held   time.Duration // for how long at least, if Holder is not 0
	// State is a reading while Holder held the lock. Its Totals say which sums agree. It is nil if Holder is 0, or if
	// the reading contradicts itself.
	State *State
}

func (e *BusyError) Error() string {
	if e.Holder != 0 {
		return fmt.Sprintf("thread %d has held the allocator's lock for at least %.1f s", e.Holder, e.Held.Seconds())
	}
	return fmt.Sprintf("%v: readings that it interrupted: %d", ErrBusy, e.Tries)
}

func (e *BusyError) Unwrap() error { return ErrBusy }

// OtherAllocatorError is the reason if the process does not use PyTorch's own allocator.
type OtherAllocatorError struct {
	Class string // mangled name of the class; empty: unknown
}

func (e *OtherAllocatorError) Error() string {
	switch {
	case e.Class == "":
		return "the class of the process's allocator is unknown"
	case hasClass(e.Class, "CudaMallocAsyncAllocator"):
		return "the process uses the backend cudaMallocAsync, whose blocks are in pools of the driver"
	case hasClass(e.Class, "CUDAPluggableAllocator"):
		return "the process uses a pluggable allocator, which keeps its blocks in its own way"
	}
	return fmt.Sprintf("the process uses another allocator, of the class %s", e.Class)
}

// MismatchError is the reason if the blocks do not add up to the allocator's statistics.
type MismatchError struct {
	What               string
	Blocks, Statistics uint64
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: %d by the blocks, %d by the allocator's statistics", e.What, e.Blocks, e.Statistics)
}

// UnknownLayoutError is the reason if no layout fits the memory.
type UnknownLayoutError struct {
	Err error // what did not fit, with the last layout that was tried
}

func (e *UnknownLayoutError) Error() string {
	return "gpurec does not know the memory layout of this PyTorch: " + e.Err.Error()
}

func (e *UnknownLayoutError) Unwrap() error { return e.Err }
