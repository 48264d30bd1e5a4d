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

// LevelScan follows the live memory and its peak, by device and kind. Unlike in leaks, memory ends
// with its process: levels are the memory of the machine. It is not safe for concurrent use.
type LevelScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	kinds  map[Place]*Level
	Total  map[int32]*Level // by device, without host memory
}

// Place is a device and a kind of memory; the kind "all" is all memory on the device.
type Place struct {
	Device int32
	Memory string
}

// Level is the memory of a place: live and peak bytes, and the calls in the window.
type Level struct {
	Live, Peak, peakNs    int64
	allocs, frees, failed int64
}

// NewLevelScan returns a scan of the memory that the filter lets through.
func NewLevelScan(t *timeline.Timeline, f *query.Filter) *LevelScan {
	return &LevelScan{
		t: t, filter: f, window: f.Window(t.Recording()),
		kinds: make(map[Place]*Level), Total: make(map[int32]*Level),
	}
}

// Consume takes the next change of a replay. It returns the levels that the change moved: that of
// its device and kind, and that of all memory on the device, which is nil for host memory. Both are
// nil if the change does not pass the filter.
func (m *LevelScan) Consume(c *livemem.Change) (kind, total *Level) {
	o := &m.t.Origins.List[c.Block.Origin]
	if c.AtNs > m.window.ToNs || !m.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) ||
		c.Block.Bytes < m.filter.MinBytes {
		return nil, nil
	}
	place := Place{o.Device, m.t.Origins.Memory(c.Block.Origin)}
	if kind = m.kinds[place]; kind == nil {
		kind = new(Level)
		m.kinds[place] = kind
	}
	kind.move(c, m.window.FromNs)
	if livemem.IsHost(place.Memory) {
		return kind, nil
	}
	if total = m.Total[o.Device]; total == nil {
		total = new(Level)
		m.Total[o.Device] = total
	}
	total.move(c, m.window.FromNs)
	return kind, total
}

// move counts a change; fromNs is the start of the window, Unix ns.
func (l *Level) move(c *livemem.Change, fromNs int64) {
	inside := int64(0)
	if c.AtNs >= fromNs {
		inside = 1
	}
	switch c.Kind {
	case livemem.Allocated:
		l.Live += c.Block.Bytes
		l.allocs += inside
	case livemem.AllocFailed:
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

// failed returns the number of allocations that failed in the window.
func (m *LevelScan) failed() (n int64) {
	for _, l := range m.kinds {
		n += l.failed
	}
	return n
}

// LevelColumns are the columns of LevelScan.Table.
var LevelColumns = []report.Column{
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the context that allocated"},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "device, async (stream-ordered, from a pool), managed, array, physical (handles of cuMemCreate: live " +
			"until released and mapped nowhere), host (pinned) or registered (the program's own, pinned); all is " +
			"the sum of what is on the device: neither host nor registered",
	},
	{
		Key: "peak_bytes", Title: "PEAK", Unit: report.UnitBytes,
		About: "most bytes live at a time in the window; memory allocated before the recording is not in it",
	},
	{Key: "peak_at_ns", Title: "AT", Unit: report.UnitNs, About: "when that was, from the recording's start"},
	{
		Key: "live_bytes", Title: "LIVE AT END", Unit: report.UnitBytes,
		About: "bytes live at the end of the window; what ended processes held is not live",
	},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "allocations in the window"},
	{
		Key: "frees", Title: "FREES", Unit: report.UnitCount,
		About: "frees in the window, those by the end of a context or process included",
	},
	{Key: "failed_allocs", Title: "FAILED", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// places returns the places of the table, in the order of its rows.
func (m *LevelScan) places() []Place {
	var places []Place
	perDevice := make(map[int32]int)
	for p := range m.kinds {
		places = append(places, p)
		if !livemem.IsHost(p.Memory) {
			perDevice[p.Device]++
		}
	}
	for device, n := range perDevice {
		if n > 1 {
			places = append(places, Place{device, "all"})
		}
	}
	slices.SortFunc(places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), strings.Compare(a.Memory, b.Memory))
	})
	return places
}

// at returns the level of a place.
func (m *LevelScan) at(p Place) *Level {
	if l := m.kinds[p]; l != nil {
		return l
	}
	return m.Total[p.Device]
}

// Table returns a table with a row per place.
func (m *LevelScan) Table() report.Table {
	table := report.Table{Name: "memory", Title: "memory", Columns: LevelColumns, Spare: []string{"peak_at_ns"}}
	for _, p := range m.places() {
		table.Add(m.values(p))
	}
	return table
}

// values returns the row of a place, with the columns LevelColumns.
func (m *LevelScan) values(p Place) report.Values {
	l := m.at(p)
	return report.Values{
		"device":        m.t.DeviceLabel(p.Device),
		"memory_kind":   p.Memory,
		"peak_bytes":    l.Peak,
		"peak_at_ns":    max(0, l.peakNs-m.t.Recording().FromNs),
		"live_bytes":    l.Live,
		"allocs":        l.allocs,
		"frees":         l.frees,
		"failed_allocs": l.failed,
	}
}
