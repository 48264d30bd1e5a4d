package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// AddWorkingThread adds a thread that calls a function every 100 ms.
func (recording *TestRecording) AddWorkingThread(pid, tid int32, from, to int64, kind, name string) {
	for at := from; at < to; at += 100 * Ms {
		r := recording.AddCall(kind, name, at, Us)
		r.Pid, r.Tid, r.Stream, r.Context = pid, tid, 7, 0xc1
		if kind == format.KindLaunch {
			r.Kernel, r.GridX, r.GridY, r.GridZ, r.BlockX, r.BlockY, r.BlockZ = "gemm<float>(int)", 64, 1, 1, 256, 1, 1
		}
	}
}

// AddOpenCall adds a call that has not returned at the end of the recording.
func (recording *TestRecording) AddOpenCall(pid, tid int32, at int64, kind, name string) *format.Row {
	r := recording.AddCall(kind, name, at, 60*Second-at)
	r.Pid, r.Tid, r.Stream, r.Context, r.Flags = pid, tid, 7, 0xc1, format.FlagOpen
	return r
}

// AddEventQueryCount adds a row that counts calls of cuEventQuery, which were counted but not
// recorded one by one.
func (recording *TestRecording) AddEventQueryCount(at, dur int64, value float64) {
	recording.AddRow(
		format.Row{
			Kind:    format.KindCount,
			Name:    "cuEventQuery",
			StartNs: Epoch + at,
			DurNs:   dur,
			Value:   value,
			Device:  -1,
		},
	)
}

// FourRanksRecording returns a recording of a training with four ranks. One rank takes another path
// and never reaches the collective.
func FourRanksRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: Epoch})
	recording.AddStack(1, "all_reduce", "train_step", "main", "_start")
	for pid := int32(42); pid < 46; pid++ {
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    "train",
				Pid:     pid,
				StartNs: Epoch,
				Device:  -1,
				Message: `{"exe":"/app/train"}`,
			},
		)
		recording.AddRow(
			format.Row{Kind: format.KindThread, Name: "main", Pid: pid, Tid: pid, StartNs: Epoch, Device: -1},
		)
		end := 40 * Second
		if pid == 44 {
			end = 38 * Second
		}
		recording.AddWorkingThread(pid, pid, int64(pid-42)*Ms, end, format.KindLaunch, "cuLaunchKernel")
		if pid == 44 {
			continue
		}
		l := recording.AddCall(format.KindLaunch, "cuLaunchKernelEx", end, Us)
		l.Pid, l.Tid, l.Stream, l.Context, l.Kernel = pid, pid, 9, 0xc1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
		e := recording.AddCall(format.KindAPI, "cuEventRecord", end+Ms, Us)
		e.Pid, e.Tid, e.Stream, e.Context, e.Ptr = pid, pid, 9, 0xc1, 0xe1
		w := SetStackAndSite(
			recording.AddOpenCall(pid, pid, end+2*Ms, format.KindSync, "cuEventSynchronize"),
			1,
			"all_reduce (train.cc:10)",
		)
		w.Ptr, w.Stream = 0xe1, 0
	}
	recording.AddCall(format.KindSync, "cuStreamSynchronize", 5*Second, 2*Second)
	for i := range int64(60) {
		recording.AddNVMLSample(0, i*Second, catalog.MetricGPUUtilization, 100)
		recording.AddNVMLSample(0, i*Second, catalog.MetricSMActive, 3)
	}
	recording.AddXid(
		37*Second,
		0,
		44,
		31,
		format.XidFact{Process: "train", Text: "MMU Fault", Sources: []string{"kmsg"}},
	)
	recording.AddEventQueryCount(0, 60*Second, 600)
	return recording
}
