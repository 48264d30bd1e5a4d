package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// GraphExecBytes is the device memory of an executable graph in ObjectRecording.
const GraphExecBytes = int64(700 << 10)

// ObjectRecording returns a recording of a server that keeps an executable graph for each shape of its
// requests, and gets a new shape five times a second. It destroys its graphs and events, and keeps a
// pool of streams. NVML's samples contain the memory of the executable graphs, which the driver takes in
// pieces of 2 MiB.
func ObjectRecording(t testing.TB) *TestRecording {
	const context = int64(0xc1)
	recording := NewTestRecording(t)
	recording.AddTwoGPUs()
	for id, function := range []string{"capture_shape", "serve_request", "make_streams", "load_weights"} {
		recording.AddStack(int32(id+1), function, "main", "_start")
	}
	call := func(name string, at, ptr int64, stack int32, site string) *format.Row {
		row := SetContext(recording.AddCall(format.KindAPI, name, at, 20*Us), context, 0)
		row.Ptr = ptr
		return SetStackAndSite(row, stack, site+" (serve.cc:10)")
	}
	SetContext(recording.AddCall(format.KindAPI, "cuDevicePrimaryCtxRetain", 100*Ms, 300*Ms), 0, 0).Ptr = context
	weights := SetContext(recording.AddAlloc(500*Ms, Ms, 0x7f0000000000, 4096*Mib), context, 0)
	SetStackAndSite(weights, 4, "load_weights (serve.cc:10)")
	call("cuModuleLoadData", 600*Ms, 0x9000, 4, "load_weights")
	for i := range int64(8) {
		call("cuStreamCreateWithPriority", 700*Ms+i*Ms, 0xa000+i*0x100, 3, "make_streams")
	}
	graphs, nextSample := int64(0), Second
	for i, at := int64(0), 2*Second; at < 59*Second; i, at = i+1, at+50*Ms {
		for ; nextSample < at; nextSample += Second {
			recording.addProcessMemory(nextSample, graphs)
		}
		event := 0xb000 + i%4*0x100
		call("cuEventCreate", at, event, 2, "serve_request")
		SetContext(recording.AddLaunch(at+Ms, 8*Us, "forward<float>(int)", 0xa000, 2), context, 0)
		call("cuEventDestroy_v2", at+9*Ms, event, 2, "serve_request")
		if i%4 > 0 {
			continue
		}
		graphs++
		graph := 0xd000 + i%16*0x100
		call("cuStreamBeginCapture_v2", at+20*Ms, 0, 1, "capture_shape").Stream = 0xa100
		call("cuStreamEndCapture", at+22*Ms, graph, 1, "capture_shape").Stream = 0xa100
		call("cuGraphInstantiateWithFlags", at+23*Ms, 0x100000+graphs*0x1000, 1, "capture_shape").SrcPtr = graph
		call("cuGraphDestroy", at+25*Ms, graph, 1, "capture_shape")
	}
	for ; nextSample < 60*Second; nextSample += Second {
		recording.addProcessMemory(nextSample, graphs)
	}
	return recording
}

// addProcessMemory adds a sample of the process's memory in ObjectRecording: the context and code, the
// weights, and executable graphs.
func (recording *TestRecording) addProcessMemory(at, graphs int64) {
	const granule = 2 * Mib
	used := 550*Mib + 4096*Mib + (graphs*GraphExecBytes+granule-1)/granule*granule
	recording.AddNVMLSample(1, at, catalog.MetricProcessMemory, float64(used)).Pid = 42
	recording.AddNVMLSample(1, at, catalog.MetricMemoryUsed, float64(used+300*Mib))
	recording.AddNVMLSample(1, at, catalog.MetricMemoryTotal, 140<<30)
}
