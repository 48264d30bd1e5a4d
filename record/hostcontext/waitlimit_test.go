//go:build linux

package hostcontext

import (
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// TestWaitLimit checks that the shortest wait with a row follows the number of waits, and that all waits are
// rows or lost.
func TestWaitLimit(t *testing.T) {
	testclass.Unit(t)
	l := newWaitLimit()
	var c switches.Counters
	for i, step := range []struct {
		waits, lost, leftOut, wantLost int64
		want                           time.Duration
	}{
		{waits: 100, want: minWait},
		{waits: maxWaitRows + 1, want: 2 * minWait},
		{waits: 500, leftOut: 5000, wantLost: 5000, want: 2 * minWait}, // still too many
		{waits: 3000, lost: 7, leftOut: 5000, wantLost: 5007, want: 4 * minWait},
		{waits: 100, leftOut: 10, wantLost: 10, want: 2 * minWait},
		{waits: 100, want: minWait},
		{waits: 0, want: minWait},
	} {
		before := l.min
		c.Waits, c.Lost, c.LeftOut = c.Waits+step.waits, c.Lost+step.lost, c.LeftOut+step.leftOut
		lost, changed := l.update(&c)
		if l.min != step.want || lost != step.wantLost || changed != (before != l.min) {
			t.Errorf("step %d: shortest wait %v, %d lost, changed %v, want %+v", i, l.min, lost, changed, step)
		}
	}
	if l.highest != 4*minWait {
		t.Errorf("highest %v", l.highest)
	}
}
