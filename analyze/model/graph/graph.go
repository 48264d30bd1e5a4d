package graph

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// The contents of a graph follow from the calls that built it: captured calls, and calls that added
// nodes. The calls are replayed in the order of their return. record counts kernels in the same
// order. A program must order its captures itself.

// ObjectHandle identifies a stream, event, graph or executable graph of a process.
type ObjectHandle struct {
	Pid    int32
	Handle int64
}

// GraphContents has the versions of each executable graph, in order of time.
type GraphContents map[ObjectHandle][]*GraphVersion

// GraphVersion is the contents of an executable graph until the next version starts.
type GraphVersion struct {
	fromNs int64
	nodes  graphNodes
	Text   string // text that lists the graph's nodes
}

// VersionAt returns the contents of an executable graph at ns (Unix ns). It returns nil if the
// graph's instantiation was not recorded.
func (c GraphContents) VersionAt(pid int32, exec, ns int64) *GraphVersion {
	var found *GraphVersion
	for _, v := range c[ObjectHandle{pid, exec}] {
		if v.fromNs <= ns {
			found = v
		}
	}
	return found
}

// KernelStacks returns the number of kernel nodes by the stack id of the call that added them, such as that of a
// captured launch. It returns false if nodes were changed since, and it is unknown which.
func (v *GraphVersion) KernelStacks() (map[int32]int64, bool) {
	return v.nodes.kernels, !v.nodes.changed
}

// graphStep is a call that builds or changes a graph, or that stream capture added to one.
type graphStep struct {
	atNs                    int64
	name, label             string
	node                    string // type of the node that cuGraphAddNode adds
	pid, stack              int32
	stream, ptr, src, child int64
	captured                bool
}

// Read reconstructs the graphs of a recording. It returns nil if no graph is launched, and errors
// of reading the recording.
func Read(t *timeline.Timeline) (GraphContents, error) {
	var r graphReader
	launched := false
	for _, spans := range [][]timeline.Span{t.Calls, t.Memory} {
		for _, s := range spans {
			launched = r.readGroup(s.Group) || launched
			if err := s.Group.Err(); err != nil {
				return nil, t.WrapReadError(err)
			}
		}
		if !launched {
			return nil, nil // no graph runs, so the contents are not needed
		}
	}
	slices.SortStableFunc(r.steps, func(a, b graphStep) int { return cmp.Compare(a.atNs, b.atNs) })
	m := graphBuilder{
		streams: make(map[ObjectHandle]*graphCapture),
		events:  make(map[ObjectHandle]*graphCapture),
		graphs: make(
			map[ObjectHandle]*graphNodes,
		),
		kernels: make(map[ObjectHandle]kernelNode),
		execs:   make(GraphContents),
	}
	for i := range r.steps {
		m.applyStep(&r.steps[i])
	}
	return m.execs, nil
}

// graphFunctions are the functions that graphBuilder handles.
var graphFunctions = map[string]bool{
	"cuStreamBeginCapture":              true,
	"cuStreamBeginCapture_v2":           true,
	"cuStreamBeginCaptureToGraph":       true,
	"cuStreamEndCapture":                true,
	"cuEventRecord":                     true,
	"cuEventRecordWithFlags":            true,
	"cuStreamWaitEvent":                 true,
	"cuGraphAddKernelNode_v2":           true,
	"cuGraphAddMemcpyNode":              true,
	"cuGraphAddMemsetNode":              true,
	"cuGraphAddMemAllocNode":            true,
	"cuGraphAddMemFreeNode":             true,
	"cuGraphAddChildGraphNode":          true,
	"cuGraphClone":                      true,
	"cuGraphAddKernelNode":              true,
	"cuGraphAddNode":                    true,
	"cuGraphAddNode_v2":                 true,
	"cuGraphAddHostNode":                true,
	"cuGraphDestroyNode":                true,
	"cuGraphKernelNodeSetParams":        true,
	"cuGraphKernelNodeSetParams_v2":     true,
	"cuGraphNodeSetParams":              true,
	"cuGraphExecKernelNodeSetParams":    true,
	"cuGraphExecKernelNodeSetParams_v2": true,
	"cuGraphExecNodeSetParams":          true,
	"cuGraphNodeSetEnabled":             true,
	"cuGraphInstantiate":                true,
	"cuGraphExecUpdate":                 true,
	"cuGraphInstantiate_v2":             true,
	"cuGraphInstantiateWithFlags":       true,
	"cuGraphInstantiateWithParams":      true,
	"cuGraphExecUpdate_v2":              true,
	"cuGraphExecDestroy":                true,
	"cuGraphDestroy":                    true,
}

