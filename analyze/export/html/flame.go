package html

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// flameMetrics are the metrics that the width of frames can show. The reader of the page chooses
// one.
var flameMetrics = []flameMetric{
	{"memory live at the peak", "bytes"},
	{"memory live at the end", "bytes"},
	{"memory allocated", "bytes"},
	{"allocations", "count"},
	{"time in CUDA calls, on the CPU", "ns"},
	{"CUDA calls", "count"},
	{"time of kernels and graphs on the GPU, estimated", "ns"},
	{"time of threads on a processor, estimated from samples", "ns"},
	{"time of threads in waits", "ns"},
}

// countFlameMetrics returns the number of metrics that a recording can have: the last two need class host.
func countFlameMetrics(t *timeline.Timeline) int {
	if hosttime.HasTimes(t) {
		return numFlameMetrics
	}
	return flameOnCPUNs
}

// flameMetric is the name of a metric, and its unit as in web/src/text.js.
type flameMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// Indexes into flameMetrics and flameValues.
const (
	flamePeakBytes = iota
	flameEndBytes
	flameAllocatedBytes
	flameAllocations
	flameCallTimeNs
	flameCallCount
	flameGPUTimeNs
	flameOnCPUNs
	flameOffCPUNs
	numFlameMetrics
)

// flameValues has one value for each of flameMetrics.
type flameValues [numFlameMetrics]int64

// flameNode is a frame of the flame graph. Its values include those of its callees.
type flameNode struct {
	name     int32 // number of the name in textTable
	kind     int8  // frameKindNative, frameKindPython or frameKindOther
	values   flameValues
	children map[int32]*flameNode // callees by name
}

// flameScan sums up device and host memory by origin.
type flameScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window

	now       []liveMemory // live memory at present, by origin
	allocated []liveMemory // memory allocated in the window, by origin
	total     int64        // live bytes at present
	peak      memoryExtreme
}

func newFlameScan(t *timeline.Timeline, f *query.Filter) *flameScan {
	return &flameScan{t: t, filter: f, window: f.NarrowWindow(t.RecordingWindow())}
}

// consumeChange follows one change of the program's memory.
func (s *flameScan) consumeChange(_ *timeline.ProgramMemory, c *livemem.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	if c.Kind == livemem.ChangeAllocFailed || c.AtNs > s.window.ToNs || c.Block.Bytes < s.filter.MinBytes ||
		!s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	id := c.Block.Origin
	s.now, s.allocated = units.GrowToIndex(s.now, id), units.GrowToIndex(s.allocated, id)
	s.peak.markGroupChanged(id)
	if c.Kind != livemem.ChangeAllocated {
		s.now[id].bytes -= c.Block.Bytes
		s.now[id].blocks--
		s.total -= c.Block.Bytes
	} else {
		s.now[id].bytes += c.Block.Bytes
		s.now[id].blocks++
		s.total += c.Block.Bytes
		if c.AtNs >= s.window.FromNs && !c.Block.IsEarlier() {
			s.allocated[id].bytes += c.Block.Bytes
			s.allocated[id].blocks++
		}
	}
	if c.AtNs >= s.window.FromNs && s.total > s.peak.total {
		s.peak.setState(c.AtNs, s.total, s.now)
	}
}

// flameBuilder builds the tree of a flame graph from stacks.
type flameBuilder struct {
	t     *timeline.Timeline
	rules *query.FrameRules
	texts *textTable
	root  *flameNode
	paths map[stack.Pair][]*flameNode // nodes from the root to the leaf
	drawn map[int32]drawnFrame        // cached results of lookUpFrame, by frame id
	// metrics is the number of metrics that the recording can have.
	metrics int
}

// drawnFrame is the name and kind of a frame, or the fact that the frame rules hide it.
type drawnFrame struct {
	name   int32
	kind   int8
	hidden bool
}

// lookUpFrame returns a frame as it is drawn. It caches the result, because frame rules are slow.
func (b *flameBuilder) lookUpFrame(id int32) drawnFrame {
	d, ok := b.drawn[id]
	if !ok {
		f := &b.t.Stacks.Frames[id]
		if _, d.hidden = b.rules.HidesFrame(f); !d.hidden {
			d.name, d.kind = b.texts.addText(flameFrameName(f)), flameFrameKind(f)
		}
		b.drawn[id] = d
	}
	return d
}

// Kinds of frames of the flame graph. The colour of a frame depends on its kind.
const (
	frameKindNative = iota
	frameKindPython
	frameKindOther
)

// maxFlameDepth is the largest number of drawn frames of a stack, counted from its root.
const maxFlameDepth = 120

// addStack adds the values of a call stack to all of its frames in the flame graph.
func (b *flameBuilder) addStack(of stack.Pair, v *flameValues) {
	nodes, ok := b.paths[of]
	if !ok {
		nodes = b.makeStackNodes(of)
		b.paths[of] = nodes
	}
	b.addNodes(nodes, v)
}

// addNodes adds the values to nodes.
func (b *flameBuilder) addNodes(nodes []*flameNode, v *flameValues) {
	for _, n := range nodes {
		for i := range v {
			n.values[i] += v[i]
		}
	}
}

// makeStackNodes returns the nodes of a stack, from the root of the tree to the leaf. It creates
// missing nodes.
func (b *flameBuilder) makeStackNodes(of stack.Pair) []*flameNode {
	nodes := []*flameNode{b.root}
	at := b.root
	child := func(name int32, kind int8) {
		at = b.childOf(at, name, kind)
		nodes = append(nodes, at)
	}
	for _, id := range slices.Backward(b.t.Stacks.FramesOfPair(of)) {
		if d := b.lookUpFrame(id); !d.hidden && len(nodes) <= maxFlameDepth {
			child(d.name, d.kind)
		}
	}
	if len(nodes) == 1 {
		child(b.texts.addText(cmp.Or(b.hiddenLeafName(of.Stack), timeline.NoStackSite)), frameKindOther)
	}
	return nodes
}

