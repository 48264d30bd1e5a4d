package analyze

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// series are the samples of one metric of one device, or of a process on it, in order of time.
type series struct {
	atNs   []int64
	values []float64
	// weights are how much time each sample stands for, ns: halfway to its neighbours.
	weights []float64
}

// gapFactor is how many usual distances between samples may lie between two of them: beyond, nobody looked.
const gapFactor = 5

// weigh fills in the weights. NVML is asked at regular times, more or less: what matters is that a burst of samples does not
// count more than the time in which it was taken, and that a hole counts for nothing.
func (s *series) weigh() {
	n := len(s.values)
	s.weights = make([]float64, n)
	if n == 1 {
		s.weights[0] = 1
		return
	}
	steps := make([]int64, n-1)
	for i := range steps {
		steps[i] = s.atNs[i+1] - s.atNs[i]
	}
	usual := slices.Sorted(slices.Values(steps))
	longest := gapFactor * median(usual)
	for i, step := range steps {
		half := float64(min(step, longest)) / 2
		s.weights[i] += half
		s.weights[i+1] += half
	}
	if s.totalNs() == 0 { // all at one time
		for i := range s.weights {
			s.weights[i] = 1
		}
	}
}

// totalNs is the time that the samples stand for.
func (s *series) totalNs() float64 {
	var sum float64
	for _, w := range s.weights {
		sum += w
	}
	return sum
}

// mean is the average over time.
func (s *series) mean() float64 {
	var sum float64
	for i, v := range s.values {
		sum += v * s.weights[i]
	}
	return sum / s.totalNs()
}

// share is the share of the time in which the value is as asked for, in percent.
func (s *series) share(is func(float64) bool) float64 {
	var sum float64
	for i, v := range s.values {
		if is(v) {
			sum += s.weights[i]
		}
	}
	return 100 * sum / s.totalNs()
}

// quantile is the least value below or at which the metric was for that share of the time.
func (s *series) quantile(q float64) float64 {
	order := make([]int, len(s.values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(s.values[a], s.values[b]), cmp.Compare(a, b)) })
	var sum float64
	for _, i := range order {
		if sum += s.weights[i]; sum >= q*s.totalNs()*(1-1e-12) {
			return s.values[i]
		}
	}
	return s.values[order[len(order)-1]]
}

// grown is how much a counter rose. One that fell was reset, by a new driver: what it counted until then is kept.
func (s *series) grown() float64 {
	var sum float64
	for i := 1; i < len(s.values); i++ {
		if d := s.values[i] - s.values[i-1]; d >= 0 {
			sum += d
		} else {
			sum += s.values[i]
		}
	}
	return sum
}

func (s *series) last() float64 { return s.values[len(s.values)-1] }

// measured is a number whose unit depends on the row: text shows the unit, JSON and CSV have the bare number.
type measured struct {
	value float64
	unit  metricUnit
}

// MarshalJSON writes the number. JSON has none for what is no number.
func (m measured) MarshalJSON() ([]byte, error) {
	if math.IsNaN(m.value) || math.IsInf(m.value, 0) {
		return []byte("null"), nil
	}
	return []byte(m.String()), nil
}

// String is the bare number.
func (m measured) String() string { return strconv.FormatFloat(m.value, 'f', -1, 64) }

// metricUnit is how values of a metric are shown: a factor to what people read, and its name.
type metricUnit struct {
	name     string
	factor   float64
	decimals int
}

// metricUnits are the units that names of metrics end in. The longest fitting one counts.
var metricUnits = map[string]metricUnit{
	"_percent": {"%", 1, 1}, "_bytes": {"bytes", 1, 0}, "_kilobytes": {"bytes", 1e3, 0}, "_kibibytes": {"bytes", 1 << 10, 0}, "_mebibytes": {"bytes", 1 << 20, 0},
	"_bytes_per_second": {"bytes/s", 1, 0}, "_kilobytes_per_second": {"bytes/s", 1e3, 0}, "_kibibytes_per_second": {"bytes/s", 1 << 10, 0}, "_mebibytes_per_second": {"bytes/s", 1 << 20, 0},
	"_milliwatts": {"W", 1e-3, 1}, "_watts": {"W", 1, 1}, "_millijoules": {"J", 1e-3, 0}, "_joules": {"J", 1, 0}, "_celsius": {"°C", 1, 0}, "_mhz": {"MHz", 1, 0},
	"_nanoseconds": {"ns", 1, 0}, "_microseconds": {"ns", 1e3, 0}, "_milliseconds": {"ns", 1e6, 0}, "_seconds": {"ns", 1e9, 0}, "_lanes": {"lanes", 1, 0},
	"_frames_per_second": {"frames/s", 1, 0},
}

// unitOf is the unit of a metric; of one that this version does not know, the one that its name ends in.
func unitOf(metric string) metricUnit {
	best, unit := 0, metricUnit{"", 1, 2}
	for suffix, u := range metricUnits {
		if len(suffix) > best && strings.HasSuffix(metric, suffix) {
			best, unit = len(suffix), u
		}
	}
	return unit
}

// text is the value for people.
func (m measured) text() string {
	v := m.value * m.unit.factor
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case m.unit.name == "bytes":
		return bytesText(roundInt(v))
	case m.unit.name == "bytes/s":
		return bytesText(roundInt(v)) + "/s"
	case m.unit.name == "ns":
		return durText(roundInt(v))
	case m.unit.name == "" && v == math.Trunc(v):
		return thousands(roundInt(v))
	}
	text := strconv.FormatFloat(v, 'f', m.unit.decimals, 64)
	if m.unit.decimals == 0 {
		text = thousands(roundInt(v))
	}
	return strings.TrimSpace(text + " " + m.unit.name)
}

// isCounter reports whether a metric only counts up, so that its rise says more than its values.
func isCounter(metric string) bool {
	switch metric {
	case "energy_millijoules", "pcie_replays", "nvlink_tx_kibibytes", "nvlink_rx_kibibytes":
		return true
	}
	return strings.HasPrefix(metric, "throttled_") && strings.HasSuffix(metric, "_nanoseconds") || strings.HasSuffix(metric, "_errors")
}