// graphReader collects the steps of the graphs in a recording.
type graphReader struct {
	steps []graphStep

	name, kernel, copyKind, message format.Strings
	start, dur, stream              []int64
	ptr, src                        []int64
	pid, result, flags, stack       []int32
	value                           []float64
}

// readGroup reads a row group. It reports whether the row group has a graph launch.
func (r *graphReader) readGroup(g *format.Group) (launched bool) {
	r.name, r.flags = g.StringsInto("name", r.name), g.Int32("flags", r.flags)
	known := make([]bool, len(r.name.Dict))
	hasGraphCalls, hasTypedNodes := false, false
	for i, name := range r.name.Dict {
		known[i] = graphFunctions[catalog.BaseFunctionName(name)]
		hasGraphCalls = hasGraphCalls || known[i]
		hasTypedNodes = hasTypedNodes || isTypedNode(catalog.BaseFunctionName(name))
		launched = launched || catalog.BaseFunctionName(name) == "cuGraphLaunch"
	}
	if !hasGraphCalls && !slices.ContainsFunc(r.flags, func(f int32) bool { return f&format.FlagCaptured != 0 }) {
		return launched
	}
	r.start, r.dur, r.stream = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur), g.Int64("stream", r.stream)
	r.ptr, r.src, r.stack = g.Int64("ptr", r.ptr), g.Int64("src_ptr", r.src), g.Int32("stack_id", r.stack)
	r.pid, r.result, r.value = g.Int32("pid", r.pid), g.Int32("result", r.result), g.Float64("value", r.value)
	r.kernel, r.copyKind = g.StringsInto("kernel", r.kernel), g.StringsInto("copy_kind", r.copyKind)
	if hasTypedNodes {
		r.message = g.StringsInto("message", r.message)
	}
	for i, flags := range r.flags {
		captured := flags&format.FlagCaptured != 0
		if !captured && !known[r.name.Index[i]] || flags&(format.FlagOpen|format.FlagAbandoned) != 0 ||
			r.result[i] != 0 {
			continue
		}
		s := graphStep{
			atNs: units.EndOfRange(
				r.start[i],
				r.dur[i],
			),
			name:     catalog.BaseFunctionName(r.name.At(i)),
			pid:      r.pid[i],
			stack:    r.stack[i],
			stream:   r.stream[i],
			ptr:      r.ptr[i],
			src:      r.src[i],
			child:    int64(r.value[i]),
			captured: captured,
		}
		s.label = nodeLabel(s.name, r.kernel.At(i), r.copyKind.At(i))
		if isTypedNode(s.name) {
			s.node = r.message.At(i)
			s.label = typedNodeLabel(s.node, s.label)
		}
		r.steps = append(r.steps, s)
	}
	return launched
}

// nodeLabel returns the label of the node that a call adds.
func nodeLabel(name, kernel, copyKind string) string {
	switch {
	case kernel != "":
		return symbolize.ShortKernel(kernel)
	case strings.HasPrefix(name, "cuMemcpy"):
		return strings.TrimSpace("copy " + copyKind)
	case name == "cuGraphAddMemcpyNode":
		return "copy"
	case strings.HasPrefix(name, "cuMemset"), name == "cuGraphAddMemsetNode":
		return "memset"
	case name == "cuGraphAddMemAllocNode":
		return "cuMemAllocAsync"
	case name == "cuGraphAddMemFreeNode":
		return "cuMemFreeAsync"
	case name == "cuGraphAddHostNode":
		return "cuLaunchHostFunc"
	case strings.HasPrefix(name, "cuGraphAddKernelNode"),
		strings.Contains(name, "KernelNodeSetParams"),
		isKernelLaunch(name):
		return catalog.UnknownKernelName
	}
	return name
}

