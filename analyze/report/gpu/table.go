package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

var totalColumns = []report.Column{
	{Key: "problems", Title: "problems", Unit: report.UnitCount, About: "verdicts of level problem"},
	{Key: "busy_pct_min", Title: "% busy at least", Unit: report.UnitPercent, About: "busy of the device that was least busy; absent without samples"},
	{Key: "idle_pct_max", Title: "% idle at most", Unit: report.UnitPercent, About: "idle of the device that was most idle"},
	{Key: "throttled_pct_max", Title: "% throttled at most", Unit: report.UnitPercent, About: "share of the time in which the clocks of a device were held down by power or temperature, of the device with most of it"},
	{Key: "energy_joules", Title: "energy in J", Unit: report.UnitRatio, About: "energy of all devices in the window, between the first and the last sample"},
	{Key: "uncorrected_ecc_errors", Title: "uncorrected ECC errors", Unit: report.UnitCount, About: "by which the counters of uncorrected ECC errors rose in the window, all devices"},
}

func totals(u *metricpkg.Devices, verdicts *report.Table) []report.Fact {
	var problems int64
	for _, r := range verdicts.Rows {
		if r.Cells[0] == VerdictLevels[0] {
			problems++
		}
	}
	var busyMin, idleMax, throttledMax, energy, ecc any
	for _, device := range u.Sorted() {
		if b, ok := u.BusyOf(device); ok {
			busyMin, idleMax = report.Least(busyMin, b.Pct), report.Most(idleMax, b.IdlePct)
		}
		if s := u.Devices[device][catalog.MetricReasons]; s != nil {
			throttledMax = report.Most(throttledMax, s.Share(IsThrottled))
		}
		if joules, _, ok := energyOf(u, device); ok {
			sum, _ := energy.(int64)
			energy = sum + units.RoundInt(joules)
		}
		if s := u.Devices[device]["ecc_uncorrected_volatile_errors"]; s != nil {
			sum, _ := ecc.(int64)
			ecc = sum + units.RoundInt(s.Grown())
		}
	}
	return report.Fill(totalColumns, problems, busyMin, idleMax, throttledMax, energy, ecc)
}

var verdictColumns = []report.Column{
	{Key: "level", Title: "LEVEL", Unit: report.UnitText, About: "problem: somebody should do something; notice: worth knowing; info"},
	{Key: "device", Title: "", Unit: report.UnitID, About: "GPU, as NVML counts"},
	gpuNameColumn,
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: "what stands out, with its evidence: busy by gpm_sm_active_percent, or gpu_utilization_percent where the GPU has no GPM; idle: samples of it below 0.05%; throttled by clock_event_reasons; energy by the GPU's counter, or power times time where it has none"},
}

// verdictTable lists what stands out of each device, problems first.
func verdictTable(u *metricpkg.Devices) report.Table {
	table := report.Table{Name: "verdicts", Title: "what stands out", Columns: verdictColumns, Aside: true}
	if len(u.T.Facts.Samples) == 0 {
		table.Rows = append(table.Rows, report.Row{Cells: []any{VerdictLevels[1], nil, nil, "the recording has no NVML samples: nothing is known of the GPUs"}})
	}
	for _, device := range u.Sorted() {
		add := func(level int, action, format string, args ...any) {
			table.Rows = append(table.Rows, report.Row{Evidence: action,
				Cells: []any{VerdictLevels[level], int64(device), u.T.GPUName(device), fmt.Sprintf("GPU %d ", device) + fmt.Sprintf(format, args...)}})
		}
		if b, ok := u.BusyOf(device); ok {
			add(2, "", b.Text, b.Pct, b.IdlePct)
		}
		throttleVerdict(u, device, add)
		if joules, how, ok := energyOf(u, device); ok {
			add(2, "", "used %s, by %s", jouleText(joules), how)
		}
		memoryVerdict(u, device, add)
		for _, h := range Health(u, device) {
			if h.Level < 2 {
				add(h.Level, h.Action, "%s: %s", h.What, h.State)
			}
		}
		if n := xids(u, device); n > 0 {
			add(0, "gpurec analyze xid explains them", "had %s", units.Plural(n, "Xid"))
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b report.Row) int {
		rank := func(r report.Row) int { return slices.Index(VerdictLevels, r.Cells[0].(string)) }
		return cmp.Compare(rank(a), rank(b))
	})
	return table
}

var throttleColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "reason", Title: "REASON", Unit: report.UnitText, About: "what determined the clocks, a bit of clock_event_reasons; several at a time are possible"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of the sampled time in which the bit was set, by the samples; absent if the GPU does not tell"},
	{Key: "time_ns", Title: "TIME", Unit: report.UnitNs, About: "that share of the time between the first and last sample"},
	{Key: "counted_ns", Title: "COUNTED", Unit: report.UnitNs, About: "the same by the driver's own counter, which sees what lies between samples; absent where it has none"},
	{Key: "slows", Title: "SLOWS", Unit: report.UnitText, About: "yes if it keeps the GPU from running as fast as it could"},
	{Key: "meaning", Title: "MEANING", Unit: report.UnitText, About: "what it means and what to do"},
}

// throttleTable has a row per device and reason that was seen.
func throttleTable(u *metricpkg.Devices) report.Table {
	table := report.Table{Name: "throttling", Title: "what determined the clocks", Columns: slices.Clone(throttleColumns), Aside: true, Spare: []string{"slows", "time_ns"}}
	counted := false
	for _, device := range u.Sorted() {
		samples := u.Devices[device][catalog.MetricReasons]
		for i := range ClockReasons {
			c := &ClockReasons[i]
			var share, timeNs, count any
			if samples != nil {
				if pct := samples.Share(HasBit(c.Bit)); pct > 0 {
					share, timeNs = pct, units.RoundInt(pct/100*samples.TotalNs())
				}
			}
			if s := u.Devices[device][c.counter]; s != nil && len(s.Values) > 1 && s.Grown() > 0 {
				count, counted = units.RoundInt(s.Grown()), true
			}
			if share == nil && count == nil {
				continue
			}
			if share == nil && samples != nil {
				share, timeNs = 0.0, int64(0)
			}
			slows := "no"
			if c.Slows {
				slows = "yes"
			}
			table.Rows = append(table.Rows, report.Row{Cells: []any{int64(device), u.T.GPUName(device), c.Name, share, timeNs, count, slows, c.meaning}})
		}
	}
	if !counted {
		report.Hide(table.Columns, "counted_ns")
	}
	return table
}

var healthColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "level", Title: "LEVEL", Unit: report.UnitText, About: "problem: somebody should do something; notice: worth knowing; info: as it should be"},
	{Key: "check", Title: "CHECK", Unit: report.UnitText, About: "what was looked at"},
	{Key: "value", Title: "VALUE", Unit: report.UnitRatio, About: "the number behind it: the last sample"},
	{Key: "action", Title: "", Unit: report.UnitText, About: "what to do"},
	{Key: "state", Title: "STATE", Unit: report.UnitText, About: "what it says, in words"},
}

// healthTable has a row per device and check.
func healthTable(u *metricpkg.Devices) report.Table {
	table := report.Table{Name: "health", Title: "health", Columns: healthColumns, Aside: true}
	for _, device := range u.Sorted() {
		for _, h := range Health(u, device) {
			table.Rows = append(table.Rows, report.Row{Cells: []any{int64(device), u.T.GPUName(device), VerdictLevels[h.Level], h.What, h.value, units.Known(h.Action), h.State}})
		}
	}
	return table
}

var processColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process that uses the GPU"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{Key: "memory_last_bytes", Title: "MEMORY", Unit: report.UnitBytes, About: "memory that the driver counts for it, at the last sample of the window; context and modules too"},
	{Key: "memory_max_bytes", Title: "MAX", Unit: report.UnitBytes, About: "most of that"},
	{Key: "sm_avg_pct", Title: "SM%", Unit: report.UnitPercent, About: "average share of the driver's sampling periods in which it had a kernel running"},
	{Key: "sm_max_pct", Title: "", Unit: report.UnitPercent, About: "highest of that"},
	{Key: "memory_avg_pct", Title: "MEM%", Unit: report.UnitPercent, About: "the same for accesses to memory"},
	{Key: "encoder_avg_pct", Title: "", Unit: report.UnitPercent, About: "the same for video encoding"},
	{Key: "decoder_avg_pct", Title: "", Unit: report.UnitPercent, About: "the same for video decoding"},
}

