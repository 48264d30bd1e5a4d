package analyze

import (
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/format"
)

// libraryStack adds a stack through a runtime and a library.
func (tp *tape) libraryStack(id int32, module, function string) {
	r := tp.add(format.Row{Kind: format.KindStack, StackID: id, StackStatus: format.StackComplete, Device: -1, Pid: 42})
	r.Frames = []format.Frame{
		{Func: "cuMemAlloc_v2", SystemName: "cuMemAlloc_v2", Module: "/usr/lib/libcuda.so.1", Type: "native"},
		{Func: "cudaMalloc", SystemName: "cudaMalloc", Module: module, Type: "native"},
		{Func: "", Module: "/opt/lib/libcudart.so.13", Addr: 0x100, Type: "native"},
		{Func: function, SystemName: function, Module: module, Type: "native"},
		{Func: "forward", File: "/app/model.py", Line: 12, Type: "python"},
	}
}

// machine is a recording of two GPUs, of which the second is used by a program that was started in it, and by another one.
func machine(t testing.TB) *tape {
	const mibF = float64(mib)
	tp := newTape(t)
	tp.gpus()
	tp.libraryStack(1, "/opt/torch/lib/libtorch_cuda.so", "at::native::empty_cuda")
	tp.libraryStack(2, "/opt/nvidia/libcublas.so.13", "cublasCreate_v2")
	tp.api("cuDevicePrimaryCtxRetain", 1500*ms, 0xc1, 0).DurNs = 200 * ms
	for i := range int64(8) {
		a := in(at(tp.alloc(2500*ms+i*second, 100*us, 0x7f0000000000+i<<30, 512*mib), 1, "forward (model.py:12)"), 0xc1, 0)
		_ = a
	}
	in(at(tp.alloc(2600*ms, 100*us, 0x7e0000000000, 32*mib), 2, "forward (model.py:12)"), 0xc1, 0)
	in(tp.free(20*second, us, 0x7f0000000000), 0xc1, 0)
	h := in(at(tp.alloc(3*second, us, 0x7d0000000000, 64*mib), 1, "forward (model.py:12)"), 0xc1, 0)
	h.Name, h.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	tp.api("cuModuleGetFunction", 12200*ms, 0, 0).Context = 0xc1
	for i := range int64(31) {
		now := i * second
		tp.nvml(0, now, catalog.MetricGPUBusy, 0)
		tp.nvml(0, now, catalog.MetricMemoryUsed, 600*mibF)
		tp.nvml(0, now, catalog.MetricPower, 75_000)
		tp.nvml(1, now, catalog.MetricGPUBusy, 100)
		sm := 95.0
		if i >= 27 {
			sm = 0
		}
		tp.nvml(1, now, catalog.MetricSMActive, sm)
		reasons := 0.0
		switch {
		case i >= 28:
			reasons = 1
		case i >= 10 && i < 16:
			reasons = 4
		case i == 16:
			reasons = 4 + 64
		}
		tp.nvml(1, now, catalog.MetricReasons, reasons)
		tp.nvml(1, now, "throttled_power_nanoseconds", 1e9+1e6*float64(min(i, 17)))
		tp.nvml(1, now, catalog.MetricEnergy, 5e9+600_000*float64(i))
		tp.nvml(1, now, catalog.MetricPower, 600_000)
		tp.nvml(1, now, catalog.MetricHeat, 50+float64(i))
		tp.nvml(1, now, catalog.MetricMemoryTotal, float64(140<<30))
		live := 512 * float64(min(8, max(0, i-2)))
		if i > 20 {
			live -= 512
		}
		if i > 2 {
			live += 32
		}
		context := 0.0
		if i >= 2 {
			context = 520
		}
		if i >= 13 {
			context += 30 // a module
		}
		if i >= 2 {
			used := tp.nvml(1, now, catalog.MetricOfProcess, (context+live)*mibF)
			used.Pid, used.Message = 42, "train"
		}
		other := tp.nvml(1, now, catalog.MetricOfProcess, 2000*mibF)
		other.Pid, other.Message = 77, "other"
		tp.nvml(1, now, catalog.MetricMemoryUsed, (context+live+2000+10)*mibF)
		tp.nvml(1, now, catalog.MetricReserved, 500*mibF)
		if i%10 == 0 {
			for name, v := range map[string]float64{catalog.MetricPCIeGen: 5, catalog.MetricPCIeWidth: 8, "remapped_rows_pending": 1, "remapped_rows_failure": 0, "remapped_rows_uncorrectable": 1,
				"remapped_rows_correctable": 0, "ecc_uncorrected_volatile_errors": float64(i / 10), "ecc_uncorrected_aggregate_errors": 7, "ecc_corrected_volatile_errors": 0,
				"pcie_replays": 3, "new_metric_frobs": 12.5} {
				tp.nvml(1, now, name, v)
			}
			sm := tp.nvml(1, now, catalog.MetricSMOfPid, 90)
			sm.Pid, sm.Message = 42, "train"
		}
	}
	return tp
}