// isTypedNode reports whether the function adds or changes a node whose type is in the column
// message.
func isTypedNode(name string) bool {
	switch name {
	case "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams":
		return true
	}
	return false
}

// typedNodeLabel returns the label of a node by its type. kernel is the label for kernel nodes.
func typedNodeLabel(node, kernel string) string {
	switch node {
	case "kernel":
		if isTypedNode(kernel) {
			// the row has no kernel, so its label is the name of the function
			return catalog.UnknownKernelName
		}
		return kernel
	case "memcpy":
		return "copy"
	case "memset":
		return "memset"
	case "host":
		return "cuLaunchHostFunc"
	case "mem_alloc":
		return "cuMemAllocAsync"
	case "mem_free":
		return "cuMemFreeAsync"
	}
	return node
}

// graphCapture is a graph under capture. Several streams can take part in one capture.
type graphCapture struct{ nodes graphNodes }

// kernelNode is a graph node that launches a kernel.
type kernelNode struct {
	graph ObjectHandle
	label string
	stack int32
}

// graphBuilder replays the calls that build and change graphs.
type graphBuilder struct {
	streams, events map[ObjectHandle]*graphCapture
	graphs          map[ObjectHandle]*graphNodes
	kernels         map[ObjectHandle]kernelNode // nodes that a call other than stream capture added
	execs           GraphContents
}

func (b *graphBuilder) nodesOfGraph(h ObjectHandle) *graphNodes {
	if b.graphs[h] == nil {
		b.graphs[h] = new(graphNodes)
	}
	return b.graphs[h]
}

func (b *graphBuilder) applyStep(s *graphStep) {
	stream, ptr, src := ObjectHandle{s.pid, s.stream}, ObjectHandle{s.pid, s.ptr}, ObjectHandle{s.pid, s.src}
	switch s.name {
	case "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
		b.streams[stream] = new(graphCapture)
	case "cuStreamEndCapture":
		b.endCapture(stream, ptr)
	case "cuEventRecord", "cuEventRecordWithFlags":
		delete(b.events, ptr)
		if open := b.streams[stream]; open != nil {
			b.events[ptr] = open
		}
	case "cuStreamWaitEvent":
		if open := b.events[ptr]; open != nil {
			b.streams[stream] = open
		}
	case "cuGraphAddKernelNode", "cuGraphAddKernelNode_v2":
		b.addKernelNode(s, ptr, src)
	case "cuGraphAddMemcpyNode",
		"cuGraphAddMemsetNode",
		"cuGraphAddMemAllocNode",
		"cuGraphAddMemFreeNode",
		"cuGraphAddHostNode":
		b.nodesOfGraph(src).addNode(s)
	case "cuGraphAddNode", "cuGraphAddNode_v2":
		b.addTypedNode(s, ptr, src)
	case "cuGraphDestroyNode":
		b.changeKernelNode(ptr, "")
	case "cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2", "cuGraphNodeSetParams":
		if !isTypedNode(s.name) || s.node == "kernel" {
			b.changeKernelNode(ptr, s.label)
		}
	case "cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecNodeSetParams":
		if !isTypedNode(s.name) || s.node == "kernel" {
			b.changeExecutableNode(s, ptr, src)
		}
	case "cuGraphNodeSetEnabled":
		b.changeExecutableNode(s, ptr, ObjectHandle{})
	case "cuGraphAddChildGraphNode":
		b.nodesOfGraph(src).addNodes(b.graphs[ObjectHandle{s.pid, s.child}])
	case "cuGraphClone":
		b.graphs[ptr] = new(graphNodes)
		b.graphs[ptr].addNodes(b.graphs[src])
	case "cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
		"cuGraphExecUpdate", "cuGraphExecUpdate_v2":
		b.addVersion(s.atNs, ptr, b.graphs[src])
	case "cuGraphExecDestroy":
		b.addVersion(s.atNs, ptr, nil)
	case "cuGraphDestroy":
		delete(b.graphs, ptr)
	default:
		if open := b.streams[stream]; s.captured && open != nil {
			open.nodes.addNode(s)
			if isKernelLaunch(s.name) {
				open.nodes.addKernel(s.stack, 1)
			}
		}
	}
}

