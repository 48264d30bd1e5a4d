package analyze

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
	"github.com/gpurec/gpurec/analyze/units"
)

const worthTellingPct = 1.0 // less throttling is not worth a verdict

const fullMemoryShare = 0.95

// GPU reports what NVML said of the GPUs: how busy they were, what held them down, and in which health they are.
func GPU(t *timeline.Timeline, opt query.Options) (*Report, error) {
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := &metricpkg.Devices{T: t, Window: opt.Window(t.Recording()), Filter: &opt.Filter, Devices: make(map[int32]map[string]*metricpkg.Series)}
	u.Collect()
	r := &Report{Command: "gpu", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	if len(u.Devices) == 0 {
		r.NoMatch = noSamples(u)
	}
	throttling, health := throttleTable(u), healthTable(u)
	verdicts := gpuVerdicts(u)
	metrics := metricTable(u)
	if err := metrics.arrange("", opt.Top); err != nil {
		return nil, err
	}
	r.Totals = totalsOfGPUs(u, &verdicts)
	r.Tables = []Table{verdicts, throttling, health, processTable(u), metrics}
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

var gpuMetricColumns = []Column{
	gpuColumn, gpuNameColumn,
	{"metric", "METRIC", UnitText, "what was sampled; its name ends in the unit of the numbers, see format/FORMAT.md"},
	{"samples", "SAMPLES", UnitCount, "samples in the window"},
	{"min", "MIN", UnitRatio, "lowest sample; absent for counters"},
	{"avg", "AVG", UnitRatio, "average over time: a sample stands for the time halfway to its neighbours, and for no more than 2.5 usual distances on a side; absent for counters"},
	{"p95", "P95", UnitRatio, "value that was not exceeded in 95% of that time; absent for counters"},
	{"max", "MAX", UnitRatio, "highest sample; absent for counters and masks"},
	{"last", "LAST", UnitRatio, "last sample"},
	{"rise", "RISE", UnitRatio, "of counters: last minus first sample, across resets; absent for others"},
	{"course", "OVER TIME", UnitCourse, "average in each twentieth of the window, or the last one before where there is no sample, from 0 to the highest; absent for counters and masks, and where it never changes"},
}

// gpuColumn and gpuNameColumn say which GPU a row is about.
var (
	gpuColumn     = Column{"device", "GPU", UnitID, "GPU, as NVML counts"}
	gpuNameColumn = Column{"device_name", "", UnitText, "its name"}
)

// metricTable has a row per device and metric.
func metricTable(u *metricpkg.Devices) Table {
	table := Table{Name: "metrics", Title: "metrics", Columns: slices.Clone(gpuMetricColumns), Spare: []string{"samples", "min", "last", "p95", "course"}}
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
			table.Rows = append(table.Rows, Row{Cells: cells})
		}
	}
	if !counters {
		hide(table.Columns, "rise")
	}
	return table
}

// gpuEnergy returns the joules a device used and how that is known.
func gpuEnergy(u *metricpkg.Devices, device int32) (joules float64, how string, ok bool) {
	of := u.Devices[device]
	if s := of[catalog.MetricEnergy]; s != nil && len(s.Values) > 1 {
		return s.Grown() / 1e3, "its energy counter", true
	}
	if s := of[catalog.MetricPower]; s != nil && len(s.Values) > 1 {
		return s.Mean() / 1e3 * s.TotalNs() / 1e9, "power samples", true
	}
	return 0, "", false
}

var gpuVerdictColumns = []Column{
	{"level", "LEVEL", UnitText, "problem: somebody should do something; notice: worth knowing; info"},
	{"device", "", UnitID, "GPU, as NVML counts"},
	gpuNameColumn,
	{"verdict", "VERDICT", UnitText, "what stands out, with its evidence: busy by gpm_sm_active_percent, or gpu_utilization_percent where the GPU has no GPM; idle: samples of it below 0.05%; throttled by clock_event_reasons; energy by the GPU's counter, or power times time where it has none"},
}

// Levels of verdicts.
var verdictLevels = []string{"problem", "notice", "info"}

