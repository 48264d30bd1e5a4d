//go:build linux

package rowwriter

import (
	"sync/atomic"

	"github.com/gpurec/gpurec/format"
)

// rowCounter counts the rows of a class. Only lost is safe for concurrent use.
type rowCounter struct {
	// recorded counts the rows in the segments of a recording, and those that a ring has dropped.
	// sinceRotate counts those since the last rotation. dropped counts rows that a ring has dropped.
	recorded, sinceRotate, dropped int64
	lost                           atomic.Int64 // rows that could not be written
}

// countRecorded counts rows that are being written.
func (c *rowCounter) countRecorded(rows int) {
	c.recorded += int64(rows)
	c.sinceRotate += int64(rows)
}

// countLost counts *rows of a segment that was not written as lost instead of recorded.
func (c *rowCounter) countLost(rows *int64) {
	c.recorded -= *rows
	c.lost.Add(*rows)
	*rows = 0
}

// counts returns the counts for the metadata, nil if there are no rows.
func (c *rowCounter) counts() *format.RowCount { return c.countsWithout(c.dropped) }

// countsWithout returns the counts without a number of dropped rows, nil if there are no rows.
func (c *rowCounter) countsWithout(dropped int64) *format.RowCount {
	counts := format.RowCount{Recorded: c.recorded - dropped, Lost: c.lost.Load(), Dropped: dropped}
	if counts == (format.RowCount{}) {
		return nil
	}
	return &counts
}