// isKernelLaunch reports whether a function launches a kernel.
func isKernelLaunch(name string) bool {
	return strings.HasPrefix(name, "cuLaunch") && name != "cuLaunchHostFunc"
}

// addTypedNode adds the node of cuGraphAddNode by its type.
func (b *graphBuilder) addTypedNode(s *graphStep, node, graph ObjectHandle) {
	switch s.node {
	case "graph":
		b.nodesOfGraph(graph).addNodes(b.graphs[ObjectHandle{s.pid, s.child}])
	case "kernel":
		b.addKernelNode(s, node, graph)
	case "empty":
	default:
		b.nodesOfGraph(graph).addNode(s)
	}
}

func (b *graphBuilder) addKernelNode(s *graphStep, node, graph ObjectHandle) {
	b.nodesOfGraph(graph).addNode(s)
	b.nodesOfGraph(graph).addKernel(s.stack, 1)
	b.kernels[node] = kernelNode{graph, s.label, s.stack}
}

// changeKernelNode gives a kernel node another label, or removes the node if label is "". The call
// does not have the graph as an argument. If the node is unknown, every graph of the process counts
// as changed.
func (b *graphBuilder) changeKernelNode(node ObjectHandle, label string) {
	known, ok := b.kernels[node]
	if ok && b.graphs[known.graph] != nil {
		b.graphs[known.graph].replaceNode(known.label, label)
		b.kernels[node] = kernelNode{known.graph, label, known.stack}
		if label == "" {
			b.graphs[known.graph].addKernel(known.stack, -1)
			b.graphs[known.graph].byType.Kernels--
			delete(b.kernels, node)
		}
		return
	}
	for h, nodes := range b.graphs {
		if h.Pid == node.Pid {
			nodes.changed = true
		}
	}
}

// changeExecutableNode adds a version of an executable graph in which one kernel node has changed.
func (b *graphBuilder) changeExecutableNode(s *graphStep, exec, node ObjectHandle) {
	versions := b.execs[exec]
	known, ok := b.kernels[node]
	if len(versions) == 0 || ok && known.label == s.label {
		return
	}
	last := &versions[len(versions)-1].nodes
	if last.changed {
		return
	}
	var nodes graphNodes
	nodes.addNodes(last)
	if ok && nodes.counts[known.label] > 0 {
		nodes.replaceNode(known.label, s.label)
	} else {
		nodes.changed = true
	}
	b.addVersion(s.atNs, exec, &nodes)
}

// endCapture ends the capture that a stream takes part in, for all its streams.
func (b *graphBuilder) endCapture(stream, graph ObjectHandle) {
	open := b.streams[stream]
	if open == nil {
		return
	}
	b.nodesOfGraph(graph).addNodes(&open.nodes)
	for _, in := range []map[ObjectHandle]*graphCapture{b.streams, b.events} {
		for h, other := range in {
			if other == open {
				delete(in, h)
			}
		}
	}
}

// addVersion adds a version of an executable graph that starts at atNs.
func (b *graphBuilder) addVersion(atNs int64, exec ObjectHandle, nodes *graphNodes) {
	v := &GraphVersion{fromNs: atNs}
	v.nodes.addNodes(nodes)
	v.Text = v.nodes.String()
	b.execs[exec] = append(b.execs[exec], v)
}
