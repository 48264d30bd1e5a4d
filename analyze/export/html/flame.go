package html

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
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
}

// flameMetric is the name of a metric, and its unit as in web/src/text.js.
type flameMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// Indexes into flameMetrics and flameValues.
const (
	atPeak = iota
	atEnd
	allocatedBytes
	allocations
	hostTime
	callCount
	numFlameMetrics
)

// flameValues has one value for each of flameMetrics.
type flameValues [numFlameMetrics]int64

// flameNode is a frame of the flame graph. Its values include those of its callees.
type flameNode struct {
	name     int32 // number in texts
	kind     int8  // flameNative, flamePython or flameOther
	values   flameValues
	children map[int32]*flameNode // callees by name
}

// flameScan sums up device and host memory by origin.
type flameScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window

	now       []liveMemory // live at present, by origin
	allocated []liveMemory // allocated in the window, by origin
	total     int64        // live bytes at present
	peak      extreme
}

func newFlameScan(t *timeline.Timeline, f *query.Filter) *flameScan {
	return &flameScan{t: t, filter: f, window: f.Window(t.Recording())}
}

// consume follows one change of the program's memory.
func (s *flameScan) consume(_ *timeline.Program, c *livemem.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	if c.Kind == livemem.AllocFailed || c.AtNs > s.window.ToNs || c.Block.Bytes < s.filter.MinBytes ||
		!s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	id := c.Block.Origin
	s.now, s.allocated = units.Grow(s.now, id), units.Grow(s.allocated, id)
	s.peak.markChanged(id)
	if c.Kind != livemem.Allocated {
		s.now[id].bytes -= c.Block.Bytes
		s.now[id].blocks--
		s.total -= c.Block.Bytes
	} else {
		s.now[id].bytes += c.Block.Bytes
		s.now[id].blocks++
		s.total += c.Block.Bytes
		if c.AtNs >= s.window.FromNs {
			s.allocated[id].bytes += c.Block.Bytes
			s.allocated[id].blocks++
		}
	}
	if c.AtNs >= s.window.FromNs && s.total > s.peak.total {
		s.peak.set(c.AtNs, s.total, s.now)
	}
}

// flameBuilder builds the tree of a flame graph from stacks.
type flameBuilder struct {
	t     *timeline.Timeline
	rules *query.FrameRules
	texts *texts
	root  *flameNode
	paths map[int32][]*flameNode // nodes from the root to the leaf, by stack id
	drawn map[int32]drawnFrame   // cache of frame, by frame id
}

// drawnFrame is the name and kind of a frame, or the fact that the frame rules hide it.
type drawnFrame struct {
	name   int32
	kind   int8
	hidden bool
}

// frame returns a frame as it is drawn. It caches the result, because frame rules are slow.
func (b *flameBuilder) frame(id int32) drawnFrame {
	d, ok := b.drawn[id]
	if !ok {
		f := &b.t.Stacks.Frames[id]
		if _, d.hidden = b.rules.Hides(f); !d.hidden {
			d.name, d.kind = b.texts.id(flameName(f)), flameKind(f)
		}
		b.drawn[id] = d
	}
	return d
}

// Kinds of frames. The colour of a frame depends on its kind.
const (
	flameNative = iota
	flamePython
	flameOther
)

// maxFlameDepth is the largest number of drawn frames of a stack, counted from its root.
const maxFlameDepth = 120

// add adds values to all frames of a stack.
func (b *flameBuilder) add(stack int32, v *flameValues) {
	nodes, ok := b.paths[stack]
	if !ok {
		nodes = b.path(stack)
		b.paths[stack] = nodes
	}
	for _, n := range nodes {
		for i := range v {
			n.values[i] += v[i]
		}
	}
}

// path returns the nodes of a stack, from the root of the tree to the leaf. It creates missing
// nodes.
func (b *flameBuilder) path(stack int32) []*flameNode {
	nodes := []*flameNode{b.root}
	at := b.root
	child := func(name int32, kind int8) {
		next := at.children[name]
		if next == nil {
			next = &flameNode{name: name, kind: kind}
			if at.children == nil {
				at.children = make(map[int32]*flameNode)
			}
			at.children[name] = next
		}
		at = next
		nodes = append(nodes, at)
	}
	for _, id := range slices.Backward(b.t.Stacks.Stacks[stack]) {
		if d := b.frame(id); !d.hidden && len(nodes) <= maxFlameDepth {
			child(d.name, d.kind)
		}
	}
	if len(nodes) == 1 {
		child(b.texts.id(cmp.Or(b.hiddenName(stack), timeline.NoStack)), flameOther)
	}
	return nodes
}

