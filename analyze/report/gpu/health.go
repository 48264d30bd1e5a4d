package gpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/units"
)

// healthCheck is the result of one health check of a device. Level is an index of VerdictLevels.
type healthCheck struct {
	Name, State, Action string
	Level               int
	value               any
}

// CheckHealth returns the health checks of a device. It omits checks whose metrics were not
// sampled.
func CheckHealth(gpus *metric.DeviceMetrics, device int32) []healthCheck {
	var list []healthCheck
	metrics := gpus.Devices[device]
	last := func(metricName string) (v int64, rise int64, ok bool) {
		s := metrics[metricName]
		if s == nil {
			return 0, 0, false
		}
		return units.RoundInt(s.LastValue()), units.RoundInt(s.CounterIncrease()), true
	}
	add := func(level int, name string, value any, state, action string) {
		list = append(list, healthCheck{Name: name, State: state, Action: action, Level: level, value: value})
	}
	checkECC(gpus, device, last, add)
	if v, _, ok := last("remapped_rows_failure"); ok && v > 0 {
		add(levelProblem, "row remapping", v, "a row of memory could not be remapped", "replace the GPU; run NVIDIA's "+
			"field diagnostics")
	} else if v, _, ok := last("remapped_rows_pending"); ok && v > 0 {
		add(levelProblem, "row remapping", v, "a row of memory is pending remapping", "drain the GPU and reset it "+
			"(nvidia-smi -r)")
	} else if ok {
		bad, _, _ := last("remapped_rows_uncorrectable")
		good, _, _ := last("remapped_rows_correctable")
		if bad+good == 0 {
			add(levelInfo, "row remapping", int64(0), "no row of memory has ever been remapped", "")
		} else {
			add(levelInfo, "row remapping", bad+good, fmt.Sprintf("%s remapped in the GPU's lifetime, %d because of "+
				"uncorrectable errors; none pending", units.CountWithNoun(bad+good, "row"), bad), "")
		}
	}
	if v, _, ok := last("retired_pages_pending"); ok {
		single, _, _ := last("retired_pages_single_bit")
		double, _, _ := last("retired_pages_double_bit")
		switch {
		case v > 0:
			add(levelProblem, "page retirement", single+double, "pages of memory are pending retirement",
				"drain the GPU and reset it, or reboot")
		case single+double > 60:
			add(
				levelProblem,
				"page retirement",
				single+double,
				units.CountWithNoun(single+double, "page")+" of memory retired",
				"replace the GPU: at most 64 pages can be retired",
			)
		default:
			pages := units.CountWithNoun(single+double, "page")
			add(levelInfo, "page retirement", single+double, pages+" of memory retired, none pending", "")
		}
	}
	checkLinks(gpus, device, last, add)
	limit := gpus.T.Facts.Devices[device].Fact.SlowdownCelsius
	if s := metrics[catalog.MetricTemperature]; s != nil && limit > 0 {
		hottest := units.RoundInt(slices.Max(s.Values))
		if hottest >= limit {
			add(
				levelProblem,
				"temperature",
				hottest,
				fmt.Sprintf("%d °C; the GPU reduces its clocks from %d °C", hottest, limit),
				"check the cooling",
			)
		} else {
			add(
				levelInfo,
				"temperature",
				hottest,
				fmt.Sprintf("at most %d °C, %d below the slowdown", hottest, limit-hottest),
				"",
			)
		}
	}
	return list
}

