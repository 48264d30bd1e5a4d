//go:build linux

package hostcontext

import (
	"time"

	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// Limits of the rows of waits.
const (
	// maxWaitRows is the number of waits in a second above which only longer ones have rows.
	maxWaitRows = 2000
	// highestMinWait bounds the shortest wait that has a row.
	highestMinWait = time.Second
)

// waitLimit finds the shortest wait that has a row.
type waitLimit struct {
	min, highest time.Duration // now, and in the whole recording
	last         switches.Counters
}

func newWaitLimit() waitLimit { return waitLimit{min: minWait, highest: minWait} }

// update is called once a second. It returns the number of waits since the last call that have no row,
// although they are longer than minWait. changed says that min is another one.
func (l *waitLimit) update(c *switches.Counters) (lost int64, changed bool) {
	rows := c.Waits - l.last.Waits
	lost = c.Lost - l.last.Lost + c.LeftOut - l.last.LeftOut
	l.last = *c
	before := l.min
	switch {
	case rows > maxWaitRows:
		l.min = min(2*l.min, highestMinWait)
	case rows+lost < maxWaitRows/2:
		l.min = max(l.min/2, minWait)
	}
	l.highest = max(l.highest, l.min)
	return lost, l.min != before
}
