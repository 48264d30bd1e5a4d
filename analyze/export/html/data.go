package html

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
)

// chartData is the data of all charts. The page contains it as JSON, and web/src/data.js describes
// it for scripts. Times are seconds since the start of the recording. Names of sites, kinds and
// frames are indexes into Texts.
type chartData struct {
	FromS    float64               `json:"from"`
	ToS      float64               `json:"to"`
	Texts    []string              `json:"texts"`
	Memory   []memoryData          `json:"memory"`
	Groups   []allocationGroupData `json:"groups"`
	Flame    *flameData            `json:"flame"`
	Activity *activityData         `json:"activity"`
	Busy     []busyData            `json:"busy"`
	Steps    []stepsData           `json:"steps"`
	Ranks    []rankData            `json:"ranks"`
	GPUs     []gpuData             `json:"gpus"`
	Marks    []chartMarkData       `json:"marks"`
}

// memoryData is the memory of a device, or of the host, over time. Its lists have one entry for
// each moment, in order of time.
type memoryData struct {
	Title string         `json:"title"`
	T     []chartSeconds `json:"t"`
	Total []int64        `json:"total"` // live bytes
	// Shown are the groups with a series of their own, the one with the highest maximum first.
	Shown []int32 `json:"shown"`
	// Series are the live bytes of each group of Shown.
	Series [][]int64 `json:"series"`
	// Held lists the largest holders: group, bytes and blocks of the first, then of the second, and
	// so on.
	Held [][]int64 `json:"held"`
	// Rest is the sum of all other holders: bytes, blocks.
	Rest  [][2]int64 `json:"rest"`
	Peak  int        `json:"peak"` // index of the moment with most live bytes
	Lines []lineData `json:"lines"`

	device int32
}

// allocationGroupData is a call site that allocates one kind of memory.
type allocationGroupData struct {
	Site  int32   `json:"s"`
	Kind  int32   `json:"k"`
	Stack []int32 `json:"f"` // frames, leaf first
}

// lineData is a value over time: V[i] holds from T[i] on.
type lineData struct {
	Name string         `json:"name"`
	T    []chartSeconds `json:"t"`
	V    []chartNumber  `json:"v"`
}

// flameData is the flame graph: the metrics to choose from, and the tree of frames.
type flameData struct {
	Metrics []flameMetric `json:"metrics"`
	Root    flameNodeJSON `json:"root"`
}

// activityData are the calls per second over time, one line for each kind of call.
type activityData struct {
	T     []chartSeconds `json:"t"`
	Lines []lineData     `json:"lines"`
}

// gpuData are the charts of the metrics of one GPU.
type gpuData struct {
	Title  string            `json:"title"`
	Charts []metricChartData `json:"charts"`
}

// metricChartData is a chart of metrics with the same unit.
type metricChartData struct {
	Title string     `json:"title"`
	Unit  string     `json:"unit"`
	Lines []lineData `json:"lines"`
}

// chartMarkData is an event that all charts show as a vertical line.
type chartMarkData struct {
	T    chartSeconds `json:"t"`
	Text string       `json:"text"`
}

// chartSeconds is a time in seconds, and chartNumber a value in a chart. In JSON a time is
// rounded to 10 us and a value to 6 digits,
// which halves the size of the data.
type (
	chartSeconds float64
	chartNumber  float64
)

// MarshalJSON encodes the time, rounded to 10 us.
func (s chartSeconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(s)*1e5)/1e5, 'f', -1, 64), nil
}

// MarshalJSON encodes a value of a chart, rounded to 6 digits. NaN and infinite values are null.
func (n chartNumber) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 6, 64), nil
}

// textTable numbers the distinct texts of the charts. The texts are shortened and have no control
// characters.
type textTable struct{ origin.StringNumbers }

// maxTextChars is the largest length of a name in the page, in characters. C++ names can have
// 10,000.
const maxTextChars = 240

// addText adds a text, unless it was added before, and returns its number.
func (t *textTable) addText(s string) int32 { return t.StringNumbers.NumberOf(shortenText(s)) }

// shortenText returns a text on one line, cut in the middle to maxTextChars characters.
func shortenText(s string) string { return render.CutTextMiddle(units.SanitizeText(s), maxTextChars) }

// secondsSinceStart converts a time (Unix ns) to seconds since the start of the recording.
func secondsSinceStart(t *timeline.Timeline, ns int64) chartSeconds {
	return chartSeconds(float64(ns-t.RecordingWindow().FromNs) / 1e9)
}

// maxMemorySeries is the largest number of stacked series in a memory chart, maxMomentHolders the
// largest number of holders that it lists for one moment.
const (
	maxMemorySeries  = 9
	maxMomentHolders = 12
)

// maxStackFrames is the largest number of frames of each stack in the page.
const maxStackFrames = 40

