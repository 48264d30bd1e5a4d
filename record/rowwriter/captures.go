//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/probe"
)

// captures follows stream capture, so that work put into a graph is told from work
// that runs, and a graph's launch can say how many kernels it stands for. Calls of a
// capture are ordered by the program that makes them, so the order in which they
// returned is enough. Only the row writer uses it.
type captures struct {
	streams map[handle]*capture  // streams in capture mode
	events  map[handle]*capture  // events recorded in a captured stream
	graphs  map[handle]graphSize // of what was captured or added
	execs   map[handle]graphSize // of instantiated graphs
	missing *probe.MissingTimes
}

// graphSize is how many kernels a graph holds. It is not known if some of its launches may
// have been captured while launches were not recorded.
type graphSize struct {
	kernels int64
	unknown bool
}

func (g graphSize) plus(o graphSize) graphSize {
	return graphSize{g.kernels + o.kernels, g.unknown || o.unknown}
}

// handle is a CUDA handle of a process.
type handle struct {
	pid uint32
	h   uint64
}

// capture is one graph being captured, by one stream or several that it forked to.
type capture struct {
	origin  handle
	beganNs int64 // CLOCK_MONOTONIC
	kernels int64
}

func newCaptures(missing *probe.MissingTimes) *captures {
	return &captures{
		streams: make(map[handle]*capture), events: make(map[handle]*capture),
		graphs: make(map[handle]graphSize), execs: make(map[handle]graphSize), missing: missing,
	}
}

// note takes a successful call into account and reports whether it was captured
// instead of run.
func (c *captures) note(e *bpf.CudaEvent, call *bpf.Call) (captured bool) {
	if e.Result != 0 {
		return false
	}
	stream, ptr, src := handle{e.Pid, e.Stream}, handle{e.Pid, e.Ptr}, handle{e.Pid, e.Src}
	switch call.Name {
	case "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
		c.streams[stream] = &capture{origin: stream, beganNs: int64(e.StartNs)}
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
		switch call.Meaning {
		case bpf.Launch:
			open.kernels++
		case bpf.LaunchList:
			open.kernels += int64(e.Bytes)
		}
		return true
	}
	return false
}

// node returns what a node of cuGraphAddNode adds to its graph. How often the body of a
// conditional node runs is not known.
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

// forgetSizes marks all graphs of a process as unknown: one of them lost a node, and the
// call does not say which.
func (c *captures) forgetSizes(pid uint32) {
	for h := range c.graphs {
		if h.pid == pid {
			c.graphs[h] = graphSize{unknown: true}
		}
	}
}

// end closes the capture that began on a stream; streams that it forked to are
// ordinary again, too.
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

// isWork reports whether a call puts work into a stream.
func isWork(call *bpf.Call) bool {
	switch call.Class {
	case bpf.CudaCallClassCLASS_LAUNCH, bpf.CudaCallClassCLASS_COPY:
		return true
	}
	return call.Memory == "async" && call.Kind != format.KindBorrow || call.Name == "cuLaunchHostFunc"
}

// kernels returns how many kernels an instantiated graph holds, as far as its making
// was seen; 0 if it is not known.
func (c *captures) kernels(exec handle) int64 {
	if g := c.execs[exec]; !g.unknown {
		return g.kernels
	}
	return 0
}

// forget drops what is known of processes that are gone.
func (c *captures) forget(gone map[int32]bool) {
	for _, m := range []map[handle]*capture{c.streams, c.events} {
		maps.DeleteFunc(m, func(h handle, _ *capture) bool { return gone[int32(h.pid)] })
	}
	for _, m := range []map[handle]graphSize{c.graphs, c.execs} {
		maps.DeleteFunc(m, func(h handle, _ graphSize) bool { return gone[int32(h.pid)] })
	}
}
