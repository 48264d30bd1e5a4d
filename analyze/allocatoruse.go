package analyze

import (
	"cmp"
	"fmt"
	"slices"
)

// allocatorUse follows what caching allocators have, to its end and its peak in a
// window.
type allocatorUse struct {
	t      *Timeline
	filter *Filter
	window Window
	levels map[*allocator]*allocatorLevel
	// The allocator that was last at work: most events are of the same one as the event before.
	last      *allocator
	lastLevel *allocatorLevel
}

// allocatorLevel is what one allocator has; what was there before the recording is
// not in totals yet, but in the peaks.
type allocatorLevel struct {
	totals                   AllocatorTotals
	peakReserved, peakNs     int64 // of reserved bytes
	peakAllocated            int64
	allocs, frees, oom, last int64 // last is when the window's last event was
	done                     bool
}

func (t *Timeline) newAllocatorUse(f *Filter, w Window) *allocatorUse {
	return &allocatorUse{t: t, filter: f, window: w, levels: make(map[*allocator]*allocatorLevel)}
}

// wants reports whether the filter lets an allocator through. Its books know no
// threads, streams and sizes.
func (u *allocatorUse) wants(a *allocator) bool {
	f := u.filter
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, a.pid)) && (len(f.Devices) == 0 || slices.Contains(f.Devices, a.device))
}

func (u *allocatorUse) watch(a *allocator, c *allocatorChange) {
	l := u.level(a)
	if c.what == blockResized || l.done {
		return
	}
	u.see(l, a, c.atNs)
	ends := c.what == allocatorEnd || c.what == blockFreeRequested && u.t.tearsDown(a.pid, c.atNs)
	if l.done = ends || c.atNs > u.window.ToNs; l.done || c.atNs < u.window.FromNs {
		return
	}
	switch c.what {
	case blockAllocated:
		l.allocs++
	case blockFreeRequested, blockLost:
		l.frees++
	case outOfMemory:
		l.oom++
	}
	l.last = c.atNs
}

// level is what the allocator has.
func (u *allocatorUse) level(a *allocator) *allocatorLevel {
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
func (u *allocatorUse) see(l *allocatorLevel, a *allocator, untilNs int64) {
	l.totals = a.seen
	if untilNs < u.window.FromNs {
		return
	}
	if reserved := a.seen.Reserved + a.before.Reserved; reserved > l.peakReserved {
		l.peakReserved, l.peakNs = reserved, max(l.last, u.window.FromNs)
	}
	l.peakAllocated = max(l.peakAllocated, a.seen.Allocated+a.before.Allocated)
}

// finish returns the allocators that the filter lets through, in order of process and
// device, each with what it had at the end of the window, or of its process.
func (u *allocatorUse) finish(s *allocators) []*allocator {
	var list []*allocator
	s.all(func(a *allocator) {
		l := u.levels[a]
		if l == nil || !u.wants(a) {
			return
		}
		if !l.done {
			u.see(l, a, u.window.ToNs)
		}
		list = append(list, a)
	})
	slices.SortStableFunc(list, func(a, b *allocator) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device)) })
	return list
}

var allocatorFacts = []Column{
	{"allocator", "PyTorch's allocator", UnitText, "what PyTorch's caching allocators, one per process and device, have of the driver at the end of the window or of their process, and what of that they have handed out; --tid, --stream and --min-bytes do not count"},
	{"allocator_reserved_bytes", "", UnitBytes, "bytes from the driver, as torch.cuda.memory_reserved() tells"},
	{"allocator_allocated_bytes", "", UnitBytes, "bytes of blocks handed out, as torch.cuda.memory_allocated() tells"},
	{"allocator_ooms", "", UnitCount, "requests in the window that the allocators could not fulfil, whatever the program did then"},
}

// facts sum up all allocators. The driver's memory behind them is in no row of leaks.
func (u *allocatorUse) facts(s *allocators) []Fact {
	list := u.finish(s)
	if len(list) == 0 {
		return fill(allocatorFacts, "", nil, nil, nil)
	}
	var sum AllocatorTotals
	var oom int64
	for _, a := range list {
		sum = sum.plus(u.levels[a].totals).plus(a.before)
		oom += u.levels[a].oom
	}
	text := fmt.Sprintf("reserved %s, of which %s allocated", bytesText(sum.Reserved), bytesText(sum.Allocated))
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
func (u *allocatorUse) table(s *allocators) Table {
	table := Table{Name: "allocators", Title: "PyTorch's caching allocators", Columns: allocatorTableColumns, Spare: []string{"peak_reserved_at_ns", "requested_bytes"}}
	start := u.t.Recording().FromNs
	for _, a := range u.finish(s) {
		l := u.levels[a]
		sum := l.totals.plus(a.before)
		var requested any = sum.Requested
		if a.reports {
			requested = nil // they do not tell it
		}
		table.Rows = append(table.Rows, Row{Cells: []any{int64(a.pid), u.t.ordinalLabel(a.pid, a.device), sum.Reserved, sum.Allocated, requested,
			l.peakReserved, max(0, l.peakNs-start), l.peakAllocated, l.allocs, l.frees, l.oom}})
	}
	u.t.addRanks(&table)
	return table
}
