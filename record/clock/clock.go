//go:build linux

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock converts CLOCK_MONOTONIC to Unix time with one constant offset for the whole recording. A
// step of the wall clock changes neither durations nor the order of events. A Clock is a value and
// safe for concurrent use.
type Clock struct {
	// OffsetNs is Unix time minus CLOCK_MONOTONIC, in ns.
	OffsetNs int64
}

// New returns a Clock with the current offset of CLOCK_REALTIME from CLOCK_MONOTONIC.
func New() Clock { return Clock{OffsetNs: measureMonotonicOffset()} }

// measureMonotonicOffset returns CLOCK_REALTIME - CLOCK_MONOTONIC in ns. Of 16 readings it uses the
// fastest, which is the most exact.
func measureMonotonicOffset() int64 {
	var best, offset int64
	for i := range 16 {
		before := ReadNs(unix.CLOCK_MONOTONIC)
		wall := ReadNs(unix.CLOCK_REALTIME)
		after := ReadNs(unix.CLOCK_MONOTONIC)
		if i == 0 || after-before < best {
			best, offset = after-before, wall-before-(after-before)/2
		}
	}
	return offset
}

// ReadNs returns the time of a kernel clock in ns. id is a clock such as unix.CLOCK_MONOTONIC.
func ReadNs(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // cannot happen for these clocks
	}
	return ts.Nano()
}

// BootNs returns the time of CLOCK_BOOTTIME in ns, the clock of start times of processes.
func BootNs() int64 { return ReadNs(unix.CLOCK_BOOTTIME) }

// UnixNs converts a time of CLOCK_MONOTONIC in ns to Unix ns.
func (c Clock) UnixNs(monotonicNs uint64) int64 { return int64(monotonicNs) + c.OffsetNs }

// NowNs returns the current time on the recording's clock, Unix ns.
func (c Clock) NowNs() int64 { return ReadNs(unix.CLOCK_MONOTONIC) + c.OffsetNs }

// WallClockStepNs returns how far the wall clock has moved from the recording's clock since New, in
// ns.
func (c Clock) WallClockStepNs() int64 { return measureMonotonicOffset() - c.OffsetNs }

// Sleep waits for Share(d) or until stop is closed. It returns true if stop was closed.
func Sleep(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return true
	case <-time.After(Share(d)):
		return false
	}
}

const (
	sharedFrom = 25 * time.Millisecond
	sharedTick = 5 * time.Millisecond
)

// Share returns a duration to wait instead of d: up to 5 ms more from 25 ms on, so that waits end together. Each wake-up
// of a process costs 10 to 100 µs.
func Share(d time.Duration) time.Duration {
	if d < sharedFrom {
		return d
	}
	now := ReadNs(unix.CLOCK_MONOTONIC)
	end := now + d.Nanoseconds() + sharedTick.Nanoseconds() - 1
	return time.Duration(end - end%sharedTick.Nanoseconds() - now)
}
