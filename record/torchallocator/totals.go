//go:build linux

package torchallocator

import (
	"bytes"
	"errors"
)

// Statistics are the values of an allocator's own statistics at a moment.
type Statistics struct {
	AtNs      int64 // CLOCK_MONOTONIC
	Allocated int64 // bytes of the blocks that the program uses
	Peak      int64 // the highest value of Allocated since the program reset the peaks, bytes
	Reserved  int64 // bytes of the segments
	// Allocations and Frees count the blocks that the program has allocated and freed since its start, or since it
	// reset the sums.
	Allocations, Frees int64
}

// ErrBusyTotals is the error if the statistics changed during all tries to read them.
var ErrBusyTotals = errors.New("the allocator's statistics changed while they were read")

// maxTotalsTries bounds the tries of ReadStatistics. A try takes some microseconds.
const maxTotalsTries = 64

// ReadStatistics reads the statistics of a device, without its blocks. It needs a layout that Read has found, and
// returns ErrUnused before. Other errors are ErrBusyTotals and those of reading the memory.
func (r *Reader) ReadStatistics(device int) (Statistics, error) {
	l := r.known()
	if l == nil {
		return Statistics{}, ErrUnused
	}
	w := &window{r: r, object: &r.objects[device], device: l.deviceLayout}
	before, behind := make([]byte, w.device.headEnd()), make([]byte, w.device.headEnd())
	for range maxTotalsTries {
		if err := w.readHead(before); err != nil {
			return Statistics{}, err
		}
		atNs := r.now()
		if err := w.readHead(behind); err != nil {
			return Statistics{}, err
		}
		a, b := before[l.stats:l.stats+statsBytes], behind[l.stats:l.stats+statsBytes]
		if l.isQuiet(before) && l.isQuiet(behind) && bytes.Equal(a, b) {
			return newStatistics(a, atNs), nil
		}
	}
	return Statistics{}, ErrBusyTotals
}

// newStatistics decodes DeviceStats.
func newStatistics(data []byte, atNs int64) Statistics {
	// A Stat has the current value, the peak, and the sums of increases and of decreases.
	of := func(stat, at int) int64 { return int64(word(data, stat*arrayBytes+8*at)) }
	return Statistics{
		AtNs: atNs, Allocated: of(allocatedBytesStat, 0), Peak: of(allocatedBytesStat, 1),
		Reserved: of(reservedBytesStat, 0), Allocations: of(allocationStat, 2), Frees: of(allocationStat, 3),
	}
}
