//go:build linux

package communicator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/symbolize"
)

// Reasons why FindAll finds nothing.
var (
	// ErrNoLibrary is the reason if the process has not loaded NCCL.
	ErrNoLibrary = errors.New("the process has not loaded NCCL")
	// ErrNoList is the reason if the memory of NCCL has no list of communicators.
	ErrNoList = errors.New("NCCL has no list of communicators: there are none, NCCL is older than 2.24, " +
		"or NCCL_RAS_ENABLE=0 is set")
	// ErrDenied is the reason if the memory of the process may not be read.
	ErrDenied = errors.New("the memory of the process may not be read: reading it needs CAP_SYS_PTRACE")
	// ErrEnded is the reason if the process has ended.
	ErrEnded = errors.New("the process has ended")
	// ErrTimeout is the reason if the memory could not be read in time. A read may still wait for the process.
	ErrTimeout = errors.New("the memory of the process could not be read in time")
)

// UnknownVersionError is the reason if all communicators are of an unknown version of NCCL.
type UnknownVersionError struct {
	Communicators int // communicators of the process
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("gpurec does not know the memory layout of this NCCL, only those of %s to %s",
		layouts[0].Version, layouts[len(layouts)-1].Version)
}

// Census has the communicators of a process.
type Census struct {
	Communicators []Found // ordered by hash, rank and address
	// Unready is the number of communicators that NCCL was initializing.
	Unready int
	// Unknown is the number of communicators of an unknown version of NCCL.
	Unknown int
	// IsPartial says that the process has more communicators than were read.
	IsPartial bool
}

// Found is a communicator of a process.
type Found struct {
	State
	Address uint64
	Layout  *Layout
	// IsMoving says that the counts differed between any two readings. They are those of the last one.
	IsMoving bool
}

// Readings of a communicator.
const (
	maxReadings     = 4
	readingInterval = 2 * time.Millisecond
)

// FindAll returns the communicators of a process from NCCL's own list, which NCCL keeps since 2.24. maps are the
// mappings of the process. FindAll reads each communicator until two readings are equal. It stops nothing.
//
// The error is one of the Err values, an *UnknownVersionError, or an error of reading the memory. After ErrTimeout, a
// goroutine may wait for a page of the process until the process ends. Do not call FindAll for this process again.
func FindAll(ctx context.Context, pid int, maps []symbolize.Mapping) (*Census, error) {
	type result struct {
		census *Census
		err    error
	}
	done := make(chan result, 1)
	go func() {
		census, err := findAll(ctx, &processMemory{pid: pid}, maps)
		done <- result{census, err}
	}()
	select {
	case r := <-done:
		return r.census, r.err
	case <-ctx.Done():
		return nil, ErrTimeout
	}
}

func findAll(ctx context.Context, m memory, maps []symbolize.Mapping) (*Census, error) {
	s := newSearch(ctx, m, maps)
	if len(s.data)+len(s.static) == 0 {
		return nil, ErrNoLibrary
	}
	found, err := s.findAll()
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if !s.isNamed {
			return nil, ErrNoLibrary
		}
		return nil, ErrNoList
	}
	c := &Census{IsPartial: len(found) > maxCommunicators}
	if err := c.readAll(ctx, m, found[:min(len(found), maxCommunicators)]); err != nil {
		return nil, err
	}
	if c.Unknown > 0 && len(c.Communicators)+c.Unready == 0 {
		return nil, &UnknownVersionError{c.Unknown}
	}
	slices.SortFunc(c.Communicators, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Address, b.Address))
	})
	return c, nil
}

// readAll reads the communicators at some addresses.
func (c *Census) readAll(ctx context.Context, m memory, addresses []uint64) error {
	var likely *Layout
	for _, at := range addresses {
		if ctx.Err() != nil {
			return ErrTimeout
		}
		l, ok := findLayout(m, at, likely)
		if !ok {
			c.Unknown++
			continue
		}
		likely = l
		state, ok := l.read(m, at)
		if !ok {
			c.Unready++
			continue
		}
		c.Communicators = append(c.Communicators, Found{State: state, Address: at, Layout: l, IsMoving: true})
	}
	for range maxReadings - 1 {
		if !c.readAgain(m) {
			return nil
		}
		if ctx.Err() != nil {
			return ErrTimeout
		}
		time.Sleep(readingInterval)
	}
	return nil
}

// readAgain reads the communicators that differed so far. It drops those that have been destroyed. It returns true if
// some differ still.
func (c *Census) readAgain(m memory) (differ bool) {
	c.Communicators = slices.DeleteFunc(c.Communicators, func(f Found) bool {
		if !f.IsMoving {
			return false
		}
		_, ok := f.Layout.read(m, f.Address)
		return !ok
	})
	for i := range c.Communicators {
		f := &c.Communicators[i]
		if !f.IsMoving {
			continue
		}
		state, ok := f.Layout.read(m, f.Address)
		f.IsMoving = !ok || state != f.State
		if ok {
			f.State = state
		}
		differ = differ || f.IsMoving
	}
	return differ
}