// processTable has a row per process on a device.
func processTable(u *metricpkg.Devices) report.Table {
	table := report.Table{Name: "processes", Title: "processes on the GPUs", Columns: processColumns, Aside: true}
	found := processSeries(u)
	keys := slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pid, b.Pid))
	})
	for _, key := range keys {
		of := found[key]
		name, recorded := u.T.ProcessName(key.Pid)
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
		yes := "no"
		if recorded {
			yes = "yes"
		}
		table.Rows = append(table.Rows, report.Row{Cells: []any{int64(key.Device), u.T.GPUName(key.Device), int64(key.Pid), units.Known(name), yes, last, most,
			avg(catalog.MetricSMOfPid), smMax, avg(catalog.MetricMemoryOf), avg(catalog.MetricEncoderOf), avg(catalog.MetricDecoderOf)}})
	}
	processes.AddRanks(u.T, &table)
	return table
}

var metricColumns = []report.Column{
	gpuColumn, gpuNameColumn,
	{Key: "metric", Title: "METRIC", Unit: report.UnitText, About: "what was sampled; its name ends in the unit of the numbers, see format/FORMAT.md"},
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "samples in the window"},
	{Key: "min", Title: "MIN", Unit: report.UnitRatio, About: "lowest sample; absent for counters"},
	{Key: "avg", Title: "AVG", Unit: report.UnitRatio, About: "average over time: a sample stands for the time halfway to its neighbours, and for no more than 2.5 usual distances on a side; absent for counters"},
	{Key: "p95", Title: "P95", Unit: report.UnitRatio, About: "value that was not exceeded in 95% of that time; absent for counters"},
	{Key: "max", Title: "MAX", Unit: report.UnitRatio, About: "highest sample; absent for counters and masks"},
	{Key: "last", Title: "LAST", Unit: report.UnitRatio, About: "last sample"},
	{Key: "rise", Title: "RISE", Unit: report.UnitRatio, About: "of counters: last minus first sample, across resets; absent for others"},
	{Key: "course", Title: "OVER TIME", Unit: report.UnitCourse, About: "average in each twentieth of the window, or the last one before where there is no sample, from 0 to the highest; absent for counters and masks, and where it never changes"},
}

// gpuColumn and gpuNameColumn say which GPU a row is about.
var (
	gpuColumn     = report.Column{Key: "device", Title: "GPU", Unit: report.UnitID, About: "GPU, as NVML counts"}
	gpuNameColumn = report.Column{Key: "device_name", Title: "", Unit: report.UnitText, About: "its name"}
)

// metricTable has a row per device and metric.
func metricTable(u *metricpkg.Devices) report.Table {
	table := report.Table{Name: "metrics", Title: "metrics", Columns: slices.Clone(metricColumns), Spare: []string{"samples", "min", "last", "p95", "course"}}
	counters := false
	for _, device := range u.Sorted() {
		of := u.Devices[device]
		for _, name := range slices.Sorted(maps.Keys(of)) {
			s, unit := of[name], catalog.UnitOf(name)
			value := func(v float64) any { return catalog.Measured{Value: v, Unit: unit} }
			cells := []any{int64(device), u.T.GPUName(device), name, int64(len(s.Values)), nil, nil, nil, nil, value(s.Last()), nil, nil}
			if name == catalog.MetricReasons { // a mask: what its bits say is told above
			} else if catalog.IsCounter(name) {
				cells[9], counters = value(s.Grown()), true
			} else {
				cells[4], cells[5], cells[6], cells[7] = value(slices.Min(s.Values)), value(s.Mean()), value(s.Quantile(0.95)), value(slices.Max(s.Values))
				if slices.Min(s.Values) != slices.Max(s.Values) {
					cells[10] = s.Course(u.Window)
				}
			}
			table.Rows = append(table.Rows, report.Row{Cells: cells})
		}
	}
	if !counters {
		report.Hide(table.Columns, "rise")
	}
	return table
}
