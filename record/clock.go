//go:build linux

package record

import "golang.org/x/sys/unix"

// clock turns the kernel's monotonic times into Unix time with one offset for the
// whole recording, so that durations and order stay exact when the wall clock steps.
type clock struct{ offsetNs int64 }

func newClock() clock { return clock{offsetNs: monotonicOffset()} }

// monotonicOffset returns CLOCK_REALTIME - CLOCK_MONOTONIC. Of several readings the
// one taken in the shortest time is the most exact.
func monotonicOffset() int64 {
	var best, offset int64
	for i := range 16 {
		before := clockNs(unix.CLOCK_MONOTONIC)
		wall := clockNs(unix.CLOCK_REALTIME)
		after := clockNs(unix.CLOCK_MONOTONIC)
		if i == 0 || after-before < best {
			best, offset = after-before, wall-before-(after-before)/2
		}
	}
	return offset
}

func clockNs(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // cannot happen for these clocks
	}
	return ts.Nano()
}

// unix converts CLOCK_MONOTONIC to the recording's Unix time.
func (c clock) unix(monotonicNs uint64) int64 { return int64(monotonicNs) + c.offsetNs }

// now is the present on the recording's clock.
func (c clock) now() int64 { return clockNs(unix.CLOCK_MONOTONIC) + c.offsetNs }

// stepNs is how far the wall clock has moved away from the recording's clock.
func (c clock) stepNs() int64 { return monotonicOffset() - c.offsetNs }
