package catalog

import (
	"math"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// MetricValue is a number whose unit depends on the row. Text output shows the unit; JSON and CSV
// have the bare number.
type MetricValue struct {
	Value float64
	Unit  MetricUnit
}

// MarshalJSON writes the number, or null for NaN and infinite values.
func (m MetricValue) MarshalJSON() ([]byte, error) {
	if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
		return []byte("null"), nil
	}
	return []byte(m.String()), nil
}

// String returns the number without a unit.
func (m MetricValue) String() string { return strconv.FormatFloat(m.Value, 'f', -1, 64) }

// MetricUnit is the display unit of a metric: its name, and the factor from the stored value.
type MetricUnit struct {
	Name     string
	Factor   float64
	decimals int
}

// metricUnitsBySuffix maps suffixes of metric names to units. The longest matching suffix applies.
var metricUnitsBySuffix = map[string]MetricUnit{
	"_percent": {
		"%",
		1,
		1,
	},
	"_bytes":     {"bytes", 1, 0},
	"_kilobytes": {"bytes", 1e3, 0},
	"_kibibytes": {"bytes", 1 << 10, 0},
	"_mebibytes": {"bytes", 1 << 20, 0},
	"_bytes_per_second": {
		"bytes/s",
		1,
		0,
	},
	"_kilobytes_per_second": {"bytes/s", 1e3, 0},
	"_kibibytes_per_second": {"bytes/s", 1 << 10, 0},
	"_mebibytes_per_second": {"bytes/s", 1 << 20, 0},
	"_milliwatts": {
		"W",
		1e-3,
		1,
	},
	"_watts":       {"W", 1, 1},
	"_millijoules": {"J", 1e-3, 0},
	"_joules":      {"J", 1, 0},
	"_celsius":     {"°C", 1, 0},
	"_mhz":         {"MHz", 1, 0},
	"_nanoseconds": {
		"ns",
		1,
		0,
	},
	"_microseconds":      {"ns", 1e3, 0},
	"_milliseconds":      {"ns", 1e6, 0},
	"_seconds":           {"ns", 1e9, 0},
	"_lanes":             {"lanes", 1, 0},
	"_frames_per_second": {"frames/s", 1, 0},
	"_per_second":        {"/s", 1, 1},
	"_cores":             {"cores", 1, 2},
}

// UnitOfMetric returns the display unit of a metric, by the suffix of its name. This also covers
// metrics that this version does not know.
func UnitOfMetric(metric string) MetricUnit {
	best, unit := 0, MetricUnit{"", 1, 2}
	for suffix, u := range metricUnitsBySuffix {
		if len(suffix) > best && strings.HasSuffix(metric, suffix) {
			best, unit = len(suffix), u
		}
	}
	return unit
}

// TextWithUnit formats the value with its unit.
func (m MetricValue) TextWithUnit() string {
	v := m.Value * m.Unit.Factor
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case m.Unit.Name == "bytes":
		return units.FormatBytes(units.RoundInt(v))
	case m.Unit.Name == "bytes/s":
		return units.FormatBytes(units.RoundInt(v)) + "/s"
	case m.Unit.Name == "ns":
		return units.FormatDuration(units.RoundInt(v))
	case m.Unit.Name == "" && v == math.Trunc(v):
		return units.FormatCount(units.RoundInt(v))
	}
	text := strconv.FormatFloat(v, 'f', m.Unit.decimals, 64)
	if m.Unit.decimals == 0 {
		text = units.FormatCount(units.RoundInt(v))
	}
	return strings.TrimSpace(text + " " + m.Unit.Name)
}

// IsCounterMetric reports whether a metric only increases, so that its increase matters rather than
// its value.
func IsCounterMetric(metric string) bool {
	switch metric {
	case "energy_millijoules", "pcie_replays", "nvlink_tx_kibibytes", "nvlink_rx_kibibytes":
		return true
	}
	return strings.HasPrefix(metric, "throttled_") && strings.HasSuffix(metric, "_nanoseconds") ||
		strings.HasSuffix(metric, "_errors")
}
