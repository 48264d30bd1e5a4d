package analyze

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// memoryUse follows how much memory is live, by device and kind, and when it was
// most. Unlike leaks it takes memory off when a process ends: it shows what the
// machine had, not what a program left behind.
type memoryUse struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	kinds  map[memoryPlace]*memoryLevel
	total  map[int32]*memoryLevel // by device, without host memory
}

type memoryPlace struct {
	device int32
	memory string
}

type memoryLevel struct {
	live, peak, peakNs    int64
	allocs, frees, failed int64
}

func newMemoryUse(t *timeline.Timeline, f *query.Filter) *memoryUse {
	return &memoryUse{t: t, filter: f, window: f.Window(t.Recording()),
		kinds: make(map[memoryPlace]*memoryLevel), total: make(map[int32]*memoryLevel)}
}

// consume takes a change of the replay and returns the levels it moved; none if the
// filter leaves it out.
func (m *memoryUse) consume(c *ledger.Change) (kind, total *memoryLevel) {
	o := &m.t.Origins.List[c.Block.Origin]
	if c.AtNs > m.window.ToNs || !m.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) || c.Block.Bytes < m.filter.MinBytes {
		return nil, nil
	}
	place := memoryPlace{o.Device, m.t.Origins.Memory(c.Block.Origin)}
	if kind = m.kinds[place]; kind == nil {
		kind = new(memoryLevel)
		m.kinds[place] = kind
	}
	kind.move(c, m.window.FromNs)
	if ledger.IsHost(place.memory) {
		return kind, nil
	}
	if total = m.total[o.Device]; total == nil {
		total = new(memoryLevel)
		m.total[o.Device] = total
	}
	total.move(c, m.window.FromNs)
	return kind, total
}

func (l *memoryLevel) move(c *ledger.Change, fromNs int64) {
	inside := int64(0)
	if c.AtNs >= fromNs {
		inside = 1
	}
	switch c.Kind {
	case ledger.Allocated:
		l.live += c.Block.Bytes
		l.allocs += inside
	case ledger.AllocFailed:
		l.failed += inside
		return
	default:
		l.live -= c.Block.Bytes
		l.frees += inside
	}
	if l.live > l.peak || c.AtNs <= fromNs {
		l.peak, l.peakNs = l.live, max(c.AtNs, fromNs)
	}
}

var useColumns = []Column{
	{"device", "DEVICE", UnitText, "CUDA device of the context that allocated"},
	{"memory_kind", "KIND", UnitText, "device, async (stream-ordered, from a pool), managed, array, physical (handles of cuMemCreate: live until released and mapped nowhere), host (pinned) or registered (the program's own, pinned); all is the sum of what is on the device: neither host nor registered"},
	{"peak_bytes", "PEAK", UnitBytes, "most bytes live at a time in the window; memory allocated before the recording is not in it"},
	{"peak_at_ns", "AT", UnitNs, "when that was, from the recording's start"},
	{"live_bytes", "LIVE AT END", UnitBytes, "bytes live at the end of the window; what ended processes held is not live"},
	{"allocs", "ALLOCS", UnitCount, "allocations in the window"},
	{"frees", "FREES", UnitCount, "frees in the window, those by the end of a context or process included"},
	{"failed_allocs", "FAILED", UnitCount, "allocations that returned an error"},
}

// places lists the rows of the table.
func (m *memoryUse) places() []memoryPlace {
	var places []memoryPlace
	perDevice := make(map[int32]int)
	for p := range m.kinds {
		places = append(places, p)
		if !ledger.IsHost(p.memory) {
			perDevice[p.device]++
		}
	}
	for device, n := range perDevice {
		if n > 1 {
			places = append(places, memoryPlace{device, "all"})
		}
	}
	slices.SortFunc(places, func(a, b memoryPlace) int {
		return cmp.Or(cmp.Compare(a.device, b.device), strings.Compare(a.memory, b.memory))
	})
	return places
}

// at returns the level of a place.
func (m *memoryUse) at(p memoryPlace) *memoryLevel {
	if l := m.kinds[p]; l != nil {
		return l
	}
	return m.total[p.device]
}

func (m *memoryUse) table() Table {
	table := Table{Name: "memory", Title: "memory", Columns: useColumns, Spare: []string{"peak_at_ns"}}
	start := m.t.Recording().FromNs
	for _, p := range m.places() {
		l := m.at(p)
		table.Rows = append(table.Rows, Row{Cells: []any{m.t.DeviceLabel(p.device), p.memory, l.peak, max(0, l.peakNs-start), l.live, l.allocs, l.frees, l.failed}})
	}
	return table
}
