package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Two instances of one template. pprof merges them if it takes their names for mangled ones.
const (
	// AddKernelName is the full name of a kernel that adds.
	AddKernelName = "void at::native::vec_kernel<4, at::native::Add<float>>(int, at::native::Add<float>)"
	mulKernelName = "void at::native::vec_kernel<8, at::native::Mul<float>>(int, at::native::Mul<float>)"
)

// WorkloadRecording returns a recording of a program that calls CUDA from Python through C++. It
// has calls of every outcome: captured, failed, nested, open, abandoned, without a recorded return.
func WorkloadRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	for _, pid := range []int32{42, 77} {
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    "python3",
				Pid:     pid,
				StartNs: Epoch,
				Device:  -1,
				Message: `{"exe":"/usr/bin/python3"}`,
			},
		)
		recording.AddRow(
			format.Row{Kind: format.KindThread, Name: "main", Pid: pid, Tid: pid, StartNs: Epoch, Device: -1},
		)
	}
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: Epoch})
	for id, call := range map[int32]string{
		1: "cuLaunchKernel",
		2: "cuMemcpyHtoD_v2",
		3: "cuStreamSynchronize",
		4: "cuGraphLaunch",
	} {
		recording.AddRow(
			format.Row{
				Kind:        format.KindStack,
				StackID:     id,
				StackStatus: format.StackComplete,
				Device:      -1,
				Frames: []format.Frame{
					{
						Func:       call,
						SystemName: call,
						Module:     "/usr/lib/libcuda.so.1",
						BuildID:    "c0da",
						Addr:       0x1000 * int64(id),
						Type:       "native",
					},
					{
						Func:       "at::add(at::Tensor const&)",
						SystemName: "_ZN2at3addERKNS_6TensorE",
						Module:     "/lib/libtorch.so",
						BuildID:    "70c4",
						Addr:       0x77,
						Type:       "native",
					},
					{Func: "forward", File: "/home/u/model.py", Line: 12, Type: "python"},
					{Func: "train; step", File: "/home/u/train.py", Line: 88, Type: "python"},
					{
						Func:       "_start",
						SystemName: "_start",
						Module:     "/usr/bin/python3",
						BuildID:    "3333",
						Addr:       0x10,
						Type:       "native",
					},
				},
			},
		)
	}
	call := func(kind, name string, ms int64, stack int32) *format.Row {
		r := recording.AddCall(kind, name, ms*1_000_000, 20*Us)
		r.StackID, r.StackStatus, r.Stream = stack, format.StackComplete, 7
		return r
	}
	for i := range int64(40) {
		r := call(format.KindLaunch, "cuLaunchKernel", 10*i, 1)
		if r.Kernel = AddKernelName; i%4 == 0 {
			r.Kernel = mulKernelName
		}
		switch {
		case i == 5:
			r.Flags = format.FlagCaptured
		case i == 6:
			r.Result = 1
		case i >= 30:
			r.Flags, r.DurNs = format.FlagNoReturn, 0
		case i == 7:
			r.Pid, r.Tid, r.Stream = 77, 77, 8
		}
		g := call(format.KindLaunch, "cuGraphLaunch", 10*i+1, 4)
		g.Value = 3
		c := call(format.KindMemcpy, "cuMemcpyHtoD_v2", 10*i+2, 2)
		c.CopyKind, c.Bytes = "HtoD", 1<<20+i
		in := call(format.KindMemcpy, "cuMemcpyHtoDAsync_v2", 10*i+2, 2)
		in.StartNs, in.DurNs, in.ParentStartNs, in.CopyKind, in.Bytes = c.StartNs+1000, 1000, c.StartNs, "HtoD", 1
		call(format.KindSync, "cuStreamSynchronize", 10*i+3, 3).DurNs = Ms
		call(format.KindSync, "cuStreamQuery", 10*i+5, 3)
		call(format.KindAPI, "cuFuncGetAttribute", 10*i+6, 0)
	}
	a := call(format.KindSync, "cuStreamSynchronize", 500, 3)
	a.Flags, a.DurNs = format.FlagAbandoned, Second
	o := call(format.KindSync, "cuEventSynchronize", 59_000, 3)
	o.Flags, o.DurNs = format.FlagOpen, Second
	SetStackAndSite(recording.AddAlloc(Ms, 30*Us, 0x7000, Mib), 0, "")
	return recording
}
