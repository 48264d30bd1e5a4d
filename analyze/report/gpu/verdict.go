package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/units"
)

// minThrottledPct is the smallest share of throttled time that causes a verdict, percent.
const minThrottledPct = 1.0

// FullMemoryShare is the used share of a device's memory from which the device counts as full.
const FullMemoryShare = 0.95

// VerdictLevels are the levels of verdicts, worst first.
var VerdictLevels = []string{"problem", "notice", "info"}

// Indices of VerdictLevels.
const (
	levelProblem = iota
	levelNotice
	levelInfo
)

// gpuVerdict is a remarkable fact about a device, or about the recording if device is -1.
type gpuVerdict struct {
	level  int // index of VerdictLevels
	device int32
	name   any // name of the device, a string; nil if unknown
	text   string
	action string // advice to the user
}

// findVerdicts returns the verdicts on all devices, worst level first.
func findVerdicts(gpus *metric.DeviceMetrics) (list []gpuVerdict) {
	if len(gpus.T.Facts.Samples) == 0 {
		list = append(
			list,
			gpuVerdict{level: levelNotice, device: -1, text: "the recording has no NVML samples, so there " +
				"is no data about the GPUs"},
		)
	}
	for _, device := range gpus.SortedIndexes() {
		add := func(level int, action, format string, args ...any) {
			text := fmt.Sprintf("GPU %d ", device) + fmt.Sprintf(format, args...)
			list = append(list, gpuVerdict{level, device, gpus.T.GPUName(device), text, action})
		}
		if b, ok := gpus.BusyOf(device); ok {
			add(levelInfo, "", b.Text, b.Pct, b.IdlePct)
		}
		addThrottleVerdict(gpus, device, add)
		if joules, how, ok := energyOfDevice(gpus, device); ok {
			add(levelInfo, "", "used %s, by %s", formatJoules(joules), how)
		}
		addMemoryVerdict(gpus, device, add)
		for _, h := range CheckHealth(gpus, device) {
			if h.Level < levelInfo {
				add(h.Level, h.Action, "%s: %s", h.Name, h.State)
			}
		}
		if n := countXids(gpus, device); n > 0 {
			add(levelProblem, "run gpurec analyze xid for their meaning", "had %s", units.CountWithNoun(n, "Xid"))
		}
	}
	slices.SortStableFunc(list, func(a, b gpuVerdict) int { return cmp.Compare(a.level, b.level) })
	return list
}

// energyOfDevice returns the energy that a device used in the window, and the name of its source.
func energyOfDevice(gpus *metric.DeviceMetrics, device int32) (joules float64, how string, ok bool) {
	metrics := gpus.Devices[device]
	if s := metrics[catalog.MetricEnergy]; s != nil && len(s.Values) > 1 {
		return s.CounterIncrease() / 1e3, "its energy counter", true
	}
	if s := metrics[catalog.MetricPower]; s != nil && len(s.Values) > 1 {
		return s.Mean() / 1e3 * s.CoveredNs() / 1e9, "power samples", true
	}
	return 0, "", false
}

// formatJoules formats an energy in J, Wh or kWh. joules is the energy in J.
func formatJoules(joules float64) string {
	switch {
	case joules >= 3.6e6:
		return fmt.Sprintf("%.2f kWh", joules/3.6e6)
	case joules >= 3.6e3:
		return fmt.Sprintf("%.1f Wh", joules/3.6e3)
	}
	return fmt.Sprintf("%.0f J", joules)
}

// MemoryOfDevice returns the used memory of a device over time and its total memory, bytes. It
// returns nil and 0 if the total is unknown.
func MemoryOfDevice(gpus *metric.DeviceMetrics, device int32) (used *metric.Series, total float64) {
	used = gpus.Devices[device][catalog.MetricMemoryUsed]
	total = float64(gpus.T.Facts.Devices[device].TotalBytes)
	if s := gpus.Devices[device][catalog.MetricMemoryTotal]; s != nil {
		total = s.LastValue()
	}
	if total <= 0 {
		return nil, 0
	}
	return used, total
}

// addMemoryVerdict adds a notice if the memory of the device was nearly full.
func addMemoryVerdict(gpus *metric.DeviceMetrics, device int32, add func(int, string, string, ...any)) {
	used, total := MemoryOfDevice(gpus, device)
	if used == nil {
		return
	}
	if most := slices.Max(used.Values); most > FullMemoryShare*total {
		add(
			levelNotice,
			"run gpurec analyze memory --reconcile to see the holders",
			"had at most %s of %s memory in use",
			units.FormatBytes(units.RoundInt(most)),
			units.FormatBytes(units.RoundInt(total)),
		)
	}
}

// countXids returns the number of the device's Xids in the window.
func countXids(gpus *metric.DeviceMetrics, device int32) (n int64) {
	for _, x := range gpus.T.Facts.Xids {
		if x.Device == device && !x.Sxid && x.AtNs >= gpus.Window.FromNs && x.AtNs <= gpus.Window.ToNs {
			n++
		}
	}
	return n
}

// addThrottleVerdict adds a verdict if the device was throttled.
func addThrottleVerdict(gpus *metric.DeviceMetrics, device int32, add func(int, string, string, ...any)) {
	samples := gpus.Devices[device][catalog.MetricClockEventReasons]
	if samples == nil {
		return
	}
	throttledPct := samples.SharePct(IsThrottled)
	if throttledPct < minThrottledPct {
		return
	}
	level := levelNotice // the power cap is usual under full load
	var parts, meanings []string
	for i := range ClockReasons {
		c := &ClockReasons[i]
		pct := samples.SharePct(HasClockReason(c.Bit))
		if !c.Slows || pct < minThrottledPct {
			continue
		}
		if c.Bit != ClockPowerCapBit {
			level = levelProblem
		}
		parts = append(parts, fmt.Sprintf("%s %.1f %%", c.Name, pct))
		meanings = append(meanings, c.Name+": "+c.meaning)
	}
	text := "was throttled %.1f %% of the time: %s"
	add(level, strings.Join(meanings, "; "), text, throttledPct, units.JoinWithAnd(parts))
}
