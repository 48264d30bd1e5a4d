package gpu

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

var totalColumns = []report.Column{
	{Key: "problems", Title: "problems", Unit: report.UnitCount, About: "verdicts of level problem"},
	{
		Key: "busy_pct_min", Title: "% busy at least", Unit: report.UnitPercent,
		About: "busy of the device that was least busy; absent without samples",
	},
	{
		Key: "idle_pct_max", Title: "% idle at most", Unit: report.UnitPercent,
		About: "idle of the device that was most idle",
	},
	{
		Key: "throttled_pct_max", Title: "% throttled at most", Unit: report.UnitPercent,
		About: "share of the time in which the clocks of a device were held down by power or temperature, of the " +
			"device with most of it",
	},
	{
		Key: "energy_joules", Title: "energy in J", Unit: report.UnitRatio,
		About: "energy of all devices in the window, between the first and the last sample",
	},
	{
		Key: "uncorrected_ecc_errors", Title: "uncorrected ECC errors", Unit: report.UnitCount,
		About: "by which the counters of uncorrected ECC errors rose in the window, all devices",
	},
}

func totals(gpus *metricpkg.Devices, verdicts []verdict) []report.Fact {
	var problems int64
	for i := range verdicts {
		if verdicts[i].level == problem {
			problems++
		}
	}
	var busyMin, idleMax, throttledMax, energy, ecc any
	for _, device := range gpus.Sorted() {
		if b, ok := gpus.BusyOf(device); ok {
			busyMin, idleMax = report.Least(busyMin, b.Pct), report.Most(idleMax, b.IdlePct)
		}
		if s := gpus.Devices[device][catalog.MetricReasons]; s != nil {
			throttledMax = report.Most(throttledMax, s.Share(IsThrottled))
		}
		if joules, _, ok := energyOf(gpus, device); ok {
			sum, _ := energy.(int64)
			energy = sum + units.RoundInt(joules)
		}
		if s := gpus.Devices[device]["ecc_uncorrected_volatile_errors"]; s != nil {
			sum, _ := ecc.(int64)
			ecc = sum + units.RoundInt(s.Grown())
		}
	}
	return report.Facts(totalColumns, report.Values{
		"problems":               problems,
		"busy_pct_min":           busyMin,
		"idle_pct_max":           idleMax,
		"throttled_pct_max":      throttledMax,
		"energy_joules":          energy,
		"uncorrected_ecc_errors": ecc,
	})
}

var verdictColumns = []report.Column{
	{
		Key: "level", Title: "LEVEL", Unit: report.UnitText,
		About: "problem: somebody should do something; notice: worth knowing; info",
	},
	{Key: "device", Title: "", Unit: report.UnitID, About: "GPU, as NVML counts"},
	gpuNameColumn,
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "what stands out, with its evidence: busy by gpm_sm_active_percent, or gpu_utilization_percent where " +
			"the GPU has no GPM; idle: samples of it below 0.05%; throttled by clock_event_reasons; energy by the " +
			"GPU's counter, or power times time where it has none",
	},
}

// verdictTable has a row per verdict.
func verdictTable(verdicts []verdict) report.Table {
	table := report.Table{Name: "verdicts", Title: "what stands out", Columns: verdictColumns, Aside: true}
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

var throttleColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "reason", Title: "REASON", Unit: report.UnitText,
		About: "what determined the clocks, a bit of clock_event_reasons; several at a time are possible",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of the sampled time in which the bit was set, by the samples; absent if the GPU does not tell",
	},
	{
		Key: "time_ns", Title: "TIME", Unit: report.UnitNs,
		About: "that share of the time between the first and last sample",
	},
	{
		Key: "counted_ns", Title: "COUNTED", Unit: report.UnitNs,
		About: "the same by the driver's own counter, which sees what lies between samples; absent where it has none",
	},
	{
		Key: "slows", Title: "SLOWS", Unit: report.UnitText,
		About: "yes if it keeps the GPU from running as fast as it could",
	},
	{Key: "meaning", Title: "MEANING", Unit: report.UnitText, About: "what it means and what to do"},
}

