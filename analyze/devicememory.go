package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// What programs ask the driver about memory is worth keeping: it counts what no call
// allocated, too.

// freeSample is an answer of cuMemGetInfo.
type freeSample struct {
	atNs                  int64
	device                int32
	freeBytes, totalBytes int64
}

// Attributes of cuMemPoolGetAttribute.
const (
	poolReservedCurrent = 5
	poolUsedCurrent     = 7
)

// poolKey names a memory pool.
type poolKey struct {
	pid  int32
	pool int64
}

// poolState is what was last asked of a pool; -1 what was not asked.
type poolState struct {
	device         int32
	reserved, used int64
	atNs           int64
}

// freeSamples returns the answers of cuMemGetInfo in order of time.
func (t *Timeline) freeSamples() []freeSample {
	var list []freeSample
	for i := range t.api.calls {
		c := &t.api.calls[i]
		if total := units.RoundInt(c.value); c.what == apiMemGetInfo && total > 0 && c.bytes >= 0 && c.bytes <= total {
			list = append(list, freeSample{c.endNs, t.deviceOf(c.pid, c.context, c.device), c.bytes, total})
		}
	}
	slices.SortStableFunc(list, func(a, b freeSample) int { return cmp.Compare(a.atNs, b.atNs) })
	return list
}

// deviceUse returns the total and the used memory of a device at the last time until
// toNs when NVML, or where there was none, the program looked.
func (t *Timeline) deviceUse(device int32, toNs int64) (total, used float64, ok bool) {
	if _, isMIG := t.sharedMIG(device); !isMIG { // samples are of whole GPUs
		total, ok = t.facts.lastSample(catalog.MetricMemoryTotal, device, toNs)
		if !ok {
			total = float64(t.facts.devices[device].totalBytes)
		}
		if used, ok = t.facts.lastSample(catalog.MetricMemoryUsed, device, toNs); ok {
			return total, used, total > 0
		}
	}
	for _, s := range slices.Backward(t.free) {
		if s.device == device && s.atNs <= toNs {
			return float64(s.totalBytes), float64(s.totalBytes - s.freeBytes), true
		}
	}
	return 0, 0, false
}

// pools returns what was last known of memory pools in the window.
func (t *Timeline) pools(w query.Window, f *query.Filter) map[poolKey]*poolState {
	devices := make(map[poolKey]int32)
	pools := make(map[poolKey]*poolState)
	for i := range t.api.calls {
		c := &t.api.calls[i]
		key := poolKey{c.pid, c.ptr}
		if c.what == apiPoolOfDevice && c.value >= 0 && c.value < ledger.MaxDevices {
			devices[key] = int32(c.value)
		}
		attribute := units.RoundInt(c.value)
		if c.what != apiPoolAttribute || attribute != poolReservedCurrent && attribute != poolUsedCurrent || c.endNs < w.FromNs || c.endNs > w.ToNs {
			continue
		}
		device, ok := devices[key]
		if !ok {
			device = t.deviceOf(c.pid, c.context, c.device)
		}
		if len(f.Pids) > 0 && !slices.Contains(f.Pids, c.pid) || len(f.Devices) > 0 && !slices.Contains(f.Devices, device) {
			continue
		}
		if pools[key] == nil {
			pools[key] = &poolState{reserved: -1, used: -1}
		}
		p := pools[key]
		p.device, p.atNs = device, max(p.atNs, c.endNs)
		if attribute == poolReservedCurrent {
			p.reserved = max(0, c.bytes)
		} else {
			p.used = max(0, c.bytes)
		}
	}
	return pools
}

var poolColumns = []Column{
	{"device", "DEVICE", UnitText, "GPU of the pool, or of the context that asked"},
	{"pid", "PID", UnitText, "process"},
	{"pool", "POOL", UnitText, "handle of the memory pool"},
	{"reserved_bytes", "RESERVED", UnitBytes, "memory the pool holds of the device, when the program last asked (cuMemPoolGetAttribute)"},
	{"used_bytes", "USED", UnitBytes, "of that what is allocated, when the program last asked; what is freed stays in the pool until it is trimmed"},
	{"at_ns", "AT", UnitNs, "when it last asked, from the recording's start"},
}

func (t *Timeline) poolTable(w query.Window, f *query.Filter) Table {
	table := Table{Name: "pools", Title: "memory pools, as the program last asked", Columns: poolColumns, Spare: []string{"at_ns"}}
	pools := t.pools(w, f)
	keys := slices.SortedFunc(maps.Keys(pools), func(a, b poolKey) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.pool, b.pool))
	})
	for _, key := range keys {
		p := pools[key]
		table.Rows = append(table.Rows, Row{Cells: []any{t.ordinalLabel(key.pid, p.device), fmt.Sprint(key.pid), fmt.Sprintf("0x%x", uint64(key.pool)),
			asked(p.reserved), asked(p.used), max(0, p.atNs-t.Recording().FromNs)}})
	}
	t.addRanks(&table)
	return table
}

// asked is a number of bytes, or nothing where nobody asked for it.
func asked(bytes int64) any {
	if bytes < 0 {
		return nil
	}
	return bytes
}
