//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/probe"
)

// captureTracker follows stream capture. It distinguishes work that is captured into a graph from
// work that runs, and counts the kernels of each graph. A program synchronizes the calls of one
// capture, so the order of their returns is sufficient. Only the row writer's goroutine uses it.
type captureTracker struct {
	streams map[objectHandle]*streamCapture // streams in capture mode
	events  map[objectHandle]*streamCapture // events recorded in a captured stream
	graphs  map[objectHandle]graphSize      // sizes of captured and constructed graphs
	execs   map[objectHandle]graphSize      // sizes of instantiated graphs
	missing *probe.MissingLaunchTimes
}

// graphSize is the number of kernel nodes of a graph. unknown is set if the number is unreliable,
// for example because launches were not recorded during the capture.
type graphSize struct {
	kernels int64
	unknown bool
}

func (g graphSize) plus(o graphSize) graphSize {
	return graphSize{g.kernels + o.kernels, g.unknown || o.unknown}
}

// objectHandle identifies a CUDA object by its process and handle.
type objectHandle struct {
	pid uint32
	h   uint64
}

// streamCapture is a graph capture in progress, of one stream or of several that joined the
// capture.
type streamCapture struct {
	beganNs int64 // begin of the capture on CLOCK_MONOTONIC
	kernels int64
}

func newCaptureTracker(missing *probe.MissingLaunchTimes) *captureTracker {
	return &captureTracker{
		streams: make(map[objectHandle]*streamCapture), events: make(map[objectHandle]*streamCapture),
		graphs: make(map[objectHandle]graphSize), execs: make(map[objectHandle]graphSize), missing: missing,
	}
}

// applyCall updates streams, events and graphs with a successful call. It reports whether the
// call's work was captured into a graph instead of run.
func (c *captureTracker) applyCall(e *bpf.CudaEvent, call *bpf.ProbedFunction) (captured bool) {
	if e.Result != 0 {
		return false
	}
	stream, ptr, src := objectHandle{e.Pid, e.Stream}, objectHandle{e.Pid, e.Ptr}, objectHandle{e.Pid, e.Src}
	switch call.Name {
	case "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
		c.streams[stream] = &streamCapture{beganNs: int64(e.StartNs)}
	case "cuStreamEndCapture":
		c.endCapture(stream, ptr, int64(e.StartNs+e.DurNs))
	case "cuEventRecord", "cuEventRecordWithFlags":
		delete(c.events, ptr)
		if open := c.streams[stream]; open != nil {
			c.events[ptr] = open
		}
	case "cuStreamWaitEvent":
		if open := c.events[ptr]; open != nil {
			c.streams[stream] = open
		}
	case "cuGraphAddKernelNode", "cuGraphAddKernelNode_v2":
		c.graphs[src] = c.graphs[src].plus(graphSize{kernels: 1})
	case "cuGraphAddChildGraphNode":
		c.graphs[src] = c.graphs[src].plus(c.graphs[objectHandle{e.Pid, readEventValue(e)}])
	case "cuGraphAddNode", "cuGraphAddNode_v2":
		c.graphs[src] = c.graphs[src].plus(c.sizeOfNode(e))
	case "cuGraphDestroyNode":
		c.forgetGraphSizes(e.Pid)
	case "cuGraphNodeSetEnabled":
		c.execs[ptr] = graphSize{unknown: true}
	case "cuGraphClone":
		c.graphs[ptr] = c.graphs[src]
	case "cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
		"cuGraphExecUpdate", "cuGraphExecUpdate_v2":
		c.execs[ptr] = c.graphs[src]
	case "cuGraphExecDestroy":
		delete(c.execs, ptr)
	case "cuGraphDestroy":
		delete(c.graphs, ptr)
	}
	if open := c.streams[stream]; open != nil && submitsWork(call) {
		switch call.Columns {
		case bpf.ColumnsLaunch:
			open.kernels++
		case bpf.ColumnsLaunchList:
			open.kernels += int64(e.Bytes)
		}
		return true
	}
	return false
}

// sizeOfNode returns the kernels that cuGraphAddNode adds to a graph. The body of a conditional
// node may run any number of times: its size is unknown.
func (c *captureTracker) sizeOfNode(e *bpf.CudaEvent) graphSize {
	switch readGraphNodeType(e) {
	case graphNodeKernel:
		return graphSize{kernels: 1}
	case graphNodeGraph:
		return c.graphs[objectHandle{e.Pid, readEventValue(e)}]
	case graphNodeConditional, -1:
		return graphSize{unknown: true}
	}
	return graphSize{}
}

// forgetGraphSizes marks all graph sizes of a process as unknown. cuGraphDestroyNode removes a
// node, but its arguments do not contain the graph.
func (c *captureTracker) forgetGraphSizes(pid uint32) {
	for h := range c.graphs {
		if h.pid == pid {
			c.graphs[h] = graphSize{unknown: true}
		}
	}
}

// endCapture ends the stream capture that began on a stream. Streams that joined the capture run
// their work again.
func (c *captureTracker) endCapture(stream, graph objectHandle, endNs int64) {
	open := c.streams[stream]
	if open == nil {
		return
	}
	c.graphs[graph] = c.graphs[graph].plus(graphSize{open.kernels, c.missing.Overlaps(open.beganNs, endNs)})
	for s, other := range c.streams {
		if other == open {
			delete(c.streams, s)
		}
	}
	for e, other := range c.events {
		if other == open {
			delete(c.events, e)
		}
	}
}

// submitsWork reports whether a call submits work to a stream.
func submitsWork(call *bpf.ProbedFunction) bool {
	switch call.Class {
	case bpf.CudaCallClassCLASS_LAUNCH, bpf.CudaCallClassCLASS_COPY:
		return true
	}
	return call.Memory == "async" && call.Kind != format.KindBorrow || call.Name == "cuLaunchHostFunc"
}

// countGraphKernels returns the number of kernels in an instantiated graph, 0 if it is unknown.
func (c *captureTracker) countGraphKernels(exec objectHandle) int64 {
	if g := c.execs[exec]; !g.unknown {
		return g.kernels
	}
	return 0
}

// forgetProcesses deletes the streams, events and graphs of exited processes.
func (c *captureTracker) forgetProcesses(gone map[int32]bool) {
	for _, m := range []map[objectHandle]*streamCapture{c.streams, c.events} {
		maps.DeleteFunc(m, func(h objectHandle, _ *streamCapture) bool { return gone[int32(h.pid)] })
	}
	for _, m := range []map[objectHandle]graphSize{c.graphs, c.execs} {
		maps.DeleteFunc(m, func(h objectHandle, _ graphSize) bool { return gone[int32(h.pid)] })
	}
}
