package metric

import (
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// MaxIdlePct is the percentage below which a GPU counts as idle: reports print such values as
// 0.0 %.
const MaxIdlePct = 0.05 // GPM reports fractions of a percent

// DeviceMetrics holds the NVML samples of each device in the window.
type DeviceMetrics struct {
	T       *timeline.Timeline
	Window  query.Window
	Filter  *query.Filter
	Devices map[int32]map[string]*Series
}

// CollectSamples sorts the samples by device and metric. It skips NaN and infinite values, which
// mean "not measured".
func (m *DeviceMetrics) CollectSamples() {
	f := &m.T.Facts
	for _, s := range f.Samples {
		if s.AtNs < m.Window.FromNs || s.AtNs > m.Window.ToNs || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) ||
			len(m.Filter.Devices) > 0 && !slices.Contains(m.Filter.Devices, s.Device) {
			continue
		}
		of := m.Devices[s.Device]
		if of == nil {
			of = make(map[string]*Series)
			m.Devices[s.Device] = of
		}
		name := f.Metrics.List[s.Metric]
		if of[name] == nil {
			of[name] = new(Series)
		}
		of[name].AtNs, of[name].Values = append(of[name].AtNs, s.AtNs), append(of[name].Values, s.Value)
	}
	for _, of := range m.Devices {
		for _, s := range of {
			s.ComputeWeights()
		}
	}
}

// SortedIndexes returns the NVML indexes of the devices in order.
func (m *DeviceMetrics) SortedIndexes() []int32 { return slices.Sorted(maps.Keys(m.Devices)) }

// DeviceBusy is how busy a device was, by the best available metric.
type DeviceBusy struct {
	Pct, IdlePct float64
	Text         string // format for a sentence with Pct and IdlePct
}

// BusyOf returns how busy a device was. GPM measures active SMs; NVML utilization only says that
// some kernel ran. It returns false if neither was sampled.
func (m *DeviceMetrics) BusyOf(device int32) (DeviceBusy, bool) {
	of := m.Devices[device]
	idle := func(v float64) bool { return v < MaxIdlePct }
	if s := of[catalog.MetricSMActive]; s != nil {
		return DeviceBusy{
			s.Mean(),
			s.SharePct(idle),
			"was busy %.1f %% (SMs active, GPM), idle %.1f %% of the time",
		}, true
	}
	if s := of[catalog.MetricGPUUtilization]; s != nil {
		return DeviceBusy{
			s.Mean(),
			s.SharePct(idle),
			"ran some kernel %.1f %% of the time (GPU utilization), idle %.1f %%",
		}, true
	}
	return DeviceBusy{}, false
}

// PassesFilter applies the filter's processes and devices to a sample.
func (m *DeviceMetrics) PassesFilter(s *facts.ProcessSample) bool {
	return (len(m.Filter.Pids) == 0 || slices.Contains(m.Filter.Pids, s.Pid)) &&
		(len(m.Filter.Devices) == 0 || slices.Contains(m.Filter.Devices, s.Device))
}
