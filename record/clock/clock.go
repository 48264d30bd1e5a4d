//go:build linux

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock converts CLOCK_MONOTONIC to Unix time with one offset for the whole recording. Durations
// and order stay exact when the wall clock steps.
type Clock struct{ OffsetNs int64 }

// New returns a Clock with the offset of now.
func New() Clock { return Clock{OffsetNs: monotonicOffset()} }

// monotonicOffset returns CLOCK_REALTIME - CLOCK_MONOTONIC. Of several readings the
// one taken in the shortest time is the most exact.
func monotonicOffset() int64 {
	var best, offset int64
	for i := range 16 {
		before := Ns(unix.CLOCK_MONOTONIC)
		wall := Ns(unix.CLOCK_REALTIME)
		after := Ns(unix.CLOCK_MONOTONIC)
		if i == 0 || after-before < best {
			best, offset = after-before, wall-before-(after-before)/2
		}
	}
	return offset
}

// Ns returns the time of a clock of the kernel, such as unix.CLOCK_MONOTONIC, in ns.
func Ns(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // cannot happen for these clocks
	}
	return ts.Nano()
}

// UnixNs converts a time of CLOCK_MONOTONIC, in ns, to Unix ns.
func (c Clock) UnixNs(monotonicNs uint64) int64 { return int64(monotonicNs) + c.OffsetNs }

// NowNs returns the present in Unix ns on the recording's clock.
func (c Clock) NowNs() int64 { return Ns(unix.CLOCK_MONOTONIC) + c.OffsetNs }

// StepNs returns how far the wall clock has moved away from the recording's clock, in ns.
func (c Clock) StepNs() int64 { return monotonicOffset() - c.OffsetNs }

// Sleep waits for d, or until stop is closed. It reports whether stop was closed.
func Sleep(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return true
	case <-time.After(d):
		return false
	}
}
