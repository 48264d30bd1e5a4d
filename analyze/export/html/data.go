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
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
)

// htmlData is what the charts of a page are drawn from. Times are seconds from the recording's
// start, texts are numbers of Texts.
type htmlData struct {
	FromS    float64       `json:"from"`
	ToS      float64       `json:"to"`
	Texts    []string      `json:"texts"`
	Memory   []htmlMemory  `json:"memory"`
	Groups   []htmlGroup   `json:"groups"`
	Flame    *htmlFlame    `json:"flame"`
	Activity *htmlActivity `json:"activity"`
	GPUs     []htmlGPU     `json:"gpus"`
	Marks    []htmlMark    `json:"marks"`
}

// htmlMemory is the memory of a device, or of the host, over time.
type htmlMemory struct {
	Title string  `json:"title"`
	T     []secs  `json:"t"`
	Total []int64 `json:"total"`
	// Shown are the groups with a series of their own, the one that ever had most first; Series
	// has their bytes at each moment.
	Shown  []int32   `json:"shown"`
	Series [][]int64 `json:"series"`
	// Held are, for each moment, group, bytes and blocks of those who held most, one after the
	// other; Rest is what all others held, in bytes and blocks.
	Held  [][]int64  `json:"held"`
	Rest  [][2]int64 `json:"rest"`
	Peak  int        `json:"peak"` // the moment of the peak
	Lines []htmlLine `json:"lines"`

	device int32
}

// htmlGroup is a place that allocates memory of a kind.
type htmlGroup struct {
	Site  int32   `json:"s"`
	Kind  int32   `json:"k"`
	Stack []int32 `json:"f"` // frames, leaf first
}

type htmlLine struct {
	Name string `json:"name"`
	T    []secs `json:"t"`
	V    []num  `json:"v"`
}

type htmlFlame struct {
	Metrics []flameMetric `json:"metrics"`
	Root    flameJSON     `json:"root"`
}

type htmlActivity struct {
	T     []secs     `json:"t"`
	Lines []htmlLine `json:"lines"`
}

type htmlGPU struct {
	Title  string      `json:"title"`
	Charts []htmlChart `json:"charts"`
}

type htmlChart struct {
	Title string     `json:"title"`
	Unit  string     `json:"unit"`
	Lines []htmlLine `json:"lines"`
}

// htmlMark is an event that all charts show.
type htmlMark struct {
	T    secs   `json:"t"`
	Text string `json:"text"`
}

// secs are seconds, to the 10 µs; num is a value to 5 digits. JSON with all digits of a float
// would be twice as long.
type (
	secs float64
	num  float64
)

func (s secs) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(s)*1e5)/1e5, 'f', -1, 64), nil
}

func (n num) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 6, 64), nil
}

// texts are the texts of a page, each once, made safe to show and cut to a length.
type texts struct{ origin.Names }

// longestText is how long a name may be in a page: C++ has names of 10,000 characters.
const longestText = 240

func (t *texts) id(s string) int32 { return t.Names.ID(shortText(s)) }

func shortText(s string) string { return render.CutMiddle(units.OneLine(s), longestText) }

func sinceStart(t *timeline.Timeline, ns int64) secs {
	return secs(float64(ns-t.Recording().FromNs) / 1e9)
}

// Series and holders that a chart of memory has.
const (
	mostSeries  = 9
	mostHolders = 12
)

// htmlStackFrames bounds the frames that are told of a stack.
const htmlStackFrames = 40

func (s *momentScan) data(d *htmlData, all *texts, rules *query.FrameRules) {
	numbers := make(map[int32]int32) // group → its number in the page
	number := func(group int32) int32 {
		n, ok := numbers[group]
		if !ok {
			n = int32(len(d.Groups))
			numbers[group] = n
			about := &s.about[group]
			g := htmlGroup{Site: all.id(about.site), Kind: all.id(about.memory), Stack: []int32{}}
			for _, f := range frames.ForDisplay(&s.t.Stacks, about.stack, htmlStackFrames, rules) {
				g.Stack = append(g.Stack, all.id(render.Text(&f)))
			}
			d.Groups = append(d.Groups, g)
		}
		return n
	}
	for _, device := range slices.Sorted(maps.Keys(s.devices)) {
		series := s.devices[device]
		m := htmlMemory{Title: shortText("GPU " + s.t.SharedLabel(device)), Lines: []htmlLine{}, device: device}
		if device == hostMemory {
			m.Title = "host memory, pinned or registered"
		}
		if series.data(&m, s.t, number) {
			d.Memory = append(d.Memory, m)
		}
	}
	slices.SortStableFunc(
		d.Memory,
		func(a, b htmlMemory) int { return cmp.Compare(slices.Max(b.Total), slices.Max(a.Total)) },
	)
}

