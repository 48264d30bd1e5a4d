package gpu

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// totalColumns are the columns of totals.
var totalColumns = []report.Column{
	{Key: "problems", Title: "problems", Unit: report.UnitCount, About: "number of verdicts of level problem"},
	{
		Key: "busy_pct_min", Title: "% busy at least", Unit: report.UnitPercent,
		About: "busy share of the least busy device; absent without samples",
	},
	{
		Key: "idle_pct_max", Title: "% idle at most", Unit: report.UnitPercent,
		About: "idle share of the most idle device",
	},
	{
		Key: "throttled_pct_max", Title: "% throttled at most", Unit: report.UnitPercent,
		About: "highest share of the time in which a device's clocks were reduced because of power or temperature",
	},
	{
		Key: "energy_joules", Title: "energy in J", Unit: report.UnitRatio,
		About: "energy of all devices between the first and last sample in the window",
	},
	{
		Key: "uncorrected_ecc_errors", Title: "uncorrected ECC errors", Unit: report.UnitCount,
		About: "uncorrected ECC errors of all devices in the window, from the rise of their counters",
	},
}

// computeTotals returns the totals of the report.
func computeTotals(gpus *metric.DeviceMetrics, verdicts []gpuVerdict) []report.Fact {
	var problems int64
	for i := range verdicts {
		if verdicts[i].level == levelProblem {
			problems++
		}
	}
	var busyMin, idleMax, throttledMax, energy, ecc any
	for _, device := range gpus.SortedIndexes() {
		if b, ok := gpus.BusyOf(device); ok {
			busyMin, idleMax = report.MinCell(busyMin, b.Pct), report.MaxCell(idleMax, b.IdlePct)
		}
		if s := gpus.Devices[device][catalog.MetricClockEventReasons]; s != nil {
			throttledMax = report.MaxCell(throttledMax, s.SharePct(IsThrottled))
		}
		if joules, _, ok := energyOfDevice(gpus, device); ok {
			sum, _ := energy.(int64)
			energy = sum + units.RoundInt(joules)
		}
		if s := gpus.Devices[device]["ecc_uncorrected_volatile_errors"]; s != nil {
			sum, _ := ecc.(int64)
			ecc = sum + units.RoundInt(s.CounterIncrease())
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"problems":               problems,
		"busy_pct_min":           busyMin,
		"idle_pct_max":           idleMax,
		"throttled_pct_max":      throttledMax,
		"energy_joules":          energy,
		"uncorrected_ecc_errors": ecc,
	})
}

// verdictColumns are the columns of verdictTable.
var verdictColumns = []report.Column{
	{
		Key: "level", Title: "LEVEL", Unit: report.UnitText,
		About: "severity. Problem: action is needed. Notice: worth knowing. Info: normal",
	},
	{Key: "device", Title: "", Unit: report.UnitID, About: "NVML index of the GPU"},
	gpuNameColumn,
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "finding about the GPU, with its numbers. Busy is gpm_sm_active_percent, or gpu_utilization_percent " +
			"without GPM. Idle are samples below 0.05% busy. Throttled is by clock_event_reasons. Energy is from the " +
			"GPU's counter, or else power times time",
	},
}

// verdictTable returns a table with one row per verdict.
func verdictTable(verdicts []gpuVerdict) report.Table {
	table := report.Table{Name: "verdicts", Title: "findings", Columns: verdictColumns, Secondary: true}
	for i := range verdicts {
		v := &verdicts[i]
		values := report.Values{"level": VerdictLevels[v.level], "device": nil, "device_name": nil, "verdict": v.text}
		if v.device >= 0 {
			values["device"], values["device_name"] = int64(v.device), v.name
		}
		table.Add(values).Evidence = v.action
	}
	return table
}

// throttleColumns are the columns of throttleTable.
var throttleColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "reason", Title: "REASON", Unit: report.UnitText,
		About: "reason that determined the clocks, a bit of clock_event_reasons; several can be set at a time",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of the sampled time in which the bit was set; absent if the GPU does not report it",
	},
	{
		Key: "time_ns", Title: "TIME", Unit: report.UnitNs,
		About: "SHARE% of the time between the first and last sample",
	},
	{
		Key: "counted_ns", Title: "COUNTED", Unit: report.UnitNs,
		About: "time in which the reason applied, from the driver's counter, which covers the time between samples; " +
			"absent without a counter",
	},
	{
		Key: "slows", Title: "SLOWS", Unit: report.UnitText,
		About: "yes if the reason keeps the GPU below its highest possible clocks",
	},
	{Key: "meaning", Title: "MEANING", Unit: report.UnitText, About: "meaning of the reason, and advice"},
}

