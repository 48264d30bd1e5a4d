package live

import (
	"encoding/json"
	"math"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// addTotals adds a row of class block. Only an allocator's own totals count: they replace events that were not recorded.
func (m *memory) addTotals(row *format.Row) {
	if row.Name != format.BlockTotals {
		return
	}
	m.begin()
	m.totals = append(m.totals, caching.OwnTotals{
		Pid: row.Pid, Device: row.Device, AtNs: row.StartNs, Allocated: row.AllocatedBytes, Reserved: row.ReservedBytes,
		Peak: row.Bytes, Allocs: units.RoundInt(row.Value), Frees: row.Counter,
	})
	m.latestNs = max(m.latestNs, row.StartNs)
}

// addSwitch applies a note that allocator events are recorded from now on, or not.
func (m *memory) addSwitch(row *format.Row) {
	var s format.Sampling
	if json.Unmarshal([]byte(row.Message), &s) != nil || s.Class != format.SampledAllocator ||
		s.What != format.SampledCalls {
		return
	}
	m.begin()
	last := len(m.gaps) - 1
	isInGap := last >= 0 && m.gaps[last].ToNs == math.MaxInt64
	switch {
	case !s.Recorded && !isInGap:
		m.gaps = append(m.gaps, query.Window{FromNs: row.StartNs, ToNs: math.MaxInt64})
	case s.Recorded && isInGap:
		m.gaps[last].ToNs = row.StartNs
	}
	m.allocators.UseGaps(m.gaps)
}
