package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

const worthTellingPct = 1.0 // less throttling is not worth a verdict

const FullMemoryShare = 0.95

// Run reports what NVML said of the GPUs: how busy they were, what held them down, and in which health they are.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := &metricpkg.Devices{T: t, Window: opt.Window(t.Recording()), Filter: &opt.Filter, Devices: make(map[int32]map[string]*metricpkg.Series)}
	u.Collect()
	r := &report.Report{Command: "gpu", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if len(u.Devices) == 0 {
		r.NoMatch = noSamples(u)
	}
	throttling, health := throttleTable(u), healthTable(u)
	verdicts := verdictTable(u)
	metrics := metricTable(u)
	if err := metrics.Arrange("", opt.Top); err != nil {
		return nil, err
	}
	r.Totals = totals(u, &verdicts)
	r.Tables = []report.Table{verdicts, throttling, health, processTable(u), metrics}
	return r, nil
}

func noSamples(u *metricpkg.Devices) *query.NoMatch {
	devices := make(map[int32]bool)
	for _, s := range u.T.Facts.Samples {
		devices[s.Device] = true
	}
	if len(devices) == 0 {
		return nil
	}
	return query.FirstNoMatch(query.NewNoMatch("device", u.Filter.Devices, devices, func(v int32) string { return strconv.Itoa(int(v)) }))
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

var verdictColumns = []report.Column{
	{Key: "level", Title: "LEVEL", Unit: report.UnitText, About: "problem: somebody should do something; notice: worth knowing; info"},
	{Key: "device", Title: "", Unit: report.UnitID, About: "GPU, as NVML counts"},
	gpuNameColumn,
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: "what stands out, with its evidence: busy by gpm_sm_active_percent, or gpu_utilization_percent where the GPU has no GPM; idle: samples of it below 0.05%; throttled by clock_event_reasons; energy by the GPU's counter, or power times time where it has none"},
}

// Levels of verdicts.
var VerdictLevels = []string{"problem", "notice", "info"}

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

// processSeries sorts the samples about processes.
func processSeries(u *metricpkg.Devices) map[timeline.PidOnDevice]map[string]*metricpkg.Series {
	found := make(map[timeline.PidOnDevice]map[string]*metricpkg.Series)
	for _, s := range u.T.Facts.ProcessSamples {
		if s.AtNs < u.Window.FromNs || s.AtNs > u.Window.ToNs || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || !u.Passes(&s) {
			continue
		}
		key := timeline.PidOnDevice{Device: s.Device, Pid: s.Pid}
		if found[key] == nil {
			found[key] = make(map[string]*metricpkg.Series)
		}
		name := u.T.Facts.Metrics.List[s.Metric]
		if found[key][name] == nil {
			found[key][name] = new(metricpkg.Series)
		}
		one := found[key][name]
		one.AtNs, one.Values = append(one.AtNs, s.AtNs), append(one.Values, s.Value)
	}
	for _, of := range found {
		for _, s := range of {
			s.Weigh()
		}
	}
	return found
}

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