// throttleTable returns a table with one row per device and reason that applied.
func throttleTable(gpus *metric.DeviceMetrics) report.Table {
	table := report.Table{
		Name: "throttling", Title: "what determined the clocks", Columns: slices.Clone(throttleColumns),
		Secondary: true, HideFirst: []string{"slows", "time_ns"},
	}
	counted := false
	for _, device := range gpus.SortedIndexes() {
		for i := range ClockReasons {
			c := &ClockReasons[i]
			share, timeNs := throttledTime(gpus.Devices[device][catalog.MetricClockEventReasons], c.Bit)
			var count any
			if s := gpus.Devices[device][c.counter]; s != nil && len(s.Values) > 1 && s.CounterIncrease() > 0 {
				count, counted = units.RoundInt(s.CounterIncrease()), true
			}
			if isSeen := share != nil && share != 0.0; !isSeen && count == nil {
				continue
			}
			slows := "no"
			if c.Slows {
				slows = "yes"
			}
			table.Add(report.Values{
				"device":      int64(device),
				"device_name": gpus.T.GPUName(device),
				"reason":      c.Name,
				"share_pct":   share,
				"time_ns":     timeNs,
				"counted_ns":  count,
				"slows":       slows,
				"meaning":     c.meaning,
			})
		}
	}
	if !counted {
		report.HideTitle(table.Columns, "counted_ns")
	}
	return table
}

// throttledTime returns the share of the sampled time in which a bit was set (float64, percent),
// and that time (int64, ns). Both are nil without samples.
func throttledTime(samples *metric.Series, bit int64) (sharePct, timeNs any) {
	if samples == nil {
		return nil, nil
	}
	pct := samples.SharePct(HasClockReason(bit))
	if !(pct > 0) {
		return 0.0, int64(0)
	}
	return pct, units.RoundInt(pct / 100 * samples.CoveredNs())
}

// healthColumns are the columns of healthTable.
var healthColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "level", Title: "LEVEL", Unit: report.UnitText,
		About: "severity. Problem: action is needed. Notice: worth knowing. Info: normal",
	},
	{Key: "check", Title: "CHECK", Unit: report.UnitText, About: "name of the health check"},
	{Key: "value", Title: "VALUE", Unit: report.UnitRatio, About: "last sample of the checked metric"},
	{Key: "action", Title: "", Unit: report.UnitText, About: "advice on what to do"},
	{Key: "state", Title: "STATE", Unit: report.UnitText, About: "result of the check as a sentence"},
}

// healthTable returns a table with one row per device and health check.
func healthTable(gpus *metric.DeviceMetrics) report.Table {
	table := report.Table{Name: "health", Title: "health", Columns: healthColumns, Secondary: true}
	for _, device := range gpus.SortedIndexes() {
		for _, h := range CheckHealth(gpus, device) {
			table.Add(report.Values{
				"device":      int64(device),
				"device_name": gpus.T.GPUName(device),
				"level":       VerdictLevels[h.Level],
				"check":       h.Name,
				"value":       h.value,
				"action":      units.TextOrNil(h.Action),
				"state":       h.State,
			})
		}
	}
	return table
}

// processColumns are the columns of processTable.
var processColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "id of a process that uses the GPU"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{
		Key: "memory_last_bytes", Title: "MEMORY", Unit: report.UnitBytes,
		About: "memory of the process on the GPU by NVML's last sample in the window; includes context and modules",
	},
	{
		Key: "memory_max_bytes", Title: "MAX", Unit: report.UnitBytes,
		About: "highest sample of the memory of the process on the GPU",
	},
	{
		Key: "sm_avg_pct", Title: "SM%", Unit: report.UnitPercent,
		About: "share of time in which the process had a kernel running, averaged over the driver's sampling periods",
	},
	{Key: "sm_max_pct", Title: "", Unit: report.UnitPercent, About: "highest sample of SM%"},
	{
		Key: "memory_avg_pct", Title: "MEM%", Unit: report.UnitPercent,
		About: "share of time in which the process accessed device memory, averaged over the driver's sampling " +
			"periods",
	},
	{
		Key: "encoder_avg_pct", Title: "", Unit: report.UnitPercent,
		About: "share of time in which the process used the video encoder, averaged over the driver's sampling " +
			"periods",
	},
	{
		Key: "decoder_avg_pct", Title: "", Unit: report.UnitPercent,
		About: "share of time in which the process used the video decoder, averaged over the driver's sampling " +
			"periods",
	},
}

