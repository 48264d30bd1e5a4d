package perfetto

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// allocatorTrack is the prefix of the names of a caching allocator's counters.
const allocatorTrack = "PyTorch "

// minLevelIntervalNs is the shortest time between two values of an allocator's counter, ns.
// Allocators change their totals up to 100,000 times per second, more than a screen can show.
const minLevelIntervalNs = 1_000_000

// allocatorLevels sends the totals of caching allocators as steps of counters.
type allocatorLevels struct {
	t      *timeline.Timeline
	filter *query.Filter
	send   func(memoryStep)
	shown  map[*caching.Allocator]shownTotals
	order  []*caching.Allocator // in order of their first change
}

// shownTotals are the last totals of an allocator that were sent, and their time (Unix ns).
type shownTotals struct {
	atNs   int64
	totals caching.Totals
}

func newAllocatorLevels(t *timeline.Timeline, f *query.Filter, send func(memoryStep)) *allocatorLevels {
	return &allocatorLevels{t: t, filter: f, send: send, shown: make(map[*caching.Allocator]shownTotals)}
}

// consume sends the totals of an allocator before a change, and its failed allocations.
func (l *allocatorLevels) consume(a *caching.Allocator, c *caching.Change) {
	if len(l.filter.Devices) > 0 && !slices.Contains(l.filter.Devices, a.Device) ||
		len(l.filter.Pids) > 0 && !slices.Contains(l.filter.Pids, a.Pid) {
		return
	}
	if c.Op == caching.OutOfMemory {
		l.send(memoryStep{atNs: c.AtNs, device: a.Device, failed: true, bytes: c.Block.Requested})
	}
	last, known := l.shown[a]
	if !known {
		l.order = append(l.order, a)
	} else if c.AtNs-last.atNs < minLevelIntervalNs {
		return
	}
	l.show(a, c.AtNs, last, known)
}

// show sends the totals of an allocator that differ from the last ones. known is false on the first
// call for an allocator.
func (l *allocatorLevels) show(a *caching.Allocator, atNs int64, last shownTotals, known bool) {
	now, suffix := a.Totals(), ""
	if len(l.t.Facts.Processes) > 1 {
		suffix = fmt.Sprintf(" of process %d", a.Pid)
	}
	step := func(total string, value, before int64) {
		if !known || value != before {
			l.send(memoryStep{atNs: atNs, device: a.Device, counter: allocatorTrack + total + suffix, live: value})
		}
	}
	step("allocated", now.Allocated, last.totals.Allocated)
	step("reserved", now.Reserved, last.totals.Reserved)
	if !a.Reports {
		step("requested", now.Requested, last.totals.Requested)
	}
	l.shown[a] = shownTotals{atNs, now}
}

// finish sends the totals at the end of the recording.
func (l *allocatorLevels) finish(atNs int64) {
	for _, a := range l.order {
		l.show(a, atNs, l.shown[a], true)
	}
}
