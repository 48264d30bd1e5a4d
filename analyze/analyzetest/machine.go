package analyzetest

import (
	"encoding/json"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/format"
)

// AddNVMLSample adds one NVML sample of a device.
func (recording *TestRecording) AddNVMLSample(device int32, at int64, metric string, value float64) *format.Row {
	return recording.AddRow(
		format.Row{Kind: format.KindNVML, Name: metric, StartNs: Epoch + at, Device: device, Value: value},
	)
}

// AddTwoGPUs adds two GPUs, and a process whose ordinal 0 is the second GPU.
func (recording *TestRecording) AddTwoGPUs() {
	for i, uuid := range []string{"GPU-aaaa", "GPU-bbbb"} {
		fact, err := json.Marshal(
			format.DeviceFact{UUID: uuid, PCIeGenerationMax: 5, PCIeWidthMax: 16, SlowdownCelsius: 87},
		)
		if err != nil {
			recording.t.Fatal(err)
		}
		recording.AddRow(
			format.Row{
				Kind:    format.KindDevice,
				Name:    "NVIDIA H200",
				Device:  int32(i),
				Bytes:   140 << 30,
				StartNs: Epoch,
				Message: string(fact),
			},
		)
	}
	recording.AddRow(format.Row{
		Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1,
		Message: `{"exe":"/app/train","devices":[{"ordinal":0,"uuid":"GPU-bbbb","how":"CUDA_VISIBLE_DEVICES"}]}`,
	})
	recording.AddRow(format.Row{Kind: format.KindThread, Name: "main", Pid: 42, Tid: 42, StartNs: Epoch, Device: -1})
}

// AddXid adds an Xid, an error that the NVIDIA driver logged, for a device and process.
func (recording *TestRecording) AddXid(at int64, device, pid int32, code float64, fact format.XidFact) *format.Row {
	text, err := json.Marshal(fact)
	if err != nil {
		recording.t.Fatal(err)
	}
	return recording.AddRow(
		format.Row{
			Kind:    format.KindXid,
			Name:    format.NameXid,
			StartNs: Epoch + at,
			Device:  device,
			Pid:     pid,
			Value:   code,
			Message: string(text),
		},
	)
}

// AddLaunch adds a kernel launch in context 0xc1.
func (recording *TestRecording) AddLaunch(at, dur int64, kernel string, stream int64, stack int32) *format.Row {
	r := recording.AddCall(format.KindLaunch, "cuLaunchKernel", at, dur)
	r.Kernel, r.Stream, r.Context, r.StackID, r.StackStatus = kernel, stream, 0xc1, stack, format.StackComplete
	return r
}

// AddSync adds a synchronization in context 0xc1.
func (recording *TestRecording) AddSync(name string, at, dur, stream int64, result int32) *format.Row {
	r := recording.AddCall(format.KindSync, name, at, dur)
	r.Stream, r.Context, r.Result = stream, 0xc1, result
	return r
}

// CrashingRecording returns a recording of a program that writes to an illegal address.
func CrashingRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddTwoGPUs()
	recording.AddStack(1, "scatter_add", "train_step", "main", "_start")
	recording.AddStack(2, "wait_for_gpu", "train_step", "main", "_start")
	recording.AddXid(
		-90*Second,
		0,
		7,
		63,
		format.XidFact{PCI: "0000:3b:00.0", Process: "old", Text: "Row Remapper: New row " +
			"marked for remapping", Sources: []string{"kmsg"}, Before: true},
	)
	for i := range int64(20) {
		recording.AddLaunch(Second+i*Ms, 8*Us, "gemm<float>(int)", 7, 1)
	}
	recording.AddSync("cuStreamSynchronize", 2*Second, Ms, 7, 0)
	recording.AddLaunch(3*Second, 8*Us, "gemm<float>(int)", 7, 1)
	recording.AddLaunch(3*Second+Ms, 8*Us, "scatter<float>(float*, int)", 9, 1)
	recording.AddLaunch(3*Second+2*Ms, 8*Us, "copy(float*)", 7, 1).Flags = format.FlagCaptured
	recording.AddXid(
		3*Second+5*Ms,
		1,
		42,
		31,
		format.XidFact{PCI: "0000:5e:00.0", Process: "train", Text: "Ch 0000000a, MMU " +
			"Fault: ENGINE GRAPHICS GPC0", Sources: []string{"tracepoint", "kmsg"}},
	)
	SetStackAndSite(
		recording.AddSync("cuStreamSynchronize", 3*Second+4*Ms, 3*Ms, 7, 700),
		2,
		"wait_for_gpu (train.cc:10)",
	)
	for i := range int64(3) {
		free := recording.AddFree(3*Second+10*Ms+i*Ms, Us, 0x1000)
		free.Result, free.Context = 700, 0xc1
	}
	recording.AddCall(format.KindAPI, "cuDevicePrimaryCtxGetState", 3*Second+20*Ms, Us).Result = calls.ResultDeinitialized
	for range 4 {
		recording.AddCall(format.KindAPI, "cuPointerGetAttribute", 1*Second, Us).Result = 1
		recording.AddCall(format.KindAPI, "cuEventQuery", 1*Second, Us).Result = calls.ResultNotReady
	}
	oom := SetStackAndSite(recording.AddAlloc(1500*Ms, 20*Us, 0, 200<<30), 1, "scatter_add (train.cc:10)")
	oom.Result = calls.ResultOutOfMemory
	unknown := recording.AddLaunch(1600*Ms, 0, "gemm<float>(int)", 7, 1)
	unknown.Flags, unknown.Result = format.FlagNoReturn, 1
	recording.AddXid(4*Second, -1, 0, 20034, format.XidFact{PCI: "0000:c1:00.0", Text: "Fatal, Link 12 LTSSM Fault Up", Sources: []string{"kmsg"}}).Name = format.NameSXid
	recording.AddXid(
		5*Second,
		0,
		0,
		9999,
		format.XidFact{PCI: "0000:3b:00.0", Text: "new trouble", Sources: []string{"nvml"}},
	)
	return recording
}
