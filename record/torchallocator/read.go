//go:build linux

package torchallocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons why there is nothing to read, or why it cannot be read.
var (
	// ErrUnused is the reason if the allocator has no list of devices. Mostly, it has no blocks.
	ErrUnused = errors.New(
		"the process has not used PyTorch's caching allocator yet, uses another one, or gpurec does not " +
			"know its memory layout",
	)
	// ErrBusy is the reason if the allocator worked all the time.
	ErrBusy = errors.New("the allocator did not pause for long enough")
	// ErrDenied is the reason if the memory of the process may not be read.
	ErrDenied = errors.New("the memory of the process may not be read: reading it needs CAP_SYS_PTRACE")
	// ErrEnded is the reason if the process has ended.
	ErrEnded = errors.New("the process has ended")
)

// Reader reads the allocators of one process. It is not safe for concurrent use.
type Reader struct {
	image   *image
	head    *image // pages with the heads of objects
	objects []object
	now     func() int64
}

// object is the DeviceCachingAllocator of a device.
type object struct {
	address uint64
	device  int
	bytes   uint64 // at most, with its table of private pools
	pools   int    // offset of large_blocks. small_blocks and active_blocks follow it
	layout  *blockLayout
}

// headBytes returns the size of the part that is compared before and after a reading: the lock, the statistics, the
// pools, and the table of active blocks.
func (o *object) headBytes() uint64 { return uint64(o.pools) + 2*poolBytes + tableBytes }

// Open finds the allocators of a process. variable is the address of c10::cuda::CUDACachingAllocator::allocator, a
// pointer to the allocator in use. The error is ErrUnused, ErrDenied, ErrEnded, or nil.
func Open(m Memory, variable uint64) (*Reader, error) {
	r := &Reader{image: newImage(m), head: newImage(m), now: monotonicNs}
	native, err := r.readWord(variable)
	if err != nil {
		return nil, err
	}
	if native == 0 {
		return nil, ErrUnused
	}
	if err := r.image.load([]uint64{native}, nativeBytes); err != nil {
		return nil, err
	}
	data := r.image.prefix(native, nativeBytes)
	for at := 8; at <= len(data)-24; at += 8 {
		begin, end, limit := word(data, at), word(data, at+8), word(data, at+16)
		if begin == 0 || begin%8 != 0 || end <= begin || limit < end || end-begin > 8*maxDevices || (end-begin)%8 != 0 {
			continue
		}
		if r.objects, err = r.findObjects(begin, int(end-begin)/8); err != nil || len(r.objects) > 0 {
			return r, err
		}
	}
	return nil, ErrUnused
}

func (r *Reader) readWord(at uint64) (uint64, error) {
	if err := r.image.load([]uint64{at}, 8); err != nil {
		return 0, err
	}
	data, ok := r.image.bytes(at, 8)
	if !ok {
		return 0, errUnreadable
	}
	return word(data, 0), nil
}

// findObjects returns the objects that n pointers at an address point to, or none if they are no
// DeviceCachingAllocators.
func (r *Reader) findObjects(at uint64, n int) ([]object, error) {
	if err := r.image.load([]uint64{at}, uint64(8*n)); err != nil {
		return nil, err
	}
	list, ok := r.image.bytes(at, uint64(8*n))
	if !ok {
		return nil, nil
	}
	objects := make([]object, n)
	for i := range objects {
		o := &objects[i]
		o.address, o.device = word(list, 8*i), i
		if o.address == 0 || o.address%8 != 0 {
			return nil, nil
		}
		if err := r.image.load([]uint64{o.address}, objectBytes); err != nil {
			return nil, err
		}
		data := r.image.prefix(o.address, objectBytes)
		if o.pools, ok = findPools(data, o.address, poolsSearchFrom, poolsSearchTo, 0); !ok {
			return nil, nil
		}
	}
	for i := range objects {
		objects[i].bytes = objectBytes
		for k := range objects { // the allocators of two devices may be neighbors
			if apart := objects[k].address - objects[i].address; apart != 0 {
				objects[i].bytes = min(objects[i].bytes, apart)
			}
		}
	}
	return objects, nil
}

// Devices returns the number of devices.
func (r *Reader) Devices() int { return len(r.objects) }

