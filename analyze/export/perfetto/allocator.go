package perfetto

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// allocatorCounterPrefix is the prefix of the names of a caching allocator's counters.
const allocatorCounterPrefix = "PyTorch "

// minCounterIntervalNs is the shortest time between two values of an allocator's counter, ns.
// Allocators change their totals up to 100,000 times per second, more than a screen can show.
const minCounterIntervalNs = 1_000_000

// allocatorCounters sends the totals of caching allocators as steps of counters.
type allocatorCounters struct {
	t      *timeline.Timeline
	filter *query.Filter
	send   func(memoryStep)
	shown  map[*caching.Allocator]sentTotals
	order  []*caching.Allocator // in order of their first change
}

// sentTotals are the last totals of an allocator that were sent, and their time (Unix ns).
type sentTotals struct {
	atNs   int64
	totals caching.AllocatorTotals
}

func newAllocatorCounters(t *timeline.Timeline, f *query.Filter, send func(memoryStep)) *allocatorCounters {
	return &allocatorCounters{t: t, filter: f, send: send, shown: make(map[*caching.Allocator]sentTotals)}
}

// consumeChange sends the totals of an allocator before a change, and its failed allocations.
func (counters *allocatorCounters) consumeChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if len(counters.filter.Devices) > 0 && !slices.Contains(counters.filter.Devices, a.Device) ||
		len(counters.filter.Pids) > 0 && !slices.Contains(counters.filter.Pids, a.Pid) {
		return
	}
	if c.Op == caching.OpOutOfMemory {
		counters.send(memoryStep{atNs: c.AtNs, device: a.Device, failed: true, bytes: c.Block.Requested})
	}
	last, known := counters.shown[a]
	if !known {
		counters.order = append(counters.order, a)
	} else if c.AtNs-last.atNs < minCounterIntervalNs {
		return
	}
	counters.sendTotals(a, c.AtNs, last, known)
}

// sendTotals sends the totals of a caching allocator that differ from the last ones. known is false
// on the first call for an allocator.
func (counters *allocatorCounters) sendTotals(a *caching.Allocator, atNs int64, last sentTotals, known bool) {
	now, suffix := a.Totals(), ""
	if len(counters.t.Facts.Processes) > 1 {
		suffix = fmt.Sprintf(" of process %d", a.Pid)
	}
	step := func(total string, value, before int64) {
		if !known || value != before {
			counters.send(
				memoryStep{atNs: atNs, device: a.Device, counter: allocatorCounterPrefix + total + suffix, live: value},
			)
		}
	}
	step("allocated", now.Allocated, last.totals.Allocated)
	step("reserved", now.Reserved, last.totals.Reserved)
	if !a.Reports {
		step("requested", now.Requested, last.totals.Requested)
	}
	counters.shown[a] = sentTotals{atNs, now}
}

// sendFinalTotals sends the totals of all allocators at the end of the recording.
func (counters *allocatorCounters) sendFinalTotals(atNs int64) {
	for _, a := range counters.order {
		counters.sendTotals(a, atNs, counters.shown[a], true)
	}
}
