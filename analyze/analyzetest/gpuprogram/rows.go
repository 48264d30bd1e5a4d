package gpuprogram

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/format"
)

// functions are the driver functions of operations.
var functions = map[activity.Op]struct{ kind, name, copyKind string }{
	activity.OpKernel:       {kind: format.KindLaunch, name: "cuLaunchKernel"},
	activity.OpGraph:        {kind: format.KindLaunch, name: "cuGraphLaunch"},
	activity.OpFill:         {kind: format.KindMemset, name: "cuMemsetD8Async"},
	activity.OpCopyOnDevice: {kind: format.KindMemcpy, name: "cuMemcpyDtoDAsync_v2", copyKind: "DtoD"},
	activity.OpCopyToDevice: {kind: format.KindMemcpy, name: "cuMemcpyHtoDAsync_v2", copyKind: "HtoD"},
	activity.OpCopyToHost:   {kind: format.KindMemcpy, name: "cuMemcpyDtoHAsync_v2", copyKind: "DtoH"},
	activity.OpRecordEvent:  {kind: format.KindAPI, name: "cuEventRecord"},
	activity.OpWaitStream:   {kind: format.KindSync, name: "cuStreamSynchronize"},
	activity.OpWaitContext:  {kind: format.KindSync, name: "cuCtxSynchronize"},
	activity.OpWaitEvent:    {kind: format.KindSync, name: "cuEventSynchronize"},
	activity.OpEndStream:    {kind: format.KindAPI, name: "cuStreamDestroy_v2"},
}

// Record returns a recording with the rows of the program.
func (g *Program) Record(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = g.EndNs
	for i := range g.Calls {
		recording.AddRow(rowOf(&g.Calls[i]))
	}
	g.addProgressRows(recording)
	return recording
}

// addProgressRows adds the channels and the samples of their progress words.
func (g *Program) addProgressRows(recording *analyzetest.TestRecording) {
	for _, s := range g.Samples {
		recording.AddRow(format.Row{
			Kind: format.KindProgress, StartNs: s.SeenNs, Pid: g.Channels[s.Channel-1].Pid, Channel: s.Channel,
			Counter: s.Counter, GPUTimeNs: s.GPUTimeNs, Device: -1,
		})
	}
	for _, c := range g.Channels {
		row := format.Row{
			Kind:    format.KindChannel,
			StartNs: c.FromNs,
			Pid:     c.Pid,
			Channel: c.Number,
			Counter: c.FirstCounter,
			Device:  -1,
		}
		if c.ToNs != activity.UnknownNs {
			row.DurNs = c.ToNs - c.FromNs
		}
		recording.AddRow(row)
	}
}

func rowOf(c *activity.Call) format.Row {
	f := functions[c.Op]
	row := format.Row{
		Kind: f.kind, Name: f.name, CopyKind: f.copyKind, StartNs: c.StartNs, Pid: c.Pid, Tid: c.Tid, Device: c.Device,
		Context: c.Context, Stream: c.Stream, Ptr: c.Event, StackStatus: format.StackNone,
	}
	if c.EndNs == activity.UnknownNs {
		row.Flags = format.FlagNoReturn
	} else {
		row.DurNs = c.EndNs - c.StartNs
	}
	switch c.Op {
	case activity.OpCopyToDevice:
		row.Bytes = [...]int64{activity.OnEngine: 1 << 20, activity.OnStream: 64, activity.AnyPlace: 32 << 10}[c.Place]
	case activity.OpKernel:
		row.Kernel = fmt.Sprintf("kernel%d", c.Label)
		row.GridX, row.GridY, row.GridZ, row.BlockX, row.BlockY, row.BlockZ = 8, 1, 1, 128, 1, 1
	case activity.OpGraph:
		row.Ptr = 0x6000 + int64(c.Label)
	}
	return row
}
