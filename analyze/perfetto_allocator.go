package analyze

import (
	"fmt"
	"slices"
)

// allocatorTrack is what names of counters of caching allocators begin with.
const allocatorTrack = "PyTorch "

// levelInterval is the shortest time between two values of a counter: allocators change
// their totals a hundred thousand times a second, which no screen shows.
const levelInterval = 1_000_000

// allocatorLevels are the totals of caching allocators as steps of a trace.
type allocatorLevels struct {
	t      *Timeline
	filter *Filter
	send   func(memoryStep)
	shown  map[*allocator]shownTotals
	order  []*allocator // as they were met
}

type shownTotals struct {
	atNs   int64
	totals AllocatorTotals
}

func newAllocatorLevels(t *Timeline, f *Filter, send func(memoryStep)) *allocatorLevels {
	return &allocatorLevels{t: t, filter: f, send: send, shown: make(map[*allocator]shownTotals)}
}

// consume sees what an allocator's totals have been until now.
func (l *allocatorLevels) consume(a *allocator, c *allocatorChange) {
	if len(l.filter.Devices) > 0 && !slices.Contains(l.filter.Devices, a.device) || len(l.filter.Pids) > 0 && !slices.Contains(l.filter.Pids, a.pid) {
		return
	}
	if c.what == outOfMemory {
		l.send(memoryStep{atNs: c.atNs, device: a.device, failed: true, bytes: c.block.requested})
	}
	last, known := l.shown[a]
	if !known {
		l.order = append(l.order, a)
	} else if c.atNs-last.atNs < levelInterval {
		return
	}
	l.show(a, c.atNs, last, known)
}

func (l *allocatorLevels) show(a *allocator, atNs int64, last shownTotals, known bool) {
	now, whose := a.totals(), ""
	if len(l.t.facts.processes) > 1 {
		whose = fmt.Sprintf(" of process %d", a.pid)
	}
	step := func(what string, value, before int64) {
		if !known || value != before {
			l.send(memoryStep{atNs: atNs, device: a.device, what: allocatorTrack + what + whose, live: value})
		}
	}
	step("allocated", now.Allocated, last.totals.Allocated)
	step("reserved", now.Reserved, last.totals.Reserved)
	if !a.reports {
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