// checkECC adds the checks of the ECC error counters.
func checkECC(
	gpus *metric.DeviceMetrics,
	device int32,
	last func(string) (int64, int64, bool),
	add func(int, string, any, string, string),
) {
	if on := gpus.T.Facts.Devices[device].Fact.ECC; on != nil && !*on {
		add(
			levelNotice,
			"ECC",
			nil,
			"ECC is off: memory errors are not detected",
			"turn ECC on: run nvidia-smi -e 1 and reset the GPU",
		)
		return
	}
	if v, rise, ok := last("ecc_uncorrected_volatile_errors"); ok {
		lifetime, _, _ := last("ecc_uncorrected_aggregate_errors")
		life := fmt.Sprintf("%s in the GPU's lifetime", units.FormatCount(lifetime))
		switch {
		case rise > 0:
			add(
				levelProblem,
				"ECC, uncorrected",
				v,
				fmt.Sprintf("%s during the recording, %s", units.CountWithNoun(rise, "error"), life),
				"results of this run may be wrong; run gpurec analyze xid, drain the GPU and reset it",
			)
		case v > 0:
			add(
				levelProblem,
				"ECC, uncorrected",
				v,
				fmt.Sprintf(
					"%s since the driver was loaded, before the recording, %s",
					units.CountWithNoun(v, "error"),
					life,
				),
				"drain the GPU and reset it; replace it if the errors return",
			)
		default:
			add(levelInfo, "ECC, uncorrected", v, "no error since the driver was loaded, "+life, "")
		}
	}
	if v, rise, ok := last("ecc_corrected_volatile_errors"); ok {
		level, action := levelInfo, ""
		if rise > 0 {
			level, action = levelNotice, "no data was lost; watch whether the number of errors keeps rising"
		}
		add(level, "ECC, corrected", v, fmt.Sprintf("%s since the driver was loaded, %s of them during the "+
			"recording", units.CountWithNoun(v, "error"), units.FormatCount(rise)), action)
	}
}

// checkLinks adds the checks of PCIe and NVLink. An idle GPU slows its PCIe link down. So
// checkLinks reports only a speed that the link never reached.
func checkLinks(
	gpus *metric.DeviceMetrics,
	device int32,
	last func(string) (int64, int64, bool),
	add func(int, string, any, string, string),
) {
	fact, metrics := &gpus.T.Facts.Devices, gpus.Devices[device]
	for _, link := range []struct {
		name, metric, unit string
		most               int64
	}{
		{"PCIe generation", catalog.MetricPCIeGen, "", (*fact)[device].Fact.PCIeGenerationMax},
		{"PCIe width", catalog.MetricPCIeWidth, " lanes", (*fact)[device].Fact.PCIeWidthMax},
	} {
		s := metrics[link.metric]
		if s == nil || link.most <= 0 {
			continue
		}
		high, low := units.RoundInt(slices.Max(s.Values)), units.RoundInt(slices.Min(s.Values))
		switch b, ok := gpus.BusyOf(device); {
		case high < link.most && (!ok || b.IdlePct < 100):
			add(
				levelNotice,
				link.name,
				high,
				fmt.Sprintf("the link never used more than %d of %d%s", high, link.most, link.unit),
				"copies are slower than possible: check slot, riser and BIOS settings",
			)
		case low < high:
			add(
				levelInfo,
				link.name,
				units.RoundInt(s.LastValue()),
				fmt.Sprintf("%d of %d%s, at times %d: usual when the GPU is idle", high, link.most, link.unit, low),
				"",
			)
		default:
			add(levelInfo, link.name, high, fmt.Sprintf("%d of %d%s", high, link.most, link.unit), "")
		}
	}
	if _, rise, ok := last("pcie_replays"); ok && rise > 0 {
		add(
			levelNotice,
			"PCIe replays",
			rise,
			units.CountWithNoun(rise, "packet")+" resent during the recording",
			"bit errors on the bus: check slot, riser and cable if there are many",
		)
	}
	// NVLink of Hopper and later corrects bit errors all the time. For 23 GiB over NCCL, two H200
	// GPUs had 3,250 CRC errors, 5,774 ECC data errors and no replay. Only resent packets reduce
	// the throughput.
	var errors []string
	var sum, resent int64
	for _, kind := range []string{"recovery", "replay", "crc_flit", "crc_data", "ecc_data"} {
		if _, rise, ok := last("nvlink_" + kind + "_errors"); ok && rise > 0 {
			errors = append(errors, fmt.Sprintf("%s %s", units.FormatCount(rise), strings.ReplaceAll(kind, "_", " ")))
			sum += rise
			if !strings.HasSuffix(kind, "_data") {
				resent += rise
			}
		}
	}
	switch {
	case resent == 0 && sum > 0:
		add(
			levelInfo,
			"NVLink errors",
			sum,
			units.JoinWithAnd(errors)+" errors during the recording, corrected on the "+
				"link without resending",
			"",
		)
	case resent > 0:
		add(
			levelNotice,
			"NVLink errors",
			sum,
			units.JoinWithAnd(errors)+" errors during the recording",
			"check nvidia-smi nvlink -e; many errors reduce the throughput",
		)
	}
}