// hiddenName returns the name of the leaf of a stack whose frames are all hidden; "" for a stack
// without frames.
func (b *flameBuilder) hiddenName(stack int32) string {
	if ids := b.t.Stacks.Stacks[stack]; len(ids) > 0 {
		return flameName(&b.t.Stacks.Frames[ids[0]])
	}
	return ""
}

// flameName returns the function of a frame, with its source line if known.
func flameName(f *format.Frame) string {
	name := query.FrameName(f)
	if f.File != "" && f.Line > 0 {
		return fmt.Sprintf("%s (%s:%d)", name, path.Base(f.File), f.Line)
	}
	return name
}

// flameKind returns the kind of a frame.
func flameKind(f *format.Frame) int8 {
	if f.Type == query.FramePython {
		return flamePython
	}
	return flameNative
}

// flameJSON is a node of the tree in JSON. Its keys are short because there are thousands of nodes.
type flameJSON struct {
	Name     int32       `json:"n"`
	Kind     int8        `json:"k"`
	Values   flameValues `json:"v"`
	Children []flameJSON `json:"c,omitempty"`
}

// maxFlameNodes is the largest number of nodes in the page.
const maxFlameNodes = 3000

// finish returns the tree without very small frames. least is the smallest share of a metric, from
// 0 to 1, that a remaining frame has.
func (b *flameBuilder) finish() (tree flameJSON, least float64) {
	for least = 0.0005; b.count(b.root, least) > maxFlameNodes; least *= 2 {
	}
	return b.json(b.root, least), least
}

// visible reports whether a node has at least the share least of any metric.
func (b *flameBuilder) visible(n *flameNode, least float64) bool {
	for i, v := range n.values {
		if v > 0 && float64(v) >= least*float64(b.root.values[i]) {
			return true
		}
	}
	return false
}

// count returns the number of visible nodes of a subtree.
func (b *flameBuilder) count(n *flameNode, least float64) int {
	if !b.visible(n, least) {
		return 0
	}
	sum := 1
	for _, c := range n.children {
		sum += b.count(c, least)
	}
	return sum
}

// json returns the visible nodes of a subtree, the largest callees first.
func (b *flameBuilder) json(n *flameNode, least float64) flameJSON {
	j := flameJSON{Name: n.name, Kind: n.kind, Values: n.values}
	for _, c := range n.children {
		if b.visible(c, least) {
			j.Children = append(j.Children, b.json(c, least))
		}
	}
	slices.SortFunc(j.Children, func(x, y flameJSON) int {
		for i := range x.Values {
			if c := cmp.Compare(y.Values[i], x.Values[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(b.texts.List[x.Name], b.texts.List[y.Name])
	})
	return j
}

// flame returns the tree of memory and calls, and the smallest share that a frame of it has.
func flame(
	t *timeline.Timeline,
	memory *flameScan,
	calls *callsOverTime,
	rules *query.FrameRules,
	texts *texts,
) (flameJSON, float64) {
	b := &flameBuilder{
		t:     t,
		rules: rules,
		texts: texts,
		root:  &flameNode{name: texts.id("everything"), kind: flameOther},
		paths: make(map[int32][]*flameNode),
		drawn: make(map[int32]drawnFrame),
	}
	for id := range memory.allocated {
		v := flameValues{
			atEnd:          memory.now[id].bytes,
			allocatedBytes: memory.allocated[id].bytes,
			allocations:    memory.allocated[id].blocks,
		}
		if id < len(memory.peak.live) {
			v[atPeak] = memory.peak.live[id].bytes
		}
		b.add(t.Origins.List[id].Stack, &v)
	}
	// Sorted, so that the texts have the same numbers each time.
	for _, stack := range slices.Sorted(maps.Keys(calls.byStack)) {
		s := calls.byStack[stack]
		b.add(stack, &flameValues{hostTime: s.hostNs, callCount: s.calls})
	}
	return b.finish()
}
