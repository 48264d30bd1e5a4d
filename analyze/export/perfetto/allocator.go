package perfetto

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// allocatorTrack is what names of counters of caching allocators begin with.
const allocatorTrack = "PyTorch "

// levelInterval is the shortest time between two values of a counter: allocators change
// their totals a hundred thousand times a second, which no screen shows.
const levelInterval = 1_000_000

// allocatorLevels are the totals of caching allocators as steps of a trace.
type allocatorLevels struct {
	t      *timeline.Timeline
	filter *query.Filter
	send   func(memoryStep)
	shown  map[*caching.Allocator]shownTotals
	order  []*caching.Allocator // as they were met
}

type shownTotals struct {
	atNs   int64
	totals caching.Totals
}

func newAllocatorLevels(t *timeline.Timeline, f *query.Filter, send func(memoryStep)) *allocatorLevels {
	return &allocatorLevels{t: t, filter: f, send: send, shown: make(map[*caching.Allocator]shownTotals)}
}

// consume sees what an allocator's totals have been until now.
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
	} else if c.AtNs-last.atNs < levelInterval {
		return
	}
	l.show(a, c.AtNs, last, known)
}

func (l *allocatorLevels) show(a *caching.Allocator, atNs int64, last shownTotals, known bool) {
	now, whose := a.Totals(), ""
	if len(l.t.Facts.Processes) > 1 {
		whose = fmt.Sprintf(" of process %d", a.Pid)
	}
	step := func(what string, value, before int64) {
		if !known || value != before {
			l.send(memoryStep{atNs: atNs, device: a.Device, what: allocatorTrack + what + whose, live: value})
		}
	}
	step("allocated", now.Allocated, last.totals.Allocated)
	step("reserved", now.Reserved, last.totals.Reserved)
	if !a.Reports {
		step("requested", now.Requested, last.totals.Requested)
	}
	l.shown[a] = shownTotals{atNs, now}
}

// finish shows where the totals stand at the end.
func (l *allocatorLevels) finish(atNs int64) {
	for _, a := range l.order {
		l.show(a, atNs, l.shown[a], true)
	}
}