// IsCopyOf reports whether the allocators have the same addresses as those of another process. Then this process is
// its fork, and has only a copy of its allocators.
func (r *Reader) IsCopyOf(other *Reader) bool {
	return slices.EqualFunc(r.objects, other.objects, func(a, b object) bool { return a.address == b.address })
}

// Times of a reading.
const (
	quietTime    = 100 * time.Microsecond // the allocator must have paused for so long
	maxQuietTime = 2 * time.Millisecond
	maxMisfits   = 3 // consistent readings of each layout that do not add up
)

// Read reads the blocks of a device. It waits until the allocator pauses, and reads while it does. It returns ErrBusy
// when ctx is done, another Err value, or *UnknownLayoutError.
func (r *Reader) Read(ctx context.Context, device int) (*State, error) {
	o := &r.objects[device]
	wait, tries, misfits := quietTime, 0, 0
	for ctx.Err() == nil {
		first, err := r.readHead(o)
		if err != nil {
			return nil, err
		}
		time.Sleep(wait)
		second, err := r.readHead(o)
		if err != nil {
			return nil, err
		}
		if wait = min(wait+wait/4, maxQuietTime); !isQuiet(first) || !bytes.Equal(first, second) {
			continue
		}
		tries++
		wait = quietTime
		atNs := r.now()
		state, readErr := r.readOnce(o, second)
		last, err := r.readHead(o)
		switch {
		case err != nil:
			return nil, err
		case errors.Is(readErr, ErrDenied), errors.Is(readErr, ErrEnded), errors.Is(readErr, errTooLarge):
			return nil, readErr
		case !bytes.Equal(second, last):
			continue
		case readErr == nil:
			state.AtNs, state.EndNs, state.Tries = atNs, r.now(), tries
			return state, nil
		}
		if misfits++; misfits == maxMisfits {
			return nil, &UnknownLayoutError{readErr}
		}
	}
	return nil, fmt.Errorf("%w: readings that it interrupted: %d", ErrBusy, tries)
}

// isQuiet reports whether no thread holds the lock.
func isQuiet(head []byte) bool {
	return uint32(word(head, lockOffset)) == 0 && uint32(word(head, ownerOffset)) == 0
}

// readHead returns a new copy of the head of an object.
func (r *Reader) readHead(o *object) ([]byte, error) {
	if err := r.head.refresh(); err != nil {
		return nil, err
	}
	if err := r.head.load([]uint64{o.address}, o.headBytes()); err != nil {
		return nil, err
	}
	data, ok := r.head.bytes(o.address, o.headBytes())
	if !ok {
		return nil, errUnreadable
	}
	return bytes.Clone(data), nil
}

// readOnce reads the blocks with each layout until they add up. head is the head of the object.
func (r *Reader) readOnce(o *object, head []byte) (*State, error) {
	layouts := blockLayouts[:]
	if o.layout != nil {
		layouts = []blockLayout{*o.layout}
	}
	var failed error
	for i := range layouts {
		state, err := r.readLayout(o, head, &layouts[i])
		if err == nil {
			o.layout = &layouts[i]
			return state, nil
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, failed
}

// readLayout reads the blocks with one layout.
func (r *Reader) readLayout(o *object, head []byte, layout *blockLayout) (*State, error) {
	if o.layout == nil {
		r.image = newImage(r.image.memory) // without the pages that another layout needed
	}
	if err := r.image.refresh(); err != nil {
		return nil, err
	}
	if err := r.image.load([]uint64{o.address}, o.bytes); err != nil {
		return nil, err
	}
	w := &walk{image: r.image, object: o, layout: layout, pools: make(map[uint64]pool), blocks: make(map[uint64]*block)}
	data := r.image.prefix(o.address, o.bytes)
	if uint64(len(data)) < o.headBytes() {
		return nil, errUnreadable
	}
	if err := w.readBlocks(data); err != nil {
		return nil, err
	}
	want := readTotals(head)
	if err := w.verify(want); err != nil {
		return nil, err
	}
	segments, err := w.segments()
	if err != nil {
		return nil, err
	}
	return &State{
		Device: o.device, AllocatedBytes: want[allocatedBytesStat][0], ReservedBytes: want[reservedBytesStat][0],
		Segments: segments, Version: layout.version,
	}, nil
}

// monotonicNs returns the time of CLOCK_MONOTONIC, which BPF programs use.
func monotonicNs() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only for unknown clocks
	return t.Nano()
}
