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

// fieldMetric is a metric with a numeric NVML field ID. All fields with the same period are read in
// one call.
type fieldMetric struct {
	name  string
	id    uint32
	scope uint32
	every time.Duration
}

// scopeAllNVLinks is the scope for the sum over all NVLinks.
const scopeAllNVLinks = math.MaxUint32

var fieldMetrics = []fieldMetric{
	{"power_instant_milliwatts", nvml.FI_DEV_POWER_INSTANT, 0, periodEverySample},
	{"power_average_milliwatts", nvml.FI_DEV_POWER_AVERAGE, 0, periodSecond},
	{"memory_temperature_celsius", nvml.FI_DEV_MEMORY_TEMP, 0, periodSecond},
	{"throttled_power_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, periodSecond},
	{"throttled_sync_boost_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, 0, periodSecond},
	{"throttled_thermal_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0, periodSecond},
	{"throttled_hardware_thermal_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, periodSecond},
	{"throttled_power_brake_nanoseconds", nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0, periodSecond},
	{"nvlink_tx_kibibytes", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scopeAllNVLinks, periodSecond},
	{"nvlink_rx_kibibytes", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scopeAllNVLinks, periodSecond},
}

// makeFieldQueries returns one query per period with the fields that the device supports.
func (g *gpu) makeFieldQueries() []*query {
	if !hasNVMLFunction("nvmlDeviceGetFieldValues") {
		return nil
	}
	asked := make([]nvml.FieldValue, len(fieldMetrics))
	for i, f := range fieldMetrics {
		asked[i].FieldId, asked[i].ScopeId = f.id, f.scope
	}
	if ret := g.handle.GetFieldValues(asked); ret != nvml.SUCCESS {
		return nil
	}
	byPeriod := make(map[time.Duration][]fieldMetric)
	for i, f := range fieldMetrics {
		if _, ok := decodeFieldValue(&asked[i]); ok {
			byPeriod[f.every] = append(byPeriod[f.every], f)
		}
	}
	var queries []*query
	for _, every := range []time.Duration{periodEverySample, periodSecond} {
		if some := byPeriod[every]; len(some) > 0 {
			queries = append(queries, g.makeFieldQuery(some, every))
		}
	}
	return queries
}

// makeFieldQuery returns a query that reads fields in one call.
func (g *gpu) makeFieldQuery(some []fieldMetric, every time.Duration) *query {
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
				if v, ok := decodeFieldValue(&values[i]); ok {
					rows = append(rows, g.makeMetricRow(start, dur, f.name, v))
				}
			}
			return rows, ret
		},
	}
}

// decodeFieldValue decodes a field value by its type. ok is false if the device does not support
// the field.
func decodeFieldValue(v *nvml.FieldValue) (float64, bool) {
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
