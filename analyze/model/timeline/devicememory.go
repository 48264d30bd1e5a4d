package timeline

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Values that the program read from the driver also include memory that no recorded call allocated.

// FreeMemorySample is a result of cuMemGetInfo.
type FreeMemorySample struct {
	AtNs                  int64
	Device                int32
	FreeBytes, TotalBytes int64
}

// Attributes of cuMemPoolGetAttribute, as in CUmemPool_attribute.
const (
	PoolAttributeReserved = 5
	PoolAttributeUsed     = 7
)

// MemoryPoolKey identifies a memory pool of a process.
type MemoryPoolKey struct {
	Pid  int32
	Pool int64
}

// MemoryPoolState has the latest attributes that the program read from a memory pool. A size
// of -1 means that the program did not read the attribute.
type MemoryPoolState struct {
	Device                   int32
	ReservedBytes, UsedBytes int64
	AtNs                     int64
}

// freeMemorySamples returns the results of cuMemGetInfo in order of time.
func (t *Timeline) freeMemorySamples() []FreeMemorySample {
	var list []FreeMemorySample
	for i := range t.API.Calls {
		c := &t.API.Calls[i]
		if total := units.RoundInt(c.value); c.Kind == APIMemGetInfo && total > 0 && c.bytes >= 0 && c.bytes <= total {
			list = append(list, FreeMemorySample{c.EndNs, t.DeviceOfCall(c.Pid, c.context, c.Device), c.bytes, total})
		}
	}
	slices.SortStableFunc(list, func(a, b FreeMemorySample) int { return cmp.Compare(a.AtNs, b.AtNs) })
	return list
}

// DeviceMemoryUse returns the total and used memory of a device in bytes, from the last sample at
// or before toNs. It uses NVML samples, or results of cuMemGetInfo if there are none. It returns
// false without either.
func (t *Timeline) DeviceMemoryUse(device int32, toNs int64) (total, used float64, ok bool) {
	if _, isMIG := t.sharedMIGLabel(device); !isMIG { // NVML samples describe whole GPUs
		total, ok = t.Facts.LastSample(catalog.MetricMemoryTotal, device, toNs)
		if !ok {
			total = float64(t.Facts.Devices[device].TotalBytes)
		}
		if used, ok = t.Facts.LastSample(catalog.MetricMemoryUsed, device, toNs); ok {
			return total, used, total > 0
		}
	}
	for _, s := range slices.Backward(t.Free) {
		if s.Device == device && s.AtNs <= toNs {
			return float64(s.TotalBytes), float64(s.TotalBytes - s.FreeBytes), true
		}
	}
	return 0, 0, false
}

// MemoryPools returns the latest state of each memory pool that the program read in the window.
func (t *Timeline) MemoryPools(w query.Window, f *query.Filter) map[MemoryPoolKey]*MemoryPoolState {
	devices := make(map[MemoryPoolKey]int32)
	pools := make(map[MemoryPoolKey]*MemoryPoolState)
	for i := range t.API.Calls {
		c := &t.API.Calls[i]
		key := MemoryPoolKey{c.Pid, c.ptr}
		if c.Kind == APIPoolOfDevice && c.value >= 0 && c.value < livemem.MaxDevices {
			devices[key] = int32(c.value)
		}
		attribute := units.RoundInt(c.value)
		if c.Kind != APIPoolAttribute || attribute != PoolAttributeReserved && attribute != PoolAttributeUsed ||
			c.EndNs < w.FromNs ||
			c.EndNs > w.ToNs {
			continue
		}
		device, ok := devices[key]
		if !ok {
			device = t.DeviceOfCall(c.Pid, c.context, c.Device)
		}
		if len(f.Pids) > 0 && !slices.Contains(f.Pids, c.Pid) ||
			len(f.Devices) > 0 && !slices.Contains(f.Devices, device) {
			continue
		}
		if pools[key] == nil {
			pools[key] = &MemoryPoolState{ReservedBytes: -1, UsedBytes: -1}
		}
		p := pools[key]
		p.Device, p.AtNs = device, max(p.AtNs, c.EndNs)
		if attribute == PoolAttributeReserved {
			p.ReservedBytes = max(0, c.bytes)
		} else {
			p.UsedBytes = max(0, c.bytes)
		}
	}
	return pools
}