// addMemoryCharts adds the memory charts, and their groups, to d.
func (s *momentScan) addMemoryCharts(d *chartData, all *textTable, rules *query.FrameRules) {
	numbers := make(map[int32]int32) // index into d.Groups by group
	number := func(group int32) int32 {
		n, ok := numbers[group]
		if !ok {
			n = int32(len(d.Groups))
			numbers[group] = n
			about := &s.about[group]
			g := allocationGroupData{Site: all.addText(about.site), Kind: all.addText(about.memory), Stack: []int32{}}
			for _, f := range frames.DisplayFrames(&s.t.Stacks, about.stack, maxStackFrames, rules) {
				g.Stack = append(g.Stack, all.addText(render.FormatFrame(&f)))
			}
			d.Groups = append(d.Groups, g)
		}
		return n
	}
	for _, device := range slices.Sorted(maps.Keys(s.devices)) {
		series := s.devices[device]
		m := memoryData{Title: shortenText("GPU " + s.t.SharedDeviceLabel(device)), Lines: []lineData{}, device: device}
		if device == hostDeviceKey {
			m.Title = "host memory (pinned or registered)"
		}
		if series.fillMemoryChart(&m, s.t, number) {
			d.Memory = append(d.Memory, m)
		}
	}
	slices.SortStableFunc(
		d.Memory,
		func(a, b memoryData) int { return cmp.Compare(slices.Max(b.Total), slices.Max(a.Total)) },
	)
}

// fillMemoryChart sets the chart of one device. number returns the index of a group in
// chartData.Groups. fillMemoryChart returns false if the device never had live memory.
func (s *memoryStateSeries) fillMemoryChart(m *memoryData, t *timeline.Timeline, number func(group int32) int32) bool {
	moments := s.list
	shown := findLargestGroups(moments)
	if len(shown) == 0 {
		return false
	}
	at := make(map[int32]int)
	for i, g := range shown {
		at[g] = i
		m.Shown = append(m.Shown, number(g))
		m.Series = append(m.Series, make([]int64, len(moments)))
	}
	for k := range moments {
		o := &moments[k]
		m.T, m.Total = append(m.T, secondsSinceStart(t, o.atNs)), append(m.Total, o.total)
		if o.total > m.Total[m.Peak] {
			m.Peak = k
		}
		row, rest := make([]int64, 0, 3*maxMomentHolders), o.rest
		for i, h := range o.holders {
			if n, ok := at[h.group]; ok {
				m.Series[n][k] = h.bytes
			}
			if i < maxMomentHolders {
				row = append(row, int64(number(h.group)), h.bytes, h.blocks)
			} else {
				rest.bytes += h.bytes
				rest.blocks += h.blocks
			}
		}
		m.Held, m.Rest = append(m.Held, row), append(m.Rest, [2]int64{rest.bytes, rest.blocks})
	}
	return true
}

// findLargestGroups returns the groups with the most live bytes at any moment, at most
// maxMemorySeries.
func findLargestGroups(moments []memoryState) []int32 {
	most := make(map[int32]int64)
	for i := range moments {
		for _, h := range moments[i].holders {
			most[h.group] = max(most[h.group], h.bytes)
		}
	}
	groups := slices.SortedFunc(
		maps.Keys(most),
		func(a, b int32) int { return cmp.Or(cmp.Compare(most[b], most[a]), cmp.Compare(a, b)) },
	)
	return groups[:min(maxMemorySeries, len(groups))]
}

// newLineData returns a line with the points of a curve, multiplied by factor.
func newLineData(t *timeline.Timeline, name string, points []curvePoint, factor float64) lineData {
	l := lineData{Name: name, T: []chartSeconds{}, V: []chartNumber{}}
	for _, p := range points {
		l.T, l.V = append(l.T, secondsSinceStart(t, p.atNs)), append(l.V, chartNumber(p.value*factor))
	}
	return l
}

// newActivityData returns the calls per second over time, or nil if there are no calls.
func (c *callsOverTime) newActivityData() *activityData {
	a := new(activityData)
	width := float64(c.Window.DurNs()) / numWindowBuckets / 1e9 // of a bucket of the window, seconds
	if width == 0 || len(c.byStack) == 0 {
		return nil
	}
	for i := range numWindowBuckets {
		a.T = append(a.T, secondsSinceStart(c.T, c.parts.bucketStartNs(i)))
	}
	for k, name := range activityLineNames {
		l := lineData{Name: name, T: []chartSeconds{}}
		hasCalls := false
		for _, n := range c.counts[k] {
			l.V = append(l.V, chartNumber(float64(n)/width))
			hasCalls = hasCalls || n > 0
		}
		if hasCalls {
			a.Lines = append(a.Lines, l)
		}
	}
	return a
}

