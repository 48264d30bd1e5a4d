package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// allocatorUse follows what caching allocators have, to its end and its peak in a
// window.
type allocatorUse struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	levels map[*caching.Allocator]*allocatorLevel
	// The allocator that was last at work: most events are of the same one as the event before.
	last      *caching.Allocator
	lastLevel *allocatorLevel
}

// allocatorLevel is what one allocator has; what was there before the recording is
// not in totals yet, but in the peaks.
type allocatorLevel struct {
	totals                   caching.Totals
	peakReserved, peakNs     int64 // of reserved bytes
	peakAllocated            int64
	allocs, frees, oom, last int64 // last is when the window's last event was
	done                     bool
}

func newAllocatorUse(t *timeline.Timeline, f *query.Filter, w query.Window) *allocatorUse {
	return &allocatorUse{t: t, filter: f, window: w, levels: make(map[*caching.Allocator]*allocatorLevel)}
}

// wants reports whether the filter lets an allocator through. Its books know no
// threads, streams and sizes.
func (u *allocatorUse) wants(a *caching.Allocator) bool {
	f := u.filter
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, a.Pid)) && (len(f.Devices) == 0 || slices.Contains(f.Devices, a.Device))
}

func (u *allocatorUse) watch(a *caching.Allocator, c *caching.Change) {
	l := u.level(a)
	if c.Op == caching.BlockResized || l.done {
		return
	}
	u.see(l, a, c.AtNs)
	ends := c.Op == caching.AllocatorEnd || c.Op == caching.BlockFreeRequested && u.t.TearsDown(a.Pid, c.AtNs)
	if l.done = ends || c.AtNs > u.window.ToNs; l.done || c.AtNs < u.window.FromNs {
		return
	}
	switch c.Op {
	case caching.BlockAllocated:
		l.allocs++
	case caching.BlockFreeRequested, caching.BlockLost:
		l.frees++
	case caching.OutOfMemory:
		l.oom++
	}
	l.last = c.AtNs
}

// level is what the allocator has.
func (u *allocatorUse) level(a *caching.Allocator) *allocatorLevel {
	if u.last == a {
		return u.lastLevel
	}
	l := u.levels[a]
	if l == nil {
		l = &allocatorLevel{peakReserved: -1}
		u.levels[a] = l
	}
	u.last, u.lastLevel = a, l
	return l
}

// see notes what an allocator had until now, since its last event.
func (u *allocatorUse) see(l *allocatorLevel, a *caching.Allocator, untilNs int64) {
	l.totals = a.Seen
	if untilNs < u.window.FromNs {
		return
	}
	if reserved := a.Seen.Reserved + a.Before.Reserved; reserved > l.peakReserved {
		l.peakReserved, l.peakNs = reserved, max(l.last, u.window.FromNs)
	}
	l.peakAllocated = max(l.peakAllocated, a.Seen.Allocated+a.Before.Allocated)
}

// finish returns the allocators that the filter lets through, in order of process and
// device, each with what it had at the end of the window, or of its process.
func (u *allocatorUse) finish(s *caching.Set) []*caching.Allocator {
	var list []*caching.Allocator
	s.All(func(a *caching.Allocator) {
		l := u.levels[a]
		if l == nil || !u.wants(a) {
			return
		}
		if !l.done {
			u.see(l, a, u.window.ToNs)
		}
		list = append(list, a)
	})
	slices.SortStableFunc(list, func(a, b *caching.Allocator) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}

var allocatorFacts = []Column{
	{"allocator", "PyTorch's allocator", UnitText, "what PyTorch's caching allocators, one per process and device, have of the driver at the end of the window or of their process, and what of that they have handed out; --tid, --stream and --min-bytes do not count"},
	{"allocator_reserved_bytes", "", UnitBytes, "bytes from the driver, as torch.cuda.memory_reserved() tells"},
	{"allocator_allocated_bytes", "", UnitBytes, "bytes of blocks handed out, as torch.cuda.memory_allocated() tells"},
	{"allocator_ooms", "", UnitCount, "requests in the window that the allocators could not fulfil, whatever the program did then"},
}

// facts sum up all allocators. The driver's memory behind them is in no row of leaks.
func (u *allocatorUse) facts(s *caching.Set) []Fact {
	list := u.finish(s)
	if len(list) == 0 {
		return fill(allocatorFacts, "", nil, nil, nil)
	}
	var sum caching.Totals
	var oom int64
	for _, a := range list {
		sum = sum.Plus(u.levels[a].totals).Plus(a.Before)
		oom += u.levels[a].oom
	}
	text := fmt.Sprintf("reserved %s, of which %s allocated", units.Bytes(sum.Reserved), units.Bytes(sum.Allocated))
	if len(list) > 1 {
		text += fmt.Sprintf(" (%d allocators)", len(list))
	}
	return fill(allocatorFacts, text, sum.Reserved, sum.Allocated, oom)
}

var allocatorTableColumns = []Column{
	{"pid", "PID", UnitID, "process"},
	{"device", "DEVICE", UnitText, "CUDA device"},
	{"reserved_bytes", "RESERVED", UnitBytes, "bytes from the driver at the end of the window or of the process"},
	{"allocated_bytes", "ALLOCATED", UnitBytes, "bytes of blocks that the program has then"},
	{"requested_bytes", "REQUESTED", UnitBytes, "bytes that were asked for, of blocks that the program has or streams still use; without blocks from before the recording that were not freed in it"},
	{"peak_reserved_bytes", "PEAK RESERVED", UnitBytes, "most bytes from the driver in the window"},
	{"peak_reserved_at_ns", "AT", UnitNs, "when that was first, from the recording's start"},
	{"peak_allocated_bytes", "PEAK ALLOCATED", UnitBytes, "most bytes of blocks in the window"},
	{"allocs", "ALLOCS", UnitCount, "blocks handed out in the window"},
	{"frees", "FREES", UnitCount, "blocks given back in the window"},
	{"ooms", "OOM", UnitCount, "requests in the window that could not be fulfilled"},
}

// table has a row for each allocator.
func (u *allocatorUse) table(s *caching.Set) Table {
	table := Table{Name: "allocators", Title: "PyTorch's caching allocators", Columns: allocatorTableColumns, Spare: []string{"peak_reserved_at_ns", "requested_bytes"}}
	start := u.t.Recording().FromNs
	for _, a := range u.finish(s) {
		l := u.levels[a]
		sum := l.totals.Plus(a.Before)
		var requested any = sum.Requested
		if a.Reports {
			requested = nil // they do not tell it
		}
		table.Rows = append(table.Rows, Row{Cells: []any{int64(a.Pid), u.t.OrdinalLabel(a.Pid, a.Device), sum.Reserved, sum.Allocated, requested,
			l.peakReserved, max(0, l.peakNs-start), l.peakAllocated, l.allocs, l.frees, l.oom}})
	}
	addRanks(u.t, &table)
	return table
}
