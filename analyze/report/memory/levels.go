package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// LevelScan tracks live and peak memory by device and kind. Unlike package leaks, it counts memory
// as freed when its process ends. It is not safe for concurrent use.
type LevelScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	kinds  map[DeviceMemoryKind]*MemoryLevel
	Total  map[int32]*MemoryLevel // by device, excluding host memory
}

// DeviceMemoryKind is a device and a kind of memory. The kind "all" is all memory on the device.
type DeviceMemoryKind struct {
	Device int32
	Memory string
}

// MemoryLevel is the memory of one device and kind. Live, Peak, allocs, frees and failed are those
// of the window: bytes, and numbers of calls. peakNs is the time of the peak, Unix ns.
type MemoryLevel struct {
	Live, Peak, peakNs    int64
	allocs, frees, failed int64
}

// NewLevelScan returns a scan of the memory that passes the filter.
func NewLevelScan(t *timeline.Timeline, f *query.Filter) *LevelScan {
	return &LevelScan{
		t: t, filter: f, window: f.NarrowWindow(t.RecordingWindow()),
		kinds: make(map[DeviceMemoryKind]*MemoryLevel), Total: make(map[int32]*MemoryLevel),
	}
}

// OnDriverChange processes the next change of a replay. It returns the two levels that the change
// modified. kind is that of the block's device and kind. total is that of all memory on the device,
// and nil for host memory. Both are nil if the change does not pass the filter.
func (s *LevelScan) OnDriverChange(c *livemem.Change) (kind, total *MemoryLevel) {
	o := &s.t.Origins.List[c.Block.Origin]
	if c.AtNs > s.window.ToNs || !s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) ||
		c.Block.Bytes < s.filter.MinBytes {
		return nil, nil
	}
	place := DeviceMemoryKind{o.Device, s.t.Origins.MemoryKindOf(c.Block.Origin)}
	if kind = s.kinds[place]; kind == nil {
		kind = new(MemoryLevel)
		s.kinds[place] = kind
	}
	kind.applyChange(c, s.window.FromNs)
	if livemem.IsHostKind(place.Memory) {
		return kind, nil
	}
	if total = s.Total[o.Device]; total == nil {
		total = new(MemoryLevel)
		s.Total[o.Device] = total
	}
	total.applyChange(c, s.window.FromNs)
	return kind, total
}

// applyChange applies a change to the level. fromNs is the start of the window, Unix ns.
func (l *MemoryLevel) applyChange(c *livemem.Change, fromNs int64) {
	inside := int64(0)
	if c.AtNs >= fromNs {
		inside = 1
	}
	switch c.Kind {
	case livemem.ChangeAllocated:
		l.Live += c.Block.Bytes
		if !c.Block.IsEarlier() {
			l.allocs += inside
		}
	case livemem.ChangeAllocFailed:
		l.failed += inside
		return
	default:
		l.Live -= c.Block.Bytes
		l.frees += inside
	}
	if l.Live > l.Peak || c.AtNs <= fromNs {
		l.Peak, l.peakNs = l.Live, max(c.AtNs, fromNs)
	}
}

// failedAllocations returns the number of allocations that failed in the window.
func (s *LevelScan) failedAllocations() (n int64) {
	for _, l := range s.kinds {
		n += l.failed
	}
	return n
}

// LevelColumns are the columns of LevelScan.Table.
var LevelColumns = []report.Column{
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device of the context that allocated the memory",
	},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of the memory. Async: stream-ordered, from a pool. Physical: handles of cuMemCreate, live until " +
			"released and unmapped. Host: pinned. Registered: the program's own memory, pinned. All: sum of the " +
			"kinds on the device, without host and registered",
	},
	{
		Key:   "peak_bytes",
		Title: "PEAK",
		Unit:  report.UnitBytes,
		About: "highest live bytes in the window; excludes memory allocated before the recording, except for " +
			"segments of PyTorch's allocator that were read",
	},
	{Key: "peak_at_ns", Title: "AT", Unit: report.UnitNs, About: "time of the peak, from the start of the recording"},
	{
		Key: "live_bytes", Title: "LIVE AT END", Unit: report.UnitBytes,
		About: "live bytes at the end of the window; excludes memory of processes that ended",
	},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "allocations in the window"},
	{
		Key: "frees", Title: "FREES", Unit: report.UnitCount,
		About: "frees in the window, including those by the end of a context or process",
	},
	{Key: "failed_allocs", Title: "FAILED", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// deviceKinds returns the device kinds of the table, in the order of its rows.
func (s *LevelScan) deviceKinds() []DeviceMemoryKind {
	var places []DeviceMemoryKind
	perDevice := make(map[int32]int)
	for p := range s.kinds {
		places = append(places, p)
		if !livemem.IsHostKind(p.Memory) {
			perDevice[p.Device]++
		}
	}
	for device, n := range perDevice {
		if n > 1 {
			places = append(places, DeviceMemoryKind{device, "all"})
		}
	}
	slices.SortFunc(places, func(a, b DeviceMemoryKind) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), strings.Compare(a.Memory, b.Memory))
	})
	return places
}

// levelOf returns the level of a device kind.
func (s *LevelScan) levelOf(p DeviceMemoryKind) *MemoryLevel {
	if l := s.kinds[p]; l != nil {
		return l
	}
	return s.Total[p.Device]
}

// Table returns a table with one row per device and kind.
func (s *LevelScan) Table() report.Table {
	table := report.Table{Name: "memory", Title: "memory", Columns: LevelColumns, HideFirst: []string{"peak_at_ns"}}
	for _, p := range s.deviceKinds() {
		table.Add(s.levelValues(p))
	}
	return table
}

// levelValues returns the row of a device kind, with the columns LevelColumns.
func (s *LevelScan) levelValues(p DeviceMemoryKind) report.Values {
	l := s.levelOf(p)
	return report.Values{
		"device":        s.t.DeviceLabel(p.Device),
		"memory_kind":   p.Memory,
		"peak_bytes":    l.Peak,
		"peak_at_ns":    max(0, l.peakNs-s.t.RecordingWindow().FromNs),
		"live_bytes":    l.Live,
		"allocs":        l.allocs,
		"frees":         l.frees,
		"failed_allocs": l.failed,
	}
}