// gpuVerdicts lists what stands out of each device, problems first.
func gpuVerdicts(u *metricpkg.Devices) Table {
	table := Table{Name: "verdicts", Title: "what stands out", Columns: gpuVerdictColumns, Aside: true}
	if len(u.T.Facts.Samples) == 0 {
		table.Rows = append(table.Rows, Row{Cells: []any{verdictLevels[1], nil, nil, "the recording has no NVML samples: nothing is known of the GPUs"}})
	}
	for _, device := range u.Sorted() {
		add := func(level int, action, format string, args ...any) {
			table.Rows = append(table.Rows, Row{Evidence: action,
				Cells: []any{verdictLevels[level], int64(device), u.T.GPUName(device), fmt.Sprintf("GPU %d ", device) + fmt.Sprintf(format, args...)}})
		}
		if b, ok := u.BusyOf(device); ok {
			add(2, "", b.Text, b.Pct, b.IdlePct)
		}
		throttleVerdict(u, device, add)
		if joules, how, ok := gpuEnergy(u, device); ok {
			add(2, "", "used %s, by %s", jouleText(joules), how)
		}
		memoryVerdict(u, device, add)
		for _, h := range gpuHealthOf(u, device) {
			if h.level < 2 {
				add(h.level, h.action, "%s: %s", h.what, h.state)
			}
		}
		if n := gpuXids(u, device); n > 0 {
			add(0, "gpurec analyze xid explains them", "had %s", units.Plural(n, "Xid"))
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		rank := func(r Row) int { return slices.Index(verdictLevels, r.Cells[0].(string)) }
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

// memoryOf returns the memory of a device that was in use, and how much it has; nil if one of them is not known.
func memoryOf(u *metricpkg.Devices, device int32) (used *metricpkg.Series, total float64) {
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
	used, total := memoryOf(u, device)
	if used == nil {
		return
	}
	if most := slices.Max(used.Values); most > fullMemoryShare*total {
		add(1, "gpurec analyze memory --reconcile says who has it", "had at most %s of %s memory in use", units.Bytes(units.RoundInt(most)), units.Bytes(units.RoundInt(total)))
	}
}

// gpuXids counts the device's Xids in the window.
func gpuXids(u *metricpkg.Devices, device int32) (n int64) {
	for _, x := range u.T.Facts.Xids {
		if x.Device == device && !x.Sxid && x.AtNs >= u.Window.FromNs && x.AtNs <= u.Window.ToNs {
			n++
		}
	}
	return n
}

var gpuProcessColumns = []Column{
	gpuColumn, gpuNameColumn,
	{"pid", "PID", UnitID, "process that uses the GPU"},
	{"process", "PROCESS", UnitText, "its name"},
	{"recorded", "RECORDED", UnitText, "yes if its calls are in the recording"},
	{"memory_last_bytes", "MEMORY", UnitBytes, "memory that the driver counts for it, at the last sample of the window; context and modules too"},
	{"memory_max_bytes", "MAX", UnitBytes, "most of that"},
	{"sm_avg_pct", "SM%", UnitPercent, "average share of the driver's sampling periods in which it had a kernel running"},
	{"sm_max_pct", "", UnitPercent, "highest of that"},
	{"memory_avg_pct", "MEM%", UnitPercent, "the same for accesses to memory"},
	{"encoder_avg_pct", "", UnitPercent, "the same for video encoding"},
	{"decoder_avg_pct", "", UnitPercent, "the same for video decoding"},
}

// processTable has a row per process on a device.
func processTable(u *metricpkg.Devices) Table {
	table := Table{Name: "processes", Title: "processes on the GPUs", Columns: gpuProcessColumns, Aside: true}
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
		table.Rows = append(table.Rows, Row{Cells: []any{int64(key.Device), u.T.GPUName(key.Device), int64(key.Pid), units.Known(name), yes, last, most,
			avg(catalog.MetricSMOfPid), smMax, avg(catalog.MetricMemoryOf), avg(catalog.MetricEncoderOf), avg(catalog.MetricDecoderOf)}})
	}
	addRanks(u.T, &table)
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

var gpuTotals = []Column{
	{"problems", "problems", UnitCount, "verdicts of level problem"},
	{"busy_pct_min", "% busy at least", UnitPercent, "busy of the device that was least busy; absent without samples"},
	{"idle_pct_max", "% idle at most", UnitPercent, "idle of the device that was most idle"},
	{"throttled_pct_max", "% throttled at most", UnitPercent, "share of the time in which the clocks of a device were held down by power or temperature, of the device with most of it"},
	{"energy_joules", "energy in J", UnitRatio, "energy of all devices in the window, between the first and the last sample"},
	{"uncorrected_ecc_errors", "uncorrected ECC errors", UnitCount, "by which the counters of uncorrected ECC errors rose in the window, all devices"},
}

func totalsOfGPUs(u *metricpkg.Devices, verdicts *Table) []Fact {
	var problems int64
	for _, r := range verdicts.Rows {
		if r.Cells[0] == verdictLevels[0] {
			problems++
		}
	}
	var busyMin, idleMax, throttledMax, energy, ecc any
	for _, device := range u.Sorted() {
		if b, ok := u.BusyOf(device); ok {
			busyMin, idleMax = least(busyMin, b.Pct), most(idleMax, b.IdlePct)
		}
		if s := u.Devices[device][catalog.MetricReasons]; s != nil {
			throttledMax = most(throttledMax, s.Share(isThrottled))
		}
		if joules, _, ok := gpuEnergy(u, device); ok {
			sum, _ := energy.(int64)
			energy = sum + units.RoundInt(joules)
		}
		if s := u.Devices[device]["ecc_uncorrected_volatile_errors"]; s != nil {
			sum, _ := ecc.(int64)
			ecc = sum + units.RoundInt(s.Grown())
		}
	}
	return fill(gpuTotals, problems, busyMin, idleMax, throttledMax, energy, ecc)
}

func least(v any, w float64) any {
	if old, ok := v.(float64); ok && old < w {
		return old
	}
	return w
}

func most(v any, w float64) any {
	if old, ok := v.(float64); ok && old > w {
		return old
	}
	return w
}
