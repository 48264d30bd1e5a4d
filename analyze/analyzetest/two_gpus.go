package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// AddLibraryStack adds a stack that calls CUDA through the runtime and a function of a library.
func (recording *TestRecording) AddLibraryStack(id int32, module, function string) {
	r := recording.AddRow(
		format.Row{Kind: format.KindStack, StackID: id, StackStatus: format.StackComplete, Device: -1, Pid: 42},
	)
	r.Frames = []format.Frame{
		{Func: "cuMemAlloc_v2", SystemName: "cuMemAlloc_v2", Module: "/usr/lib/libcuda.so.1", Type: "native"},
		{Func: "cudaMalloc", SystemName: "cudaMalloc", Module: module, Type: "native"},
		{Func: "", Module: "/opt/lib/libcudart.so.13", Addr: 0x100, Type: "native"},
		{Func: function, SystemName: function, Module: module, Type: "native"},
		{Func: "forward", File: "/app/model.py", Line: 12, Type: "python"},
	}
}

// TwoGPURecording returns a recording of two GPUs. The recorded program and a program that is not
// recorded use the second GPU.
func TwoGPURecording(t testing.TB) *TestRecording {
	const mibF = float64(Mib)
	recording := NewTestRecording(t)
	recording.AddTwoGPUs()
	recording.AddLibraryStack(1, "/opt/torch/lib/libtorch_cuda.so", "at::native::empty_cuda")
	recording.AddLibraryStack(2, "/opt/nvidia/libcublas.so.13", "cublasCreate_v2")
	recording.AddAPICall("cuDevicePrimaryCtxRetain", 1500*Ms, 0xc1, 0).DurNs = 200 * Ms
	for i := range int64(8) {
		a := SetContext(
			SetStackAndSite(
				recording.AddAlloc(2500*Ms+i*Second, 100*Us, 0x7f0000000000+i<<30, 512*Mib),
				1,
				"forward (model.py:12)",
			),
			0xc1,
			0,
		)
		_ = a
	}
	SetContext(
		SetStackAndSite(recording.AddAlloc(2600*Ms, 100*Us, 0x7e0000000000, 32*Mib), 2, "forward (model.py:12)"),
		0xc1,
		0,
	)
	SetContext(recording.AddFree(20*Second, Us, 0x7f0000000000), 0xc1, 0)
	h := SetContext(
		SetStackAndSite(recording.AddAlloc(3*Second, Us, 0x7d0000000000, 64*Mib), 1, "forward (model.py:12)"),
		0xc1,
		0,
	)
	h.Name, h.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	recording.AddAPICall("cuModuleGetFunction", 12200*Ms, 0, 0).Context = 0xc1
	for i := range int64(31) {
		now := i * Second
		recording.AddNVMLSample(0, now, catalog.MetricGPUUtilization, 0)
		recording.AddNVMLSample(0, now, catalog.MetricMemoryUsed, 600*mibF)
		recording.AddNVMLSample(0, now, catalog.MetricPower, 75_000)
		recording.AddNVMLSample(1, now, catalog.MetricGPUUtilization, 100)
		sm := 95.0
		if i >= 27 {
			sm = 0
		}
		recording.AddNVMLSample(1, now, catalog.MetricSMActive, sm)
		reasons := 0.0
		switch {
		case i >= 28:
			reasons = 1
		case i >= 10 && i < 16:
			reasons = 4
		case i == 16:
			reasons = 4 + 64
		}
		recording.AddNVMLSample(1, now, catalog.MetricClockEventReasons, reasons)
		recording.AddNVMLSample(1, now, "throttled_power_nanoseconds", 1e9+1e6*float64(min(i, 17)))
		recording.AddNVMLSample(1, now, catalog.MetricEnergy, 5e9+600_000*float64(i))
		recording.AddNVMLSample(1, now, catalog.MetricPower, 600_000)
		recording.AddNVMLSample(1, now, catalog.MetricTemperature, 50+float64(i))
		recording.AddNVMLSample(1, now, catalog.MetricMemoryTotal, float64(140<<30))
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
			context += 30 // MiB that a module loaded later needs
		}
		if i >= 2 {
			used := recording.AddNVMLSample(1, now, catalog.MetricProcessMemory, (context+live)*mibF)
			used.Pid, used.Message = 42, "train"
		}
		other := recording.AddNVMLSample(1, now, catalog.MetricProcessMemory, 2000*mibF)
		other.Pid, other.Message = 77, "other"
		recording.AddNVMLSample(1, now, catalog.MetricMemoryUsed, (context+live+2000+10)*mibF)
		recording.AddNVMLSample(1, now, catalog.MetricMemoryReserved, 500*mibF)
		if i%10 == 0 {
			for name, v := range map[string]float64{
				catalog.MetricPCIeGen:              5,
				catalog.MetricPCIeWidth:            8,
				"remapped_rows_pending":            1,
				"remapped_rows_failure":            0,
				"remapped_rows_uncorrectable":      1,
				"remapped_rows_correctable":        0,
				"ecc_uncorrected_volatile_errors":  float64(i / 10),
				"ecc_uncorrected_aggregate_errors": 7,
				"ecc_corrected_volatile_errors":    0,
				"pcie_replays":                     3, "new_metric_frobs": 12.5,
			} {
				recording.AddNVMLSample(1, now, name, v)
			}
			sm := recording.AddNVMLSample(1, now, catalog.MetricProcessSMUtilization, 90)
			sm.Pid, sm.Message = 42, "train"
		}
	}
	return recording
}
