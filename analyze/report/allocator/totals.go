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

// TotalsScan collects the memory of caching allocators at the end of a window and at its peak. It
// is not safe for concurrent use.
type TotalsScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	totals map[*caching.Allocator]*allocatorTotals
	// last is the allocator of the last event, because most events have the same one as the event
	// before. lastTotals are its totals.
	last       *caching.Allocator
	lastTotals *allocatorTotals
}

// allocatorTotals is the memory of one allocator. The peaks include memory from before the
// recording, totals does not.
type allocatorTotals struct {
	totals                   caching.AllocatorTotals
	peakReserved, peakNs     int64 // peak of the reserved bytes, and its time (Unix ns)
	peakAllocated            int64 // bytes
	allocs, frees, oom, last int64 // event counts; last is the time of the last event in the window
	done                     bool  // the window or the process ended
}

// NewTotalsScan returns a scan of the window w for the allocators that pass the filter.
func NewTotalsScan(t *timeline.Timeline, f *query.Filter, w query.Window) *TotalsScan {
	return &TotalsScan{t: t, filter: f, window: w, totals: make(map[*caching.Allocator]*allocatorTotals)}
}

// passesFilter reports whether an allocator passes the filter. Conditions on threads, streams and
// sizes have no effect.
func (scan *TotalsScan) passesFilter(a *caching.Allocator) bool {
	f := scan.filter
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, a.Pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, a.Device))
}

// OnAllocatorChange processes the next change of an allocator.
func (scan *TotalsScan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	l := scan.findTotals(a)
	if c.Op == caching.OpBlockResized || l.done {
		return
	}
	scan.recordTotals(l, a, c.AtNs)
	ends := c.Op == caching.OpAllocatorEnd || c.Op == caching.OpBlockFreeRequested && scan.t.IsInTeardown(a.Pid, c.AtNs)
	if l.done = ends || c.AtNs > scan.window.ToNs; l.done || c.AtNs < scan.window.FromNs {
		return
	}
	switch c.Op {
	case caching.OpBlockAllocated:
		l.allocs++
	case caching.OpBlockFreeRequested, caching.OpBlockLost:
		if !c.IsUnseen { // the allocator's own counter has it
			l.frees++
		}
	case caching.OpTotalsRead:
		l.allocs += c.Own.UnseenAllocs
		l.frees += c.Own.UnseenFrees
		l.peakAllocated = max(l.peakAllocated, c.Own.NewPeak)
	case caching.OpOutOfMemory:
		l.oom++
	}
	l.last = c.AtNs
}

// findTotals returns the totals of an allocator so far, and creates them if necessary.
func (scan *TotalsScan) findTotals(a *caching.Allocator) *allocatorTotals {
	if scan.last == a {
		return scan.lastTotals
	}
	l := scan.totals[a]
	if l == nil {
		l = &allocatorTotals{peakReserved: -1}
		scan.totals[a] = l
	}
	scan.last, scan.lastTotals = a, l
	return l
}

// recordTotals stores the totals that an allocator had from its last event until untilNs, Unix ns.
func (scan *TotalsScan) recordTotals(l *allocatorTotals, a *caching.Allocator, untilNs int64) {
	l.totals = a.Seen
	if untilNs < scan.window.FromNs {
		return
	}
	if reserved := a.Seen.Reserved + a.Before.Reserved; reserved > l.peakReserved {
		l.peakReserved, l.peakNs = reserved, max(l.last, scan.window.FromNs)
	}
	l.peakAllocated = max(l.peakAllocated, a.Seen.Allocated+a.Before.Allocated)
}

