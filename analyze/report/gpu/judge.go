package gpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/units"
)

const worthTellingPct = 1.0 // less throttling is not worth a verdict

const FullMemoryShare = 0.95

// Levels of verdicts.
var VerdictLevels = []string{"problem", "notice", "info"}

// energyOf returns the joules a device used and how that is known.
func energyOf(u *metricpkg.Devices, device int32) (joules float64, how string, ok bool) {
	of := u.Devices[device]
	if s := of[catalog.MetricEnergy]; s != nil && len(s.Values) > 1 {
		return s.Grown() / 1e3, "its energy counter", true
	}
	if s := of[catalog.MetricPower]; s != nil && len(s.Values) > 1 {
		return s.Mean() / 1e3 * s.TotalNs() / 1e9, "power samples", true
	}
	return 0, "", false
}

func jouleText(joules float64) string {
	switch {
	case joules >= 3.6e6:
		return fmt.Sprintf("%.2f kWh", joules/3.6e6)
	case joules >= 3.6e3:
		return fmt.Sprintf("%.1f Wh", joules/3.6e3)
	}
	return fmt.Sprintf("%.0f J", joules)
}

// MemoryOf returns the memory of a device that was in use, and how much it has; nil if one of them is not known.
func MemoryOf(u *metricpkg.Devices, device int32) (used *metricpkg.Series, total float64) {
	used = u.Devices[device][catalog.MetricMemoryUsed]
	total = float64(u.T.Facts.Devices[device].TotalBytes)
	if s := u.Devices[device][catalog.MetricMemoryTotal]; s != nil {
		total = s.Last()
	}
	if total <= 0 {
		return nil, 0
	}
	return used, total
}

// memoryVerdict tells of memory that was nearly full.
func memoryVerdict(u *metricpkg.Devices, device int32, add func(int, string, string, ...any)) {
	used, total := MemoryOf(u, device)
	if used == nil {
		return
	}
	if most := slices.Max(used.Values); most > FullMemoryShare*total {
		add(1, "gpurec analyze memory --reconcile says who has it", "had at most %s of %s memory in use", units.Bytes(units.RoundInt(most)), units.Bytes(units.RoundInt(total)))
	}
}

// xids counts the device's Xids in the window.
func xids(u *metricpkg.Devices, device int32) (n int64) {
	for _, x := range u.T.Facts.Xids {
		if x.Device == device && !x.Sxid && x.AtNs >= u.Window.FromNs && x.AtNs <= u.Window.ToNs {
			n++
		}
	}
	return n
}

// throttleVerdict tells how long and why the clocks of a device were held down.
func throttleVerdict(u *metricpkg.Devices, device int32, add func(int, string, string, ...any)) {
	samples := u.Devices[device][catalog.MetricReasons]
	if samples == nil {
		return
	}
	whole := samples.Share(IsThrottled)
	if whole < worthTellingPct {
		return
	}
	level := 1 // the power cap alone is how a GPU under full load works
	var parts, meanings []string
	for i := range ClockReasons {
		c := &ClockReasons[i]
		pct := samples.Share(HasBit(c.Bit))
		if !c.Slows || pct < worthTellingPct {
			continue
		}
		if c.Bit != PowerCapBit {
			level = 0
		}
		parts = append(parts, fmt.Sprintf("%s %.1f %%", c.Name, pct))
		meanings = append(meanings, c.Name+": "+c.meaning)
	}
	add(level, strings.Join(meanings, "; "), "was throttled %.1f %% of the time: %s", whole, units.Enumerated(parts))
}
