package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// MemoryUse follows how much memory is live, by device and kind, and when it was
// most. Unlike leaks it takes memory off when a process ends: it shows what the
// machine had, not what a program left behind.
type MemoryUse struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	kinds  map[MemoryPlace]*MemoryLevel
	Total  map[int32]*MemoryLevel // by device, without host memory
}

type MemoryPlace struct {
	Device int32
	Memory string
}

type MemoryLevel struct {
	Live, Peak, peakNs    int64
	allocs, frees, failed int64
}

func NewMemoryUse(t *timeline.Timeline, f *query.Filter) *MemoryUse {
	return &MemoryUse{t: t, filter: f, window: f.Window(t.Recording()),
		kinds: make(map[MemoryPlace]*MemoryLevel), Total: make(map[int32]*MemoryLevel)}
}

// Consume takes a change of the replay and returns the levels it moved; none if the
// filter leaves it out.
func (m *MemoryUse) Consume(c *ledger.Change) (kind, total *MemoryLevel) {
	o := &m.t.Origins.List[c.Block.Origin]
	if c.AtNs > m.window.ToNs || !m.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) || c.Block.Bytes < m.filter.MinBytes {
		return nil, nil
	}
	place := MemoryPlace{o.Device, m.t.Origins.Memory(c.Block.Origin)}
	if kind = m.kinds[place]; kind == nil {
		kind = new(MemoryLevel)
		m.kinds[place] = kind
	}
	kind.move(c, m.window.FromNs)
	if ledger.IsHost(place.Memory) {
		return kind, nil
	}
	if total = m.Total[o.Device]; total == nil {
		total = new(MemoryLevel)
		m.Total[o.Device] = total
	}
	total.move(c, m.window.FromNs)
	return kind, total
}

func (l *MemoryLevel) move(c *ledger.Change, fromNs int64) {
	inside := int64(0)
	if c.AtNs >= fromNs {
		inside = 1
	}
	switch c.Kind {
	case ledger.Allocated:
		l.Live += c.Block.Bytes
		l.allocs += inside
	case ledger.AllocFailed:
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

var UseColumns = []report.Column{
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the context that allocated"},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "device, async (stream-ordered, from a pool), managed, array, physical (handles of cuMemCreate: live until released and mapped nowhere), host (pinned) or registered (the program's own, pinned); all is the sum of what is on the device: neither host nor registered"},
	{Key: "peak_bytes", Title: "PEAK", Unit: report.UnitBytes, About: "most bytes live at a time in the window; memory allocated before the recording is not in it"},
	{Key: "peak_at_ns", Title: "AT", Unit: report.UnitNs, About: "when that was, from the recording's start"},
	{Key: "live_bytes", Title: "LIVE AT END", Unit: report.UnitBytes, About: "bytes live at the end of the window; what ended processes held is not live"},
	{Key: "allocs", Title: "ALLOCS", Unit: report.UnitCount, About: "allocations in the window"},
	{Key: "frees", Title: "FREES", Unit: report.UnitCount, About: "frees in the window, those by the end of a context or process included"},
	{Key: "failed_allocs", Title: "FAILED", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// places lists the rows of the table.
func (m *MemoryUse) places() []MemoryPlace {
	var places []MemoryPlace
	perDevice := make(map[int32]int)
	for p := range m.kinds {
		places = append(places, p)
		if !ledger.IsHost(p.Memory) {
			perDevice[p.Device]++
		}
	}
	for device, n := range perDevice {
		if n > 1 {
			places = append(places, MemoryPlace{device, "all"})
		}
	}
	slices.SortFunc(places, func(a, b MemoryPlace) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), strings.Compare(a.Memory, b.Memory))
	})
	return places
}

// at returns the level of a place.
func (m *MemoryUse) at(p MemoryPlace) *MemoryLevel {
	if l := m.kinds[p]; l != nil {
		return l
	}
	return m.Total[p.Device]
}

func (m *MemoryUse) Table() report.Table {
	table := report.Table{Name: "memory", Title: "memory", Columns: UseColumns, Spare: []string{"peak_at_ns"}}
	for _, p := range m.places() {
		table.Add(m.values(p))
	}
	return table
}

// values returns the row of a place, with the columns UseColumns.
func (m *MemoryUse) values(p MemoryPlace) report.Values {
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