// gpuChartSpecs are the charts of each GPU. The metrics of one chart have the same unit.
var gpuChartSpecs = []struct {
	title   string
	metrics []chartMetric
}{
	{"Busy", []chartMetric{
		{catalog.MetricSMActive, "SMs active"},
		{"gpm_sm_occupancy_percent", "SM occupancy"},
		{"gpm_tensor_active_percent", "tensor cores active"},
		{"gpm_dram_bandwidth_percent", "DRAM bandwidth"},
		{catalog.MetricGPUUtilization, "GPU utilization"},
		{"memory_utilization_percent", "memory utilization"},
	}},
	{"Memory in use", []chartMetric{{catalog.MetricMemoryUsed, "in use"}}},
	{
		"Power",
		[]chartMetric{
			{catalog.MetricPower, "power"},
			{"power_instant_milliwatts", "instantaneous power"},
			{"power_limit_milliwatts", "power limit"},
		},
	},
	{"Clocks", []chartMetric{{"sm_clock_mhz", "SMs"}, {"memory_clock_mhz", "memory"}}},
	{"Temperature", []chartMetric{{"temperature_celsius", "GPU"}, {"memory_temperature_celsius", "memory"}}},
	{"PCIe and NVLink", []chartMetric{
		{"gpm_pcie_tx_mebibytes_per_second", "PCIe, from the GPU"},
		{"gpm_pcie_rx_mebibytes_per_second", "PCIe, to the GPU"},
		{"gpm_nvlink_tx_mebibytes_per_second", "NVLink, sent"},
		{"gpm_nvlink_rx_mebibytes_per_second", "NVLink, received"},
	}},
}

// chartMetric is the name of an NVML or GPM metric, with its title in the legend.
type chartMetric struct{ name, title string }

// maxChartedGPUs is the largest number of GPUs with charts.
const maxChartedGPUs = 16

// newGPUData returns the charts of the NVML samples of each GPU.
func newGPUData(t *timeline.Timeline, f *query.Filter) (list []gpuData) {
	w := f.NarrowWindow(t.RecordingWindow())
	u := &metric.DeviceMetrics{T: t, Filter: f, Window: w, Devices: make(map[int32]map[string]*metric.Series)}
	u.CollectSamples()
	for _, device := range u.SortedIndexes()[:min(maxChartedGPUs, len(u.Devices))] {
		g := gpuData{Title: shortenText("GPU " + t.DeviceLabel(device))}
		for _, c := range gpuChartSpecs {
			chart := metricChartData{Title: c.title}
			for _, metric := range c.metrics {
				s, unit := u.Devices[device][metric.name], catalog.UnitOfMetric(metric.name)
				if s == nil || len(s.Values) < 2 {
					continue
				}
				curve := newValueCurve(w)
				for i, at := range s.AtNs {
					curve.addValue(at, s.Values[i])
				}
				chart.Unit = unit.Name
				chart.Lines = append(chart.Lines, newLineData(t, metric.title, curve.finishPoints(), unit.Factor))
			}
			if len(chart.Lines) > 0 {
				g.Charts = append(g.Charts, chart)
			}
		}
		if len(g.Charts) > 0 {
			list = append(list, g)
		}
	}
	return list
}

// addChanges adds the report changes, and keeps its marks for the charts. It uses the calls, the memory and the
// steps that other reports have read.
func (b *pageBuilder) addChanges() error {
	shared := changes.Shared{
		Calls:   b.calls.first,
		Memory:  b.levels,
		Program: &b.survey.Memory,
		Steps:   []changes.ProcessSteps{},
	}
	for i := range b.steps {
		shared.Steps = append(shared.Steps, changes.ProcessSteps{Pid: b.steps[i].Pid, Steps: b.steps[i].Steps})
	}
	r, marks, err := changes.RunForCharts(b.t, b.opt.Options, shared)
	if err != nil {
		return err
	}
	b.changes = marks
	b.addReport("changes", r)
	return nil
}

// maxChartMarks is the largest number of marks in the charts, and of notes in the page.
const maxChartMarks = 400

// newChartMarks returns the marks of a window: Xid errors, lost calls, failed allocations, and changes of
// values.
func newChartMarks(
	t *timeline.Timeline,
	w query.Window,
	failed *[numWindowBuckets]bucketFailures,
	changed []changes.Mark,
) (list []chartMarkData) {
	add := func(ns int64, format string, args ...any) {
		if ns >= w.FromNs && ns <= w.ToNs {
			list = append(list, chartMarkData{secondsSinceStart(t, ns), fmt.Sprintf(format, args...)})
		}
	}
	for i := range t.Facts.Xids {
		x := &t.Facts.Xids[i]
		add(x.AtNs, "%s %d", x.Kind(), x.Code)
	}
	for _, f := range failed {
		if f.count > 0 {
			add(f.firstNs, "%s failed", units.CountWithNoun(f.count, "allocation"))
		}
	}
	for _, c := range changed {
		add(c.AtNs, "%s", c.Text)
	}
	for i := range t.Facts.Lost {
		l := &t.Facts.Lost[i]
		add(l.StartNs, "%s lost", units.CountWithNoun(l.Calls, units.SanitizeText(l.Class)+" call"))
	}
	slices.SortStableFunc(list, func(a, b chartMarkData) int { return cmp.Compare(a.T, b.T) })
	return list[:min(maxChartMarks, len(list))]
}

// encodeScript returns the data of all charts as JSON. encoding/json escapes the characters with a
// meaning in HTML.
func (d *chartData) encodeScript() ([]byte, error) { return json.Marshal(d) }