// throttleTable has a row per device and reason that was seen.
func throttleTable(gpus *metricpkg.Devices) report.Table {
	table := report.Table{
		Name: "throttling", Title: "what determined the clocks", Columns: slices.Clone(throttleColumns),
		Aside: true, Spare: []string{"slows", "time_ns"},
	}
	counted := false
	for _, device := range gpus.Sorted() {
		for i := range ClockReasons {
			c := &ClockReasons[i]
			share, timeNs := throttledTime(gpus.Devices[device][catalog.MetricReasons], c.Bit)
			var count any
			if s := gpus.Devices[device][c.counter]; s != nil && len(s.Values) > 1 && s.Grown() > 0 {
				count, counted = units.RoundInt(s.Grown()), true
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
		report.Hide(table.Columns, "counted_ns")
	}
	return table
}

// throttledTime returns the share of the sampled time in which a bit was set, a float64 in percent,
// and that time, an int64 in ns. Both are nil without samples.
func throttledTime(samples *metricpkg.Series, bit int64) (sharePct, timeNs any) {
	if samples == nil {
		return nil, nil
	}
	pct := samples.Share(HasBit(bit))
	if !(pct > 0) {
		return 0.0, int64(0)
	}
	return pct, units.RoundInt(pct / 100 * samples.TotalNs())
}

var healthColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "level", Title: "LEVEL", Unit: report.UnitText,
		About: "problem: somebody should do something; notice: worth knowing; info: as it should be",
	},
	{Key: "check", Title: "CHECK", Unit: report.UnitText, About: "what was looked at"},
	{Key: "value", Title: "VALUE", Unit: report.UnitRatio, About: "the number behind it: the last sample"},
	{Key: "action", Title: "", Unit: report.UnitText, About: "what to do"},
	{Key: "state", Title: "STATE", Unit: report.UnitText, About: "what it says, in words"},
}

// healthTable has a row per device and check.
func healthTable(gpus *metricpkg.Devices) report.Table {
	table := report.Table{Name: "health", Title: "health", Columns: healthColumns, Aside: true}
	for _, device := range gpus.Sorted() {
		for _, h := range Health(gpus, device) {
			table.Add(report.Values{
				"device":      int64(device),
				"device_name": gpus.T.GPUName(device),
				"level":       VerdictLevels[h.Level],
				"check":       h.What,
				"value":       h.value,
				"action":      units.Known(h.Action),
				"state":       h.State,
			})
		}
	}
	return table
}

var processColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process that uses the GPU"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{
		Key: "memory_last_bytes", Title: "MEMORY", Unit: report.UnitBytes,
		About: "memory that the driver counts for it, at the last sample of the window; context and modules too",
	},
	{Key: "memory_max_bytes", Title: "MAX", Unit: report.UnitBytes, About: "most of that"},
	{
		Key: "sm_avg_pct", Title: "SM%", Unit: report.UnitPercent,
		About: "average share of the driver's sampling periods in which it had a kernel running",
	},
	{Key: "sm_max_pct", Title: "", Unit: report.UnitPercent, About: "highest of that"},
	{Key: "memory_avg_pct", Title: "MEM%", Unit: report.UnitPercent, About: "the same for accesses to memory"},
	{Key: "encoder_avg_pct", Title: "", Unit: report.UnitPercent, About: "the same for video encoding"},
	{Key: "decoder_avg_pct", Title: "", Unit: report.UnitPercent, About: "the same for video decoding"},
}

// processTable has a row per process on a device.
func processTable(gpus *metricpkg.Devices) report.Table {
	table := report.Table{Name: "processes", Title: "processes on the GPUs", Columns: processColumns, Aside: true}
	found := processSeries(gpus)
	keys := slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pid, b.Pid))
	})
	for _, key := range keys {
		of := found[key]
		name, recorded := gpus.T.ProcessName(key.Pid)
		var last, most any
		if s := of[catalog.MetricOfProcess]; s != nil {
			last, most = units.RoundInt(s.Last()), units.RoundInt(slices.Max(s.Values))
		}
		avg := func(metric string) any {
			if s := of[metric]; s != nil {
				return s.Mean()
			}
			return nil
		}
		var smMax any
		if s := of[catalog.MetricSMOfPid]; s != nil {
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
			"process":           units.Known(name),
			"recorded":          recordedText,
			"memory_last_bytes": last,
			"memory_max_bytes":  most,
			"sm_avg_pct":        avg(catalog.MetricSMOfPid),
			"sm_max_pct":        smMax,
			"memory_avg_pct":    avg(catalog.MetricMemoryOf),
			"encoder_avg_pct":   avg(catalog.MetricEncoderOf),
			"decoder_avg_pct":   avg(catalog.MetricDecoderOf),
		})
	}
	processes.AddRanks(gpus.T, &table)
	return table
}

var metricColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{
		Key: "metric", Title: "METRIC", Unit: report.UnitText,
		About: "what was sampled; its name ends in the unit of the numbers, see format/FORMAT.md",
	},
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "samples in the window"},
	{Key: "min", Title: "MIN", Unit: report.UnitRatio, About: "lowest sample; absent for counters"},
	{
		Key: "avg", Title: "AVG", Unit: report.UnitRatio,
		About: "average over time: a sample stands for the time halfway to its neighbours, and for no more than 2.5 " +
			"usual distances on a side; absent for counters",
	},
	{
		Key: "p95", Title: "P95", Unit: report.UnitRatio,
		About: "value that was not exceeded in 95% of that time; absent for counters",
	},
	{Key: "max", Title: "MAX", Unit: report.UnitRatio, About: "highest sample; absent for counters and masks"},
	{Key: "last", Title: "LAST", Unit: report.UnitRatio, About: "last sample"},
	{
		Key: "rise", Title: "RISE", Unit: report.UnitRatio,
		About: "of counters: last minus first sample, across resets; absent for others",
	},
	{
		Key: "course", Title: "OVER TIME", Unit: report.UnitCourse,
		About: "average in each twentieth of the window, or the last one before where there is no sample, from 0 to " +
			"the highest; absent for counters and masks, and where it never changes",
	},
}

// gpuColumn and gpuNameColumn identify the GPU of a row.
var (
	gpuColumn     = report.Column{Key: "device", Title: "GPU", Unit: report.UnitID, About: "GPU, as NVML counts"}
	gpuNameColumn = report.Column{Key: "device_name", Title: "", Unit: report.UnitText, About: "its name"}
)

// metricTable has a row per device and metric.
func metricTable(gpus *metricpkg.Devices) report.Table {
	table := report.Table{
		Name: "metrics", Title: "metrics", Columns: slices.Clone(metricColumns),
		Spare: []string{"samples", "min", "last", "p95", "course"},
	}
	counters := false
	for _, device := range gpus.Sorted() {
		of := gpus.Devices[device]
		for _, name := range slices.Sorted(maps.Keys(of)) {
			values := metricValues(of[name], name, gpus.Window)
			values["device"], values["device_name"] = int64(device), gpus.T.GPUName(device)
			table.Add(values)
			counters = counters || catalog.IsCounter(name)
		}
	}
	if !counters {
		report.Hide(table.Columns, "rise")
	}
	return table
}

// metricValues returns the values of a metric: those that fit its kind, nil for the others.
func metricValues(s *metricpkg.Series, name string, window query.Window) report.Values {
	unit := catalog.UnitOf(name)
	value := func(v float64) any { return catalog.Measured{Value: v, Unit: unit} }
	values := report.Values{
		"metric":  name,
		"samples": int64(len(s.Values)),
		"min":     nil,
		"avg":     nil,
		"p95":     nil,
		"max":     nil,
		"last":    value(s.Last()),
		"rise":    nil,
		"course":  nil,
	}
	switch least, most := slices.Min(s.Values), slices.Max(s.Values); {
	case name == catalog.MetricReasons: // a mask: the table of throttling has its bits
	case catalog.IsCounter(name):
		values["rise"] = value(s.Grown())
	default:
		values["min"], values["avg"] = value(least), value(s.Mean())
		values["p95"], values["max"] = value(s.Quantile(0.95)), value(most)
		if least != most {
			values["course"] = s.History(window)
		}
	}
	return values
}
