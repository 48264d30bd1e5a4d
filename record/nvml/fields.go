//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// field is a metric with a numeric NVML field ID. All fields with the same period are read in one
// call.
type field struct {
	name  string
	id    uint32
	scope uint32
	every time.Duration
}

// allLinks is the scope for the sum over all NVLinks.
const allLinks = math.MaxUint32

var fields = []field{
	{"power_instant_milliwatts", nvml.FI_DEV_POWER_INSTANT, 0, always},
	{"power_average_milliwatts", nvml.FI_DEV_POWER_AVERAGE, 0, perSecond},
	{"memory_temperature_celsius", nvml.FI_DEV_MEMORY_TEMP, 0, perSecond},
	{"throttled_power_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, perSecond},
	{"throttled_sync_boost_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, 0, perSecond},
	{"throttled_thermal_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0, perSecond},
	{"throttled_hardware_thermal_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, perSecond},
	{"throttled_power_brake_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0, perSecond},
	{"nvlink_tx_kibibytes", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks, perSecond},
	{"nvlink_rx_kibibytes", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLinks, perSecond},
}

// fieldQueries returns one query per period with the fields that the device supports.
func (g *gpu) fieldQueries() []*query {
	if !hasFunction("nvmlDeviceGetFieldValues") {
		return nil
	}
	asked := make([]nvml.FieldValue, len(fields))
	for i, f := range fields {
		asked[i].FieldId, asked[i].ScopeId = f.id, f.scope
	}
	if ret := g.handle.GetFieldValues(asked); ret != nvml.SUCCESS {
		return nil
	}
	byPeriod := make(map[time.Duration][]field)
	for i, f := range fields {
		if _, ok := fieldValue(&asked[i]); ok {
			byPeriod[f.every] = append(byPeriod[f.every], f)
		}
	}
	var queries []*query
	for _, every := range []time.Duration{always, perSecond} {
		if some := byPeriod[every]; len(some) > 0 {
			queries = append(queries, g.fieldQuery(some, every))
		}
	}
	return queries
}

// fieldQuery returns a query that reads fields in one call.
func (g *gpu) fieldQuery(some []field, every time.Duration) *query {
	values := make([]nvml.FieldValue, len(some))
	for i, f := range some {
		values[i].FieldId, values[i].ScopeId = f.id, f.scope
	}
	return &query{
		name:  some[0].name + " and other fields",
		every: every,
		run: func(c clock.Clock) ([]format.Row, nvml.Return) {
			start := c.NowNs()
			ret := g.handle.GetFieldValues(values)
			dur := c.NowNs() - start
			var rows []format.Row
			for i, f := range some {
				if nvml.Return(values[i].NvmlReturn) == nvml.ERROR_GPU_IS_LOST {
					ret = nvml.ERROR_GPU_IS_LOST
				}
				if v, ok := fieldValue(&values[i]); ok {
					rows = append(rows, g.row(start, dur, f.name, v))
				}
			}
			return rows, ret
		},
	}
}

// fieldValue decodes a field value by its type. ok is false if the device does not support the
// field.
func fieldValue(v *nvml.FieldValue) (float64, bool) {
	if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	bits := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(v.Value[:])), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(v.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), true
	}
	return 0, false
}
