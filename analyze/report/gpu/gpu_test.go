package gpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestGPUReport(t *testing.T) {
	testclass.Unit(t)
	r, err := gpu.Run(analyzetest.TwoGPURecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "gpu", 110)
	for name, want := range map[string]float64{
		"busy_pct_min":           0,
		"idle_pct_max":           100,
		"energy_joules":          30*600 + 30*75,
		"uncorrected_ecc_errors": 3,
		"problems":               3,
	} {
		if got, ok, _ := r.FindNumber(name); !ok || math.Abs(got-want) > 1e-6 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	// Seven of thirty intervals: each sample covers half a second on both sides.
	if got, _, _ := r.FindNumber("throttled_pct_max"); math.Abs(got-100*7.0/30) > 1e-6 {
		t.Errorf("throttled %v", got)
	}
}

func TestGPUReportFollowsTheFilter(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		filter query.Filter
		busy   float64
		none   bool
	}{
		"one device":     {query.Filter{Devices: []int32{1}}, 26.5 * 95 / 30, false},
		"while it idles": {query.Filter{Devices: []int32{1}, FromNs: analyzetest.Epoch + 28*analyzetest.Second}, 0, false},
		"no device":      {query.Filter{Devices: []int32{5}}, 0, true},
	} {
		r, err := gpu.Run(analyzetest.TwoGPURecording(t).Timeline(), query.Options{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		got, ok, _ := r.FindNumber("busy_pct_min")
		if ok == c.none || math.Abs(got-c.busy) > 0.1 || (r.NoMatch != nil) != c.none {
			t.Errorf("%s: busy %v %v, %v", name, got, ok, r.NoMatch)
		}
	}
	r, err := gpu.Run(analyzetest.NewTestRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(
		analyzetest.ColumnTexts(t, r, "verdicts", "verdict"),
		" ",
	); !strings.Contains(
		got,
		"no NVML samples",
	) {
		t.Errorf("without samples: %s", got)
	}
}

func TestSeriesAreWeighedByTime(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		at, values            []int64
		mean, p95, zero, grew float64
	}{
		"one sample":              {[]int64{5}, []int64{7}, 7, 7, 0, 0},
		"even":                    {[]int64{0, 1, 2}, []int64{0, 10, 0}, 5, 10, 50, 10},
		"a burst counts its time": {[]int64{0, 10, 11, 12, 13, 23}, []int64{0, 9, 9, 9, 9, 0}, 0, 9, 0, 9},
		"all at one time":         {[]int64{3, 3}, []int64{0, 8}, 4, 8, 50, 8},
		"a counter that is reset": {[]int64{0, 1, 2, 3}, []int64{5, 8, 1, 2}, 0, 0, 0, 5},
	} {
		var s metric.Series
		for i := range c.at {
			s.AtNs, s.Values = append(s.AtNs, c.at[i]*analyzetest.Second), append(s.Values, float64(c.values[i]))
		}
		s.ComputeWeights()
		switch name {
		case "a burst counts its time":
			// The usual sampling interval is a second, so the long intervals count for five.
			if got, want := s.Mean(), 9*(2*2.5+3)/(2*5.0+3); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: mean %v, want %v", name, got, want)
			}
		case "a counter that is reset":
		default:
			if s.Mean() != c.mean || s.Quantile(0.95) != c.p95 ||
				s.SharePct(func(v float64) bool { return v == 0 }) != c.zero {
				t.Errorf(
					"%s: mean %v, p95 %v, zero %v",
					name,
					s.Mean(),
					s.Quantile(0.95),
					s.SharePct(func(v float64) bool { return v == 0 }),
				)
			}
		}
		if s.CounterIncrease() != c.grew {
			t.Errorf("%s: grew by %v", name, s.CounterIncrease())
		}
	}
}

func TestUnitsOfMetrics(t *testing.T) {
	testclass.Unit(t)
	for metricName, c := range map[string]struct {
		value float64
		want  string
	}{
		"gpu_utilization_percent":            {91.25, "91.2 %"},
		"memory_used_bytes":                  {3 << 30, "3.0 GiB"},
		"power_milliwatts":                   {697_400, "697.4 W"},
		"sm_clock_mhz":                       {1980, "1,980 MHz"},
		"temperature_celsius":                {44, "44 °C"},
		"pcie_tx_kilobytes_per_second":       {1024, "1000.0 KiB/s"},
		"gpm_nvlink_tx_mebibytes_per_second": {2048, "2.0 GiB/s"},
		"energy_millijoules":                 {1_500_000, "1,500 J"},
		"throttled_power_nanoseconds":        {2e9, "2.00s"},
		"performance_state":                  {0, "0"},
		"new_frobs":                          {12.5, "12.50"},
		"encoder_latency_microseconds":       {1500, "1.5ms"}, "nan_percent": {math.NaN(), "-"},
	} {
		if got := (catalog.MetricValue{Value: c.value, Unit: catalog.UnitOfMetric(metricName)}).TextWithUnit(); got != c.want {
			t.Errorf("%s: %q, want %q", metricName, got, c.want)
		}
	}
}
