package graphs

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// capture is a stream capture that ended with a graph.
type capture struct {
	pid, tid     int32 // thread that began the capture
	site         int32 // call site that began it
	fromNs, toNs int64 // Unix ns
	bytes        int64 // driver memory that the thread allocated in between
}

// execution is an executable graph, from its instantiation to the next one with the same handle.
type execution struct {
	pid, device int32
	handle      int64
	createdNs   int64    // end of the instantiation, Unix ns; 0: it is not in the recording
	site        int32    // call site of the instantiation
	capture     *capture // nil if the graph was not captured, or its capture is not in the recording
	launchStats
}

// step is the effect of a call that captures, copies, destroys or instantiates a graph.
type step struct {
	startNs, atNs    int64 // start and end of the call, Unix ns
	function         string
	pid, tid, device int32
	site             int32
	stream, ptr, src int64
}

// functions are the functions that have a step.
var functions = map[string]bool{
	"cuStreamBeginCapture": true, "cuStreamBeginCapture_v2": true, "cuStreamBeginCaptureToGraph": true,
	"cuStreamEndCapture": true, "cuGraphClone": true, "cuGraphDestroy": true,
	"cuGraphInstantiate": true, "cuGraphInstantiate_v2": true, "cuGraphInstantiateWithFlags": true,
	"cuGraphInstantiateWithParams": true,
}

// creation finds the executable graphs of a recording, and the captures that they come from. The zero value
// with sites is ready.
type creation struct {
	t     *timeline.Timeline
	sites *calls.CallSiteReader

	captures   []*capture
	executions map[graph.ObjectHandle][]*execution // by handle, in order of time
}

// read reads the recording. It returns errors of reading it.
func (c *creation) read() error {
	var steps []step
	groups := slices.Concat(c.t.Calls, c.t.Memory)
	for i := range groups {
		steps = c.appendSteps(steps, groups[i].Group)
		if err := groups[i].Group.Err(); err != nil {
			return c.t.WrapReadError(err)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.atNs, b.atNs) })
	c.apply(steps)
	return c.readMemory()
}

// appendSteps appends the steps of a row group.
func (c *creation) appendSteps(steps []step, g *format.Group) []step {
	name := g.StringsInto("name", format.Strings{})
	known := make([]bool, len(name.Dict))
	for i, n := range name.Dict {
		known[i] = functions[catalog.BaseFunctionName(n)]
	}
	if !slices.Contains(known, true) {
		return steps
	}
	start, dur, stream := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Int64("stream", nil)
	ptr, src, context := g.Int64("ptr", nil), g.Int64("src_ptr", nil), g.Int64("context", nil)
	pid, tid, device := g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("device", nil)
	result, flags := g.Int32("result", nil), g.Int32("flags", nil)
	c.sites.ReadGroup(g)
	if g.Err() != nil {
		return steps
	}
	for i := range start {
		if !known[name.Index[i]] || result[i] != 0 || flags[i]&timeline.NoResultFlags != 0 {
			continue
		}
		steps = append(steps, step{
			startNs: start[i], atNs: units.EndOfRange(start[i], dur[i]),
			function: catalog.BaseFunctionName(name.At(i)),
			pid:      pid[i], tid: tid[i], device: c.t.DeviceOfCall(pid[i], context[i], device[i]),
			site: c.sites.SiteOfRow(i), stream: stream[i], ptr: ptr[i], src: src[i],
		})
	}
	return steps
}

// apply follows graphs from their capture to their instantiation. steps are in the order of time.
func (c *creation) apply(steps []step) {
	c.executions = make(map[graph.ObjectHandle][]*execution)
	open := make(map[graph.ObjectHandle]*capture)   // by stream
	graphs := make(map[graph.ObjectHandle]*capture) // by graph
	for i := range steps {
		s := &steps[i]
		stream := graph.ObjectHandle{Pid: s.pid, Handle: s.stream}
		ptr, src := graph.ObjectHandle{Pid: s.pid, Handle: s.ptr}, graph.ObjectHandle{Pid: s.pid, Handle: s.src}
		switch s.function {
		case "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
			open[stream] = &capture{pid: s.pid, tid: s.tid, site: s.site, fromNs: s.atNs}
		case "cuStreamEndCapture":
			if ended := open[stream]; ended != nil {
				ended.toNs = s.startNs
				c.captures = append(c.captures, ended)
				graphs[ptr] = ended
				delete(open, stream)
			}
		case "cuGraphClone":
			graphs[ptr] = graphs[src]
		case "cuGraphDestroy":
			delete(graphs, ptr)
		default:
			c.executions[ptr] = append(c.executions[ptr], &execution{
				pid: s.pid, device: s.device, handle: s.ptr, createdNs: s.atNs, site: s.site, capture: graphs[src],
			})
		}
	}
}

// executionAt returns the executable graph with a handle at a time, Unix ns. If its instantiation is not in the
// recording, executionAt adds one.
func (c *creation) executionAt(pid, device int32, handle, ns int64) *execution {
	key := graph.ObjectHandle{Pid: pid, Handle: handle}
	list := c.executions[key]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].createdNs <= ns {
			return list[i]
		}
	}
	earlier := &execution{pid: pid, device: device, handle: handle, site: -1}
	c.executions[key] = slices.Insert(list, 0, earlier)
	return earlier
}

// readMemory adds the driver memory that threads allocated during their captures.
func (c *creation) readMemory() error {
	if len(c.captures) == 0 {
		return nil
	}
	firstNs, lastNs := int64(math.MaxInt64), int64(0)
	byThread := make(map[[2]int32][]*capture) // by pid and tid
	for _, of := range c.captures {
		firstNs, lastNs = min(firstNs, of.fromNs), max(lastNs, of.toNs)
		thread := [2]int32{of.pid, of.tid}
		byThread[thread] = append(byThread[thread], of)
	}
	for i := range c.t.Memory {
		s := &c.t.Memory[i]
		if s.FirstNs > lastNs {
			continue
		}
		addMemory(s.Group, byThread, firstNs, lastNs)
		if err := s.Group.Err(); err != nil {
			return c.t.WrapReadError(err)
		}
	}
	return nil
}

// isOnGPU has the kinds of memory that count as memory of a capture.
var isOnGPU = map[string]bool{
	format.MemoryDevice: true, format.MemoryAsync: true, format.MemoryManaged: true, format.MemoryArray: true,
	format.MemoryPhysical: true,
}

// addMemory adds the allocations of a row group between firstNs and lastNs to the captures of their threads.
func addMemory(g *format.Group, byThread map[[2]int32][]*capture, firstNs, lastNs int64) {
	kind, memory := g.StringsInto("kind", format.Strings{}), g.StringsInto("memory_kind", format.Strings{})
	start, bytes := g.Int64("start_ns", nil), g.Int64("bytes", nil)
	pid, tid := g.Int32("pid", nil), g.Int32("tid", nil)
	result, flags := g.Int32("result", nil), g.Int32("flags", nil)
	if g.Err() != nil {
		return
	}
	for i, ns := range start {
		if ns < firstNs || ns > lastNs || kind.At(i) != format.KindAlloc || !isOnGPU[memory.At(i)] || result[i] != 0 ||
			flags[i]&timeline.NoResultFlags != 0 {
			continue
		}
		for _, of := range byThread[[2]int32{pid[i], tid[i]}] {
			if of.fromNs <= ns && ns <= of.toNs {
				of.bytes = units.EndOfRange(of.bytes, bytes[i])
			}
		}
	}
}