func TestGPUReport(t *testing.T) {
	r, err := gpu.Run(machine(t).timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	goldens(t, r, "gpu", 110)
	for name, want := range map[string]float64{"busy_pct_min": 0, "idle_pct_max": 100, "energy_joules": 30*600 + 30*75, "uncorrected_ecc_errors": 3, "problems": 3} {
		if got, ok, _ := r.Number(name); !ok || math.Abs(got-want) > 1e-6 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	// Seven of thirty intervals: each sample stands for half a second to both sides.
	if got, _, _ := r.Number("throttled_pct_max"); math.Abs(got-100*7.0/30) > 1e-6 {
		t.Errorf("throttled %v", got)
	}
}

func TestGPUReportFollowsTheFilter(t *testing.T) {
	for name, c := range map[string]struct {
		filter query.Filter
		busy   float64
		none   bool
	}{
		"one device":     {query.Filter{Devices: []int32{1}}, 26.5 * 95 / 30, false},
		"while it idles": {query.Filter{Devices: []int32{1}, FromNs: epoch + 28*second}, 0, false},
		"no device":      {query.Filter{Devices: []int32{5}}, 0, true},
	} {
		r, err := gpu.Run(machine(t).timeline(), query.Options{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		got, ok, _ := r.Number("busy_pct_min")
		if ok == c.none || math.Abs(got-c.busy) > 0.1 || (r.NoMatch != nil) != c.none {
			t.Errorf("%s: busy %v %v, %v", name, got, ok, r.NoMatch)
		}
	}
	r, err := gpu.Run(newTape(t).timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cells(t, r, "verdicts", "verdict"), " "); !strings.Contains(got, "no NVML samples") {
		t.Errorf("without samples: %s", got)
	}
}

func TestSeriesAreWeighedByTime(t *testing.T) {
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
		var s metricpkg.Series
		for i := range c.at {
			s.AtNs, s.Values = append(s.AtNs, c.at[i]*second), append(s.Values, float64(c.values[i]))
		}
		s.Weigh()
		switch name {
		case "a burst counts its time":
			// The usual distance is a second, so that the long ones count for five.
			if got, want := s.Mean(), 9*(2*2.5+3)/(2*5.0+3); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: mean %v, want %v", name, got, want)
			}
		case "a counter that is reset":
		default:
			if s.Mean() != c.mean || s.Quantile(0.95) != c.p95 || s.Share(func(v float64) bool { return v == 0 }) != c.zero {
				t.Errorf("%s: mean %v, p95 %v, zero %v", name, s.Mean(), s.Quantile(0.95), s.Share(func(v float64) bool { return v == 0 }))
			}
		}
		if s.Grown() != c.grew {
			t.Errorf("%s: grew by %v", name, s.Grown())
		}
	}
}

func TestUnitsOfMetrics(t *testing.T) {
	for metric, c := range map[string]struct {
		value float64
		want  string
	}{
		"gpu_utilization_percent": {91.25, "91.2 %"}, "memory_used_bytes": {3 << 30, "3.0 GiB"}, "power_milliwatts": {697_400, "697.4 W"}, "sm_clock_mhz": {1980, "1,980 MHz"},
		"temperature_celsius": {44, "44 °C"}, "pcie_tx_kilobytes_per_second": {1024, "1000.0 KiB/s"}, "gpm_nvlink_tx_mebibytes_per_second": {2048, "2.0 GiB/s"},
		"energy_millijoules": {1_500_000, "1,500 J"}, "throttled_power_nanoseconds": {2e9, "2.00s"}, "performance_state": {0, "0"}, "new_frobs": {12.5, "12.50"},
		"encoder_latency_microseconds": {1500, "1.5ms"}, "nan_percent": {math.NaN(), "-"},
	} {
		if got := (catalog.Measured{Value: c.value, Unit: catalog.UnitOf(metric)}).Text(); got != c.want {
			t.Errorf("%s: %q, want %q", metric, got, c.want)
		}
	}
}