// data fills in what the page tells of one device; false if it never had memory.
func (s *momentSeries) data(m *htmlMemory, t *timeline.Timeline, number func(group int32) int32) bool {
	moments := s.list
	shown := biggest(moments)
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
		m.T, m.Total = append(m.T, sinceStart(t, o.atNs)), append(m.Total, o.total)
		if o.total > m.Total[m.Peak] {
			m.Peak = k
		}
		row, rest := make([]int64, 0, 3*mostHolders), o.rest
		for i, h := range o.holders {
			if n, ok := at[h.group]; ok {
				m.Series[n][k] = h.bytes
			}
			if i < mostHolders {
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

// biggest are the groups that ever held most.
func biggest(moments []memoryMoment) []int32 {
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
	return groups[:min(mostSeries, len(groups))]
}

func ofTimelineLine(t *timeline.Timeline, name string, points []point, factor float64) htmlLine {
	l := htmlLine{Name: name, T: []secs{}, V: []num{}}
	for _, p := range points {
		l.T, l.V = append(l.T, sinceStart(t, p.atNs)), append(l.V, num(p.value*factor))
	}
	return l
}

// activityData are calls a second.
func (u *callsOverTime) data() *htmlActivity {
	a := new(htmlActivity)
	width := float64(u.Window.DurNs()) / htmlBuckets / 1e9
	if width == 0 || len(u.byStack) == 0 {
		return nil
	}
	for i := range htmlBuckets {
		a.T = append(a.T, sinceStart(u.T, u.parts.start(i)))
	}
	for k, name := range activityNames {
		l := htmlLine{Name: name, T: []secs{}}
		some := false
		for _, n := range u.counts[k] {
			l.V = append(l.V, num(float64(n)/width))
			some = some || n > 0
		}
		if some {
			a.Lines = append(a.Lines, l)
		}
	}
	return a
}

// gpuCharts are the metrics that are drawn over time; those of one chart have one unit.
var gpuCharts = []struct {
	title   string
	metrics []chartMetric
}{
	{"Busy", []chartMetric{
		{catalog.MetricSMActive, "SMs active"},
		{"gpm_sm_occupancy_percent", "SM occupancy"},
		{"gpm_tensor_active_percent", "tensor cores active"},
		{"gpm_dram_bandwidth_percent", "DRAM bandwidth"},
		{catalog.MetricGPUBusy, "GPU utilization"},
		{"memory_utilization_percent", "memory utilization"},
	}},
	{"Memory in use", []chartMetric{{catalog.MetricMemoryUsed, "in use"}}},
	{
		"Power",
		[]chartMetric{
			{catalog.MetricPower, "power"},
			{"power_instant_milliwatts", "at the moment"},
			{"power_limit_milliwatts", "limit"},
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

type chartMetric struct{ name, title string }

// mostGPUs is how many GPUs a page has charts of.
const mostGPUs = 16

// gpuData makes the charts of NVML's samples.
func gpuData(t *timeline.Timeline, f *query.Filter) (list []htmlGPU) {
	w := f.Window(t.Recording())
	u := &metricpkg.Devices{T: t, Filter: f, Window: w, Devices: make(map[int32]map[string]*metricpkg.Series)}
	u.Collect()
	for _, device := range u.Sorted()[:min(mostGPUs, len(u.Devices))] {
		g := htmlGPU{Title: shortText("GPU " + t.DeviceLabel(device))}
		for _, c := range gpuCharts {
			chart := htmlChart{Title: c.title}
			for _, metric := range c.metrics {
				s, unit := u.Devices[device][metric.name], catalog.UnitOf(metric.name)
				if s == nil || len(s.Values) < 2 {
					continue
				}
				curve := newCurve(w)
				for i, at := range s.AtNs {
					curve.add(at, s.Values[i])
				}
				chart.Unit = unit.Name
				chart.Lines = append(chart.Lines, ofTimelineLine(t, metric.title, curve.finish(), unit.Factor))
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

// mostMarks bounds the events that charts show.
const mostMarks = 400

// ofTimelineMarks are the Xids, lost calls and failures in a window.
func ofTimelineMarks(t *timeline.Timeline, w query.Window, failed *[htmlBuckets]failures) (list []htmlMark) {
	add := func(ns int64, format string, args ...any) {
		if ns >= w.FromNs && ns <= w.ToNs {
			list = append(list, htmlMark{sinceStart(t, ns), fmt.Sprintf(format, args...)})
		}
	}
	for i := range t.Facts.Xids {
		x := &t.Facts.Xids[i]
		add(x.AtNs, "%s %d", x.Kind(), x.Code)
	}
	for _, f := range failed {
		if f.count > 0 {
			add(f.firstNs, "%s failed", units.Plural(f.count, "allocation"))
		}
	}
	for i := range t.Facts.Lost {
		l := &t.Facts.Lost[i]
		add(l.StartNs, "%s lost", units.Plural(l.Calls, units.OneLine(l.Class)+" call"))
	}
	slices.SortStableFunc(list, func(a, b htmlMark) int { return cmp.Compare(a.T, b.T) })
	return list[:min(mostMarks, len(list))]
}

// script is the data as it stands in the page: JSON in which no character means anything to HTML.
func (d *htmlData) script() ([]byte, error) { return json.Marshal(d) }
