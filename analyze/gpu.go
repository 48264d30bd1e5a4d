package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

const (
	almostIdlePct   = 0.05 // GPM measures fractions: what is shown as 0.0 % is idle
	worthTellingPct = 1.0  // less throttling is not worth a verdict
	fullMemoryShare = 0.95
)

// gpuUse is what the samples in the window say of each device.
type gpuUse struct {
	t       *Timeline
	window  query.Window
	filter  *query.Filter
	devices map[int32]map[string]*series
}

// GPU reports what NVML said of the GPUs: how busy they were, what held them down, and in which health they are.
func (t *Timeline) GPU(opt query.Options) (*Report, error) {
	counts, err := t.countsWhile(func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := &gpuUse{t: t, window: opt.Window(t.Recording()), filter: &opt.Filter, devices: make(map[int32]map[string]*series)}
	u.collect()
	r := &Report{Command: "gpu", Window: u.window, Quality: t.quality(counts), Notes: t.facts.notes}
	if len(u.devices) == 0 {
		r.NoMatch = u.noSamples()
	}
	throttling, health := u.throttleTable(), u.healthTable()
	verdicts := u.verdicts()
	metrics := u.metricTable()
	if err := metrics.arrange("", opt.Top); err != nil {
		return nil, err
	}
	r.Totals = u.totals(&verdicts)
	r.Tables = []Table{verdicts, throttling, health, u.processTable(), metrics}
	return r, nil
}

// collect sorts the samples by device and metric. What is no number was not measured.
func (u *gpuUse) collect() {
	f := &u.t.facts
	for _, s := range f.samples {
		if s.atNs < u.window.FromNs || s.atNs > u.window.ToNs || math.IsNaN(s.value) || math.IsInf(s.value, 0) ||
			len(u.filter.Devices) > 0 && !slices.Contains(u.filter.Devices, s.device) {
			continue
		}
		of := u.devices[s.device]
		if of == nil {
			of = make(map[string]*series)
			u.devices[s.device] = of
		}
		name := f.metrics.List[s.metric]
		if of[name] == nil {
			of[name] = new(series)
		}
		of[name].atNs, of[name].values = append(of[name].atNs, s.atNs), append(of[name].values, s.value)
	}
	for _, of := range u.devices {
		for _, s := range of {
			s.weigh()
		}
	}
}

func (u *gpuUse) noSamples() *query.NoMatch {
	devices := make(map[int32]bool)
	for _, s := range u.t.facts.samples {
		devices[s.device] = true
	}
	if len(devices) == 0 {
		return nil
	}
	return query.FirstNoMatch(query.NewNoMatch("device", u.filter.Devices, devices, func(v int32) string { return strconv.Itoa(int(v)) }))
}

// sorted lists the devices.
func (u *gpuUse) sorted() []int32 { return slices.Sorted(maps.Keys(u.devices)) }

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
func (u *gpuUse) metricTable() Table {
	table := Table{Name: "metrics", Title: "metrics", Columns: slices.Clone(gpuMetricColumns), Spare: []string{"samples", "min", "last", "p95", "course"}}
	counters := false
	for _, device := range u.sorted() {
		of := u.devices[device]
		for _, name := range slices.Sorted(maps.Keys(of)) {
			s, unit := of[name], catalog.UnitOf(name)
			value := func(v float64) any { return catalog.Measured{Value: v, Unit: unit} }
			cells := []any{int64(device), u.t.gpuName(device), name, int64(len(s.values)), nil, nil, nil, nil, value(s.last()), nil, nil}
			if name == catalog.MetricReasons { // a mask: what its bits say is told above
			} else if catalog.IsCounter(name) {
				cells[9], counters = value(s.grown()), true
			} else {
				cells[4], cells[5], cells[6], cells[7] = value(slices.Min(s.values)), value(s.mean()), value(s.quantile(0.95)), value(slices.Max(s.values))
				if slices.Min(s.values) != slices.Max(s.values) {
					cells[10] = s.course(u.window)
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

// busy is how busy a device was, by the best metric that there is.
type busy struct {
	pct, idlePct float64
	text         string // with both
}

// busyOf returns how busy a device was: GPM measures the SMs, utilization only says that some kernel ran.
func (u *gpuUse) busyOf(device int32) (busy, bool) {
	of := u.devices[device]
	idle := func(v float64) bool { return v < almostIdlePct }
	if s := of[catalog.MetricSMActive]; s != nil {
		return busy{s.mean(), s.share(idle), "was busy %.1f %% (SMs active, GPM), idle %.1f %% of the time"}, true
	}
	if s := of[catalog.MetricGPUBusy]; s != nil {
		return busy{s.mean(), s.share(idle), "ran some kernel %.1f %% of the time (GPU utilization), idle %.1f %%"}, true
	}
	return busy{}, false
}

// energy returns the joules a device used and how that is known.
func (u *gpuUse) energy(device int32) (joules float64, how string, ok bool) {
	of := u.devices[device]
	if s := of[catalog.MetricEnergy]; s != nil && len(s.values) > 1 {
		return s.grown() / 1e3, "its energy counter", true
	}
	if s := of[catalog.MetricPower]; s != nil && len(s.values) > 1 {
		return s.mean() / 1e3 * s.totalNs() / 1e9, "power samples", true
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

// verdicts lists what stands out of each device, problems first.
func (u *gpuUse) verdicts() Table {
	table := Table{Name: "verdicts", Title: "what stands out", Columns: gpuVerdictColumns, Aside: true}
	if len(u.t.facts.samples) == 0 {
		table.Rows = append(table.Rows, Row{Cells: []any{verdictLevels[1], nil, nil, "the recording has no NVML samples: nothing is known of the GPUs"}})
	}
	for _, device := range u.sorted() {
		add := func(level int, action, format string, args ...any) {
			table.Rows = append(table.Rows, Row{Evidence: action,
				Cells: []any{verdictLevels[level], int64(device), u.t.gpuName(device), fmt.Sprintf("GPU %d ", device) + fmt.Sprintf(format, args...)}})
		}
		if b, ok := u.busyOf(device); ok {
			add(2, "", b.text, b.pct, b.idlePct)
		}
		u.throttleVerdict(device, add)
		if joules, how, ok := u.energy(device); ok {
			add(2, "", "used %s, by %s", jouleText(joules), how)
		}
		u.memoryVerdict(device, add)
		for _, h := range u.health(device) {
			if h.level < 2 {
				add(h.level, h.action, "%s: %s", h.what, h.state)
			}
		}
		if n := u.xids(device); n > 0 {
			add(0, "gpurec analyze xid explains them", "had %s", units.Plural(n, "Xid"))
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		rank := func(r Row) int { return slices.Index(verdictLevels, r.Cells[0].(string)) }
		return cmp.Compare(rank(a), rank(b))
	})
	return table
}

// gpuName is a device's name, nil if it is not known.
func (t *Timeline) gpuName(device int32) any { return units.Known(t.facts.devices[device].name) }

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
func (u *gpuUse) memoryOf(device int32) (used *series, total float64) {
	used = u.devices[device][catalog.MetricMemoryUsed]
	total = float64(u.t.facts.devices[device].totalBytes)
	if s := u.devices[device][catalog.MetricMemoryTotal]; s != nil {
		total = s.last()
	}
	if total <= 0 {
		return nil, 0
	}
	return used, total
}

// memoryVerdict tells of memory that was nearly full.
func (u *gpuUse) memoryVerdict(device int32, add func(int, string, string, ...any)) {
	used, total := u.memoryOf(device)
	if used == nil {
		return
	}
	if most := slices.Max(used.values); most > fullMemoryShare*total {
		add(1, "gpurec analyze memory --reconcile says who has it", "had at most %s of %s memory in use", units.Bytes(units.RoundInt(most)), units.Bytes(units.RoundInt(total)))
	}
}

// xids counts the device's Xids in the window.
func (u *gpuUse) xids(device int32) (n int64) {
	for _, x := range u.t.facts.xids {
		if x.device == device && !x.sxid && x.atNs >= u.window.FromNs && x.atNs <= u.window.ToNs {
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

// pidOnDevice is a process on a device.
type pidOnDevice struct{ device, pid int32 }

// processTable has a row per process on a device.
func (u *gpuUse) processTable() Table {
	table := Table{Name: "processes", Title: "processes on the GPUs", Columns: gpuProcessColumns, Aside: true}
	found := u.processSeries()
	keys := slices.SortedFunc(maps.Keys(found), func(a, b pidOnDevice) int { return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.pid, b.pid)) })
	for _, key := range keys {
		of := found[key]
		name, recorded := u.t.processName(key.pid)
		var last, most any
		if s := of[catalog.MetricOfProcess]; s != nil {
			last, most = units.RoundInt(s.last()), units.RoundInt(slices.Max(s.values))
		}
		avg := func(metric string) any {
			if s := of[metric]; s != nil {
				return s.mean()
			}
			return nil
		}
		var smMax any
		if s := of[catalog.MetricSMOfPid]; s != nil {
			smMax = slices.Max(s.values)
		}
		yes := "no"
		if recorded {
			yes = "yes"
		}
		table.Rows = append(table.Rows, Row{Cells: []any{int64(key.device), u.t.gpuName(key.device), int64(key.pid), units.Known(name), yes, last, most,
			avg(catalog.MetricSMOfPid), smMax, avg(catalog.MetricMemoryOf), avg(catalog.MetricEncoderOf), avg(catalog.MetricDecoderOf)}})
	}
	u.t.addRanks(&table)
	return table
}

// processSeries sorts the samples about processes.
func (u *gpuUse) processSeries() map[pidOnDevice]map[string]*series {
	found := make(map[pidOnDevice]map[string]*series)
	for _, s := range u.t.facts.processSamples {
		if s.atNs < u.window.FromNs || s.atNs > u.window.ToNs || math.IsNaN(s.value) || math.IsInf(s.value, 0) || !u.passes(&s) {
			continue
		}
		key := pidOnDevice{s.device, s.pid}
		if found[key] == nil {
			found[key] = make(map[string]*series)
		}
		name := u.t.facts.metrics.List[s.metric]
		if found[key][name] == nil {
			found[key][name] = new(series)
		}
		one := found[key][name]
		one.atNs, one.values = append(one.atNs, s.atNs), append(one.values, s.value)
	}
	for _, of := range found {
		for _, s := range of {
			s.weigh()
		}
	}
	return found
}

// passes is what of the filter is about processes and devices.
func (u *gpuUse) passes(s *processSample) bool {
	return (len(u.filter.Pids) == 0 || slices.Contains(u.filter.Pids, s.pid)) && (len(u.filter.Devices) == 0 || slices.Contains(u.filter.Devices, s.device))
}

// processName is a process's name, and whether it is one of those that were recorded.
func (t *Timeline) processName(pid int32) (name string, recorded bool) {
	p, recorded := t.facts.processes[pid]
	return strings.TrimSpace(cmp.Or(p.Name, t.facts.others[pid])), recorded
}

var gpuTotals = []Column{
	{"problems", "problems", UnitCount, "verdicts of level problem"},
	{"busy_pct_min", "% busy at least", UnitPercent, "busy of the device that was least busy; absent without samples"},
	{"idle_pct_max", "% idle at most", UnitPercent, "idle of the device that was most idle"},
	{"throttled_pct_max", "% throttled at most", UnitPercent, "share of the time in which the clocks of a device were held down by power or temperature, of the device with most of it"},
	{"energy_joules", "energy in J", UnitRatio, "energy of all devices in the window, between the first and the last sample"},
	{"uncorrected_ecc_errors", "uncorrected ECC errors", UnitCount, "by which the counters of uncorrected ECC errors rose in the window, all devices"},
}

func (u *gpuUse) totals(verdicts *Table) []Fact {
	var problems int64
	for _, r := range verdicts.Rows {
		if r.Cells[0] == verdictLevels[0] {
			problems++
		}
	}
	var busyMin, idleMax, throttledMax, energy, ecc any
	for _, device := range u.sorted() {
		if b, ok := u.busyOf(device); ok {
			busyMin, idleMax = least(busyMin, b.pct), most(idleMax, b.idlePct)
		}
		if s := u.devices[device][catalog.MetricReasons]; s != nil {
			throttledMax = most(throttledMax, s.share(isThrottled))
		}
		if joules, _, ok := u.energy(device); ok {
			sum, _ := energy.(int64)
			energy = sum + units.RoundInt(joules)
		}
		if s := u.devices[device]["ecc_uncorrected_volatile_errors"]; s != nil {
			sum, _ := ecc.(int64)
			ecc = sum + units.RoundInt(s.grown())
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