// childOf returns the callee of a node with a name. It creates a missing one.
func (b *flameBuilder) childOf(n *flameNode, name int32, kind int8) *flameNode {
	next := n.children[name]
	if next == nil {
		next = &flameNode{name: name, kind: kind}
		if n.children == nil {
			n.children = make(map[int32]*flameNode)
		}
		n.children[name] = next
	}
	return next
}

// hiddenLeafName returns the name of the leaf of a stack whose frames are all hidden; "" for a
// stack without frames.
func (b *flameBuilder) hiddenLeafName(stack int32) string {
	if ids := b.t.Stacks.Stacks[stack]; len(ids) > 0 {
		return flameFrameName(&b.t.Stacks.Frames[ids[0]])
	}
	return ""
}

// flameFrameName returns the function of a frame, with its source line if known.
func flameFrameName(f *format.Frame) string {
	name := query.FrameName(f)
	if f.File != "" && f.Line > 0 {
		return fmt.Sprintf("%s (%s:%d)", name, path.Base(f.File), f.Line)
	}
	return name
}

// flameFrameKind returns whether a frame is Python code, native code, or of the kernel.
func flameFrameKind(f *format.Frame) int8 {
	switch f.Type {
	case query.FrameTypePython:
		return frameKindPython
	case format.FrameKernel:
		return frameKindOther
	}
	return frameKindNative
}

// flameNodeJSON is a node of the tree in JSON. Its keys are short because there are thousands of
// nodes.
type flameNodeJSON struct {
	Name     int32           `json:"n"`
	Kind     int8            `json:"k"`
	Values   []int64         `json:"v"`
	Children []flameNodeJSON `json:"c,omitempty"`
}

// maxFlameNodes is the largest number of nodes of the flame graph in the page.
const maxFlameNodes = 3000

// buildTree returns the flame graph without very small frames. least is the smallest share of a
// metric, from 0 to 1, that a remaining frame has.
func (b *flameBuilder) buildTree() (tree flameNodeJSON, least float64) {
	for least = 0.0005; b.countVisibleNodes(b.root, least) > maxFlameNodes; least *= 2 {
	}
	return b.encodeSubtree(b.root, least), least
}

// isNodeVisible reports whether a node has at least the share least of any metric.
func (b *flameBuilder) isNodeVisible(n *flameNode, least float64) bool {
	for i, v := range n.values {
		if v > 0 && float64(v) >= least*float64(b.root.values[i]) {
			return true
		}
	}
	return false
}

// countVisibleNodes returns the number of visible nodes of a subtree.
func (b *flameBuilder) countVisibleNodes(n *flameNode, least float64) int {
	if !b.isNodeVisible(n, least) {
		return 0
	}
	sum := 1
	for _, c := range n.children {
		sum += b.countVisibleNodes(c, least)
	}
	return sum
}

// encodeSubtree returns the visible nodes of a subtree, the largest callees first.
func (b *flameBuilder) encodeSubtree(n *flameNode, least float64) flameNodeJSON {
	j := flameNodeJSON{Name: n.name, Kind: n.kind, Values: n.values[:b.metrics]}
	for _, c := range n.children {
		if b.isNodeVisible(c, least) {
			j.Children = append(j.Children, b.encodeSubtree(c, least))
		}
	}
	slices.SortFunc(j.Children, func(x, y flameNodeJSON) int {
		for i := range x.Values {
			if c := cmp.Compare(y.Values[i], x.Values[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(b.texts.List[x.Name], b.texts.List[y.Name])
	})
	return j
}

// newFlameTree returns the flame graph of memory, calls, GPU times and times of threads, and the smallest
// share that a frame of it has.
func newFlameTree(
	t *timeline.Timeline,
	memory *flameScan,
	calls *callsOverTime,
	gpu *gpuFlame,
	host *hostFlame,
	rules *query.FrameRules,
	texts *textTable,
) (flameNodeJSON, float64) {
	b := &flameBuilder{
		t:     t,
		rules: rules,
		texts: texts,
		root:  &flameNode{name: texts.addText("everything"), kind: frameKindOther},
		paths: make(map[stack.Pair][]*flameNode),
		drawn: make(map[int32]drawnFrame),

		metrics: countFlameMetrics(t),
	}
	for id := range memory.allocated {
		v := flameValues{
			flameEndBytes:       memory.now[id].bytes,
			flameAllocatedBytes: memory.allocated[id].bytes,
			flameAllocations:    memory.allocated[id].blocks,
		}
		if id < len(memory.peak.live) {
			v[flamePeakBytes] = memory.peak.live[id].bytes
		}
		if t.Origins.IsEarlier(int32(id)) || t.Origins.IsUnseen(int32(id)) {
			site := texts.addText(t.Origins.SiteOf(int32(id)))
			b.addNodes([]*flameNode{b.root, b.childOf(b.root, site, frameKindOther)}, &v)
			continue
		}
		b.addStack(stack.Pair{Stack: t.Origins.List[id].Stack, Via: t.Origins.List[id].Via}, &v)
	}
	// Sorted, so that the texts have the same numbers each time.
	for _, id := range slices.Sorted(maps.Keys(calls.byStack)) {
		s := calls.byStack[id]
		b.addStack(stack.Pair{Stack: id}, &flameValues{flameCallTimeNs: s.hostNs, flameCallCount: s.calls})
	}
	gpu.addTo(b)
	host.addTo(b)
	return b.buildTree()
}