// finishReplay sets the totals at the end of the window or of the process. It returns the
// allocators that pass the filter, sorted by process and device.
func (scan *TotalsScan) finishReplay(s *caching.AllocatorSet) []*caching.Allocator {
	var list []*caching.Allocator
	s.EachAllocator(func(a *caching.Allocator) {
		l := scan.totals[a]
		if l == nil || !scan.passesFilter(a) {
			return
		}
		if !l.done {
			scan.recordTotals(l, a, scan.window.ToNs)
		}
		list = append(list, a)
	})
	slices.SortStableFunc(list, func(a, b *caching.Allocator) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}

// TotalsFactColumns are the columns of TotalsScan.Facts.
var TotalsFactColumns = []report.Column{
	{
		Key: "allocator", Title: "PyTorch's allocator", Unit: report.UnitText,
		About: "bytes that PyTorch's caching allocators hold from the driver, and the part in allocated blocks. " +
			"Taken at the end of the window or process; --tid, --stream and --min-bytes have no effect",
	},
	{
		Key: "allocator_reserved_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes held from the driver, as in torch.cuda.memory_reserved()",
	},
	{
		Key: "allocator_allocated_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of allocated blocks, as in torch.cuda.memory_allocated()",
	},
	{
		Key: "allocator_ooms", Title: "", Unit: report.UnitCount,
		About: "requests in the window that failed for lack of memory, even if the program recovered",
	},
}

// Facts returns the sums over all allocators after a replay.
func (scan *TotalsScan) Facts(s *caching.AllocatorSet) []report.Fact {
	list := scan.finishReplay(s)
	if len(list) == 0 {
		return report.NewFacts(TotalsFactColumns, report.Values{
			"allocator":                 "",
			"allocator_reserved_bytes":  nil,
			"allocator_allocated_bytes": nil,
			"allocator_ooms":            nil,
		})
	}
	var sum caching.AllocatorTotals
	var oom int64
	for _, a := range list {
		sum = sum.AddTotals(scan.totals[a].totals).AddTotals(a.Before)
		oom += scan.totals[a].oom
	}
	text := fmt.Sprintf(
		"%s allocated of %s reserved",
		units.FormatBytes(sum.Allocated),
		units.FormatBytes(sum.Reserved),
	)
	if len(list) > 1 {
		text += fmt.Sprintf(" (%d allocators)", len(list))
	}
	return report.NewFacts(TotalsFactColumns, report.Values{
		"allocator":                 text,
		"allocator_reserved_bytes":  sum.Reserved,
		"allocator_allocated_bytes": sum.Allocated,
		"allocator_ooms":            oom,
	})
}

// TotalsTableColumns are the columns of TotalsScan.Table.
var TotalsTableColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes held from the driver at the end of the window or of the process",
	},
	{
		Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of allocated blocks at the end of the window or of the process",
	},
	{
		Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes,
		About: "requested sizes of blocks that the program holds or a stream uses; excludes unfreed blocks from " +
			"before the recording, unless they were read",
	},
	{
		Key: "peak_reserved_bytes", Title: "PEAK RESERVED", Unit: report.UnitBytes,
		About: "highest number of bytes held from the driver in the window",
	},
	{
		Key: "peak_reserved_at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of the first peak of reserved bytes, from the start of the recording",
	},
	{
		Key: "peak_allocated_bytes", Title: "PEAK ALLOCATED", Unit: report.UnitBytes,
		About: "highest number of bytes in allocated blocks in the window",
	},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "blocks allocated in the window"},
	{Key: "frees", Title: "FREES", Unit: report.UnitCount, About: "blocks freed in the window"},
	{Key: "ooms", Title: "OOM", Unit: report.UnitCount, About: "requests in the window that failed for lack of memory"},
}

// Table returns a table with one row per allocator, after a replay.
func (scan *TotalsScan) Table(s *caching.AllocatorSet) report.Table {
	table := report.Table{
		Name:      "allocators",
		Title:     "PyTorch's caching allocators",
		Columns:   TotalsTableColumns,
		HideFirst: []string{"peak_reserved_at_ns", "requested_bytes"},
	}
	start := scan.t.RecordingWindow().FromNs
	for _, a := range scan.finishReplay(s) {
		l := scan.totals[a]
		sum := l.totals.AddTotals(a.Before)
		var requested any = sum.Requested
		if a.Reports {
			requested = nil // memory reports have no requested sizes
		}
		table.Add(report.Values{
			"pid":                  int64(a.Pid),
			"device":               scan.t.OrdinalDeviceLabel(a.Pid, a.Device),
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
	processes.AddRankColumn(scan.t, &table)
	return table
}
