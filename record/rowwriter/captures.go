//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/probe"
)

// captures follows stream capture. It distinguishes work that is captured into a graph from work
// that runs, and counts the kernels of each graph. A program synchronizes the calls of one capture,
// so the order of their returns is sufficient. Only the row writer's goroutine uses it.
type captures struct {
	streams map[handle]*capture  // streams in capture mode
	events  map[handle]*capture  // events recorded in a captured stream
	graphs  map[handle]graphSize // sizes of captured and constructed graphs
	execs   map[handle]graphSize // sizes of instantiated graphs
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

// handle identifies a CUDA object by its process and handle.
type handle struct {
	pid uint32
	h   uint64
}

// capture is a graph capture in progress, of one stream or of several that joined the capture.
type capture struct {
	beganNs int64 // begin of the capture on CLOCK_MONOTONIC
	kernels int64
}

func newCaptures(missing *probe.MissingLaunchTimes) *captures {
	return &captures{
		streams: make(map[handle]*capture), events: make(map[handle]*capture),
		graphs: make(map[handle]graphSize), execs: make(map[handle]graphSize), missing: missing,
	}
}

// update updates streams, events and graphs with a successful call. It reports whether the call's
// work was captured into a graph instead of run.
func (c *captures) update(e *bpf.CudaEvent, call *bpf.ProbedFunction) (captured bool) {
	if e.Result != 0 {
		return false
	}
	stream, ptr, src := handle{e.Pid, e.Stream}, handle{e.Pid, e.Ptr}, handle{e.Pid, e.Src}
	switch call.Name {
	case "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
		c.streams[stream] = &capture{beganNs: int64(e.StartNs)}
	case "cuStreamEndCapture":
		c.end(stream, ptr, int64(e.StartNs+e.DurNs))
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
		c.graphs[src] = c.graphs[src].plus(c.graphs[handle{e.Pid, valueOfEvent(e)}])
	case "cuGraphAddNode", "cuGraphAddNode_v2":
		c.graphs[src] = c.graphs[src].plus(c.node(e))
	case "cuGraphDestroyNode":
		c.forgetSizes(e.Pid)
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
	if open := c.streams[stream]; open != nil && isWork(call) {
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

// node returns the kernels that cuGraphAddNode adds to a graph. The body of a conditional node may
// run any number of times: its size is unknown.
func (c *captures) node(e *bpf.CudaEvent) graphSize {
	switch nodeType(e) {
	case nodeKernel:
		return graphSize{kernels: 1}
	case nodeGraph:
		return c.graphs[handle{e.Pid, valueOfEvent(e)}]
	case nodeConditional, -1:
		return graphSize{unknown: true}
	}
	return graphSize{}
}

// forgetSizes marks all graph sizes of a process as unknown. cuGraphDestroyNode removes a node, but
// its arguments do not contain the graph.
func (c *captures) forgetSizes(pid uint32) {
	for h := range c.graphs {
		if h.pid == pid {
			c.graphs[h] = graphSize{unknown: true}
		}
	}
}

// end ends the capture that began on a stream. Streams that joined the capture run their work
// again.
func (c *captures) end(stream, graph handle, endNs int64) {
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

// isWork reports whether a call submits work to a stream.
func isWork(call *bpf.ProbedFunction) bool {
	switch call.Class {
	case bpf.CudaCallClassCLASS_LAUNCH, bpf.CudaCallClassCLASS_COPY:
		return true
	}
	return call.Memory == "async" && call.Kind != format.KindBorrow || call.Name == "cuLaunchHostFunc"
}

// kernels returns the number of kernels in an instantiated graph, 0 if it is unknown.
func (c *captures) kernels(exec handle) int64 {
	if g := c.execs[exec]; !g.unknown {
		return g.kernels
	}
	return 0
}

// forget deletes the streams, events and graphs of exited processes.
func (c *captures) forget(gone map[int32]bool) {
	for _, m := range []map[handle]*capture{c.streams, c.events} {
		maps.DeleteFunc(m, func(h handle, _ *capture) bool { return gone[int32(h.pid)] })
	}
	for _, m := range []map[handle]graphSize{c.graphs, c.execs} {
		maps.DeleteFunc(m, func(h handle, _ graphSize) bool { return gone[int32(h.pid)] })
	}
}
