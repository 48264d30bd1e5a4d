//go:build linux

package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestWaitsEndTogether compares the ends of long waits, and leaves short ones as they are.
func TestWaitsEndTogether(t *testing.T) {
	testclass.Unit(t)
	if d := Share(20 * time.Millisecond); d != 20*time.Millisecond {
		t.Errorf("a short wait takes %v", d)
	}
	for _, d := range []time.Duration{sharedFrom, 100 * time.Millisecond, time.Second} {
		before := ReadNs(unix.CLOCK_MONOTONIC)
		got := Share(d)
		after := ReadNs(unix.CLOCK_MONOTONIC)
		if got < d || got >= d+sharedTick {
			t.Errorf("a wait of %v takes %v", d, got)
		}
		tick := sharedTick.Nanoseconds()
		if first, last := before+got.Nanoseconds(), after+got.Nanoseconds(); first/tick == last/tick &&
			first%tick != 0 {
			t.Errorf("a wait of %v ends between ticks", d)
		}
	}
}
