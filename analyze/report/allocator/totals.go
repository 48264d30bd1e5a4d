package allocator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// TotalsScan follows the memory of caching allocators: at the end of a window, and at its peak. It
// is not safe for concurrent use.
type TotalsScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	levels map[*caching.Allocator]*allocatorTotals
	// The allocator of the last event: most events have the same one as the event before.
	last      *caching.Allocator
	lastLevel *allocatorTotals
}

// allocatorTotals is the memory of one allocator. Memory from before the recording is part of the
// peaks, and not of totals.
type allocatorTotals struct {
	totals                   caching.Totals
	peakReserved, peakNs     int64 // of reserved bytes
	peakAllocated            int64
	allocs, frees, oom, last int64 // last is when the window's last event was
	done                     bool
}

// NewTotalsScan returns a scan of the window for the allocators that the filter lets through.
func NewTotalsScan(t *timeline.Timeline, f *query.Filter, w query.Window) *TotalsScan {
	return &TotalsScan{t: t, filter: f, window: w, levels: make(map[*caching.Allocator]*allocatorTotals)}
}

// wants reports whether the filter lets an allocator through. Its conditions on threads, streams and
// sizes have no effect.
func (u *TotalsScan) wants(a *caching.Allocator) bool {
	f := u.filter
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, a.Pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, a.Device))
}

// Watch takes the next change of an allocator.
func (u *TotalsScan) Watch(a *caching.Allocator, c *caching.Change) {
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

// level returns the memory of an allocator so far.
func (u *TotalsScan) level(a *caching.Allocator) *allocatorTotals {
	if u.last == a {
		return u.lastLevel
	}
	l := u.levels[a]
	if l == nil {
		l = &allocatorTotals{peakReserved: -1}
		u.levels[a] = l
	}
	u.last, u.lastLevel = a, l
	return l
}

// see keeps the totals that an allocator had from its last event until untilNs.
func (u *TotalsScan) see(l *allocatorTotals, a *caching.Allocator, untilNs int64) {
	l.totals = a.Seen
	if untilNs < u.window.FromNs {
		return
	}
	if reserved := a.Seen.Reserved + a.Before.Reserved; reserved > l.peakReserved {
		l.peakReserved, l.peakNs = reserved, max(l.last, u.window.FromNs)
	}
	l.peakAllocated = max(l.peakAllocated, a.Seen.Allocated+a.Before.Allocated)
}

// finish returns the allocators that the filter lets through, by process and device, after it has
// set their totals at the end of the window or of their process.
func (u *TotalsScan) finish(s *caching.Set) []*caching.Allocator {
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

// TotalsFactColumns are those of TotalsScan.Facts.
var TotalsFactColumns = []report.Column{
	{
		Key: "allocator", Title: "PyTorch's allocator", Unit: report.UnitText,
		About: "what PyTorch's caching allocators, one per process and device, have of the driver at the end of the " +
			"window or of their process, and what of that they have handed out; --tid, --stream and --min-bytes do " +
			"not count",
	},
	{
		Key: "allocator_reserved_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes from the driver, as torch.cuda.memory_reserved() tells",
	},
	{
		Key: "allocator_allocated_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of blocks handed out, as torch.cuda.memory_allocated() tells",
	},
	{
		Key: "allocator_ooms", Title: "", Unit: report.UnitCount,
		About: "requests in the window that the allocators could not fulfil, whatever the program did then",
	},
}

// Facts sums up all allocators after a replay.
func (u *TotalsScan) Facts(s *caching.Set) []report.Fact {
	list := u.finish(s)
	if len(list) == 0 {
		return report.Facts(TotalsFactColumns, report.Values{
			"allocator":                 "",
			"allocator_reserved_bytes":  nil,
			"allocator_allocated_bytes": nil,
			"allocator_ooms":            nil,
		})
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
	return report.Facts(TotalsFactColumns, report.Values{
		"allocator":                 text,
		"allocator_reserved_bytes":  sum.Reserved,
		"allocator_allocated_bytes": sum.Allocated,
		"allocator_ooms":            oom,
	})
}

// TotalsTableColumns are the columns of TotalsScan.Table.
var TotalsTableColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes from the driver at the end of the window or of the process",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of blocks that the program has then",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "bytes that were asked for, of blocks that the program has or streams still use; without blocks from " +
			"before the recording that were not freed in it",
	},
	{
		Key: "peak_reserved_bytes", Title: "PEAK RESERVED", Unit: report.UnitBytes,
		About: "most bytes from the driver in the window",
	},
	{
		Key: "peak_reserved_at_ns", Title: "AT", Unit: report.UnitNs,
		About: "when that was first, from the recording's start",
	},
	{
		Key: "peak_allocated_bytes", Title: "PEAK ALLOCATED", Unit: report.UnitBytes,
		About: "most bytes of blocks in the window",
	},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "blocks handed out in the window"},
	{Key: "frees", Title: "FREES", Unit: report.UnitCount, About: "blocks given back in the window"},
	{Key: "ooms", Title: "OOM", Unit: report.UnitCount, About: "requests in the window that could not be fulfilled"},
}

// Table returns a table with a row per allocator, after a replay.
func (u *TotalsScan) Table(s *caching.Set) report.Table {
	table := report.Table{
		Name:      "allocators",
		Title:     "PyTorch's caching allocators",
		Columns:   TotalsTableColumns,
		HideFirst: []string{"peak_reserved_at_ns", "requested_bytes"},
	}
	start := u.t.Recording().FromNs
	for _, a := range u.finish(s) {
		l := u.levels[a]
		sum := l.totals.Plus(a.Before)
		var requested any = sum.Requested
		if a.Reports {
			requested = nil // they do not tell it
		}
		table.Add(report.Values{
			"pid":                  int64(a.Pid),
			"device":               u.t.OrdinalLabel(a.Pid, a.Device),
			"reserved_bytes":       sum.Reserved,
			"allocated_bytes":      sum.Allocated,
			"requested_bytes":      requested,
			"peak_reserved_bytes":  l.peakReserved,
			"peak_reserved_at_ns":  max(0, l.peakNs-start),
			"peak_allocated_bytes": l.peakAllocated,
			"allocs":               l.allocs,
			"frees":                l.frees,
			"ooms":                 l.oom,
		})
	}
	processes.AddRanks(u.t, &table)
	return table
}