// processTable returns a table with one row per process on a device.
func processTable(gpus *metric.DeviceMetrics) report.Table {
	table := report.Table{Name: "processes", Title: "processes on the GPUs", Columns: processColumns, Secondary: true}
	found := collectProcessSeries(gpus)
	keys := slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pid, b.Pid))
	})
	for _, key := range keys {
		metrics := found[key]
		name, recorded := gpus.T.ProcessName(key.Pid)
		var last, most any
		if s := metrics[catalog.MetricProcessMemory]; s != nil {
			last, most = units.RoundInt(s.LastValue()), units.RoundInt(slices.Max(s.Values))
		}
		avg := func(metricName string) any {
			if s := metrics[metricName]; s != nil {
				return s.Mean()
			}
			return nil
		}
		var smMax any
		if s := metrics[catalog.MetricProcessSMUtilization]; s != nil {
			smMax = slices.Max(s.Values)
		}
		recordedText := "no"
		if recorded {
			recordedText = "yes"
		}
		table.Add(report.Values{
			"device":            int64(key.Device),
			"device_name":       gpus.T.GPUName(key.Device),
			"pid":               int64(key.Pid),
			"process":           units.TextOrNil(name),
			"recorded":          recordedText,
			"memory_last_bytes": last,
			"memory_max_bytes":  most,
			"sm_avg_pct":        avg(catalog.MetricProcessSMUtilization),
			"sm_max_pct":        smMax,
			"memory_avg_pct":    avg(catalog.MetricProcessMemoryUtilization),
			"encoder_avg_pct":   avg(catalog.MetricProcessEncoderUtilization),
			"decoder_avg_pct":   avg(catalog.MetricProcessDecoderUtilization),
		})
	}
	processes.AddRankColumn(gpus.T, &table)
	return table
}

// metricColumns are the columns of metricTable.
var metricColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "metric", Title: "METRIC", Unit: report.UnitText,
		About: "name of the sampled metric; it ends in the unit of the numbers, see format/FORMAT.md",
	},
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "number of samples in the window"},
	{Key: "min", Title: "MIN", Unit: report.UnitRatio, About: "lowest sample; absent for counters"},
	{
		Key: "avg", Title: "AVG", Unit: report.UnitRatio,
		About: "average over time; absent for counters. A sample covers the time halfway to each neighbour, but at " +
			"most 2.5 usual sampling intervals on each side",
	},
	{
		Key: "p95", Title: "P95", Unit: report.UnitRatio,
		About: "95th percentile over time, weighted like AVG; absent for counters",
	},
	{Key: "max", Title: "MAX", Unit: report.UnitRatio, About: "highest sample; absent for counters and masks"},
	{Key: "last", Title: "LAST", Unit: report.UnitRatio, About: "last sample"},
	{
		Key: "rise", Title: "RISE", Unit: report.UnitRatio,
		About: "rise of a counter: last minus first sample, corrected for resets; absent for other metrics",
	},
	{
		Key: "course", Title: "OVER TIME", Unit: report.UnitSeries,
		About: "average in each twentieth of the window, or the last earlier sample if there is none, from 0 to the " +
			"maximum. Absent for counters and masks, and for constant values",
	},
}

// gpuColumn and gpuNameColumn identify the GPU of a row.
var (
	gpuColumn     = report.Column{Key: "device", Title: "GPU", Unit: report.UnitID, About: "NVML index of the GPU"}
	gpuNameColumn = report.Column{Key: "device_name", Title: "", Unit: report.UnitText, About: "name of the GPU"}
)

// metricTable returns a table with one row per device and metric.
func metricTable(gpus *metric.DeviceMetrics) report.Table {
	table := report.Table{
		Name: "metrics", Title: "metrics", Columns: slices.Clone(metricColumns),
		HideFirst: []string{"samples", "min", "last", "p95", "course"},
	}
	counters := false
	for _, device := range gpus.SortedIndexes() {
		series := gpus.Devices[device]
		for _, name := range slices.Sorted(maps.Keys(series)) {
			values := metricValues(series[name], name, gpus.Window)
			values["device"], values["device_name"] = int64(device), gpus.T.GPUName(device)
			table.Add(values)
			counters = counters || catalog.IsCounterMetric(name)
		}
	}
	if !counters {
		report.HideTitle(table.Columns, "rise")
	}
	return table
}

// metricValues returns the values of a metric. Columns that do not fit the metric's kind are nil.
func metricValues(s *metric.Series, name string, window query.Window) report.Values {
	unit := catalog.UnitOfMetric(name)
	value := func(v float64) any { return catalog.MetricValue{Value: v, Unit: unit} }
	values := report.Values{
		"metric":  name,
		"samples": int64(len(s.Values)),
		"min":     nil,
		"avg":     nil,
		"p95":     nil,
		"max":     nil,
		"last":    value(s.LastValue()),
		"rise":    nil,
		"course":  nil,
	}
	switch least, most := slices.Min(s.Values), slices.Max(s.Values); {
	case name == catalog.MetricClockEventReasons: // a bit mask: the table of throttling lists its bits
	case catalog.IsCounterMetric(name):
		values["rise"] = value(s.CounterIncrease())
	default:
		values["min"], values["avg"] = value(least), value(s.Mean())
		values["p95"], values["max"] = value(s.Quantile(0.95)), value(most)
		if least != most {
			values["course"] = s.StepAverages(window)
		}
	}
	return values
}
