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

// flameMetrics are what the width of frames can stand for.
var flameMetrics = []flameMetric{
	{"memory live at the peak", "bytes"},
	{"memory live at the end", "bytes"},
	{"memory allocated", "bytes"},
	{"allocations", "count"},
	{"time in CUDA calls, on the CPU", "ns"},
	{"CUDA calls", "count"},
}

type flameMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

const (
	atPeak = iota
	atEnd
	allocatedBytes
	allocations
	hostTime
	callCount
	numFlameMetrics
)

type flameValues [numFlameMetrics]int64

// flameNode is a frame with those that it called. Its children are found by name.
type flameNode struct {
	name     int32
	kind     int8
	values   flameValues
	children map[int32]*flameNode
}

// flameScan sums up memory by origin; memory of the host counts too.
type flameScan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window

	now, ever []held // by origin
	total     int64
	peak      extreme
}

func newFlameScan(t *timeline.Timeline, f *query.Filter) *flameScan {
	return &flameScan{t: t, filter: f, window: f.Window(t.Recording())}
}

func (s *flameScan) consume(_ *timeline.Program, c *livemem.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	if c.Kind == livemem.AllocFailed || c.AtNs > s.window.ToNs || c.Block.Bytes < s.filter.MinBytes ||
		!s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	id := c.Block.Origin
	s.now, s.ever = units.Grow(s.now, id), units.Grow(s.ever, id)
	s.peak.touch(id)
	if c.Kind != livemem.Allocated {
		s.now[id].bytes -= c.Block.Bytes
		s.now[id].blocks--
		s.total -= c.Block.Bytes
	} else {
		s.now[id].bytes += c.Block.Bytes
		s.now[id].blocks++
		s.total += c.Block.Bytes
		if c.AtNs >= s.window.FromNs {
			s.ever[id].bytes += c.Block.Bytes
			s.ever[id].blocks++
		}
	}
	if c.AtNs >= s.window.FromNs && s.total > s.peak.total {
		s.peak.take(c.AtNs, s.total, s.now)
	}
}

// flameBuilder makes one tree of stacks.
type flameBuilder struct {
	t     *timeline.Timeline
	rules *query.FrameRules
	texts *texts
	root  *flameNode
	paths map[int32][]*flameNode // stack → its nodes
	drawn map[int32]drawnFrame   // by number of the frame
}

// drawnFrame is what is drawn of a frame, unless it is hidden. Rules take their time.
type drawnFrame struct {
	name   int32
	kind   int8
	hidden bool
}

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

// Kinds of frames, which colour them.
const (
	flameNative = iota
	flamePython
	flameOther
)

// flameDepth is how many frames of a stack are drawn, from its root.
const flameDepth = 120

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
		if d := b.frame(id); !d.hidden && len(nodes) <= flameDepth {
			child(d.name, d.kind)
		}
	}
	if len(nodes) == 1 {
		child(b.texts.id(cmp.Or(b.onlyHidden(stack), timeline.NoStack)), flameOther)
	}
	return nodes
}

// onlyHidden names a stack of which all frames are hidden.
func (b *flameBuilder) onlyHidden(stack int32) string {
	if ids := b.t.Stacks.Stacks[stack]; len(ids) > 0 {
		return flameName(&b.t.Stacks.Frames[ids[0]])
	}
	return ""
}

func flameName(f *format.Frame) string {
	name := query.FrameName(f)
	if f.File != "" && f.Line > 0 {
		return fmt.Sprintf("%s (%s:%d)", name, path.Base(f.File), f.Line)
	}
	return name
}

func flameKind(f *format.Frame) int8 {
	if f.Type == query.FramePython {
		return flamePython
	}
	return flameNative
}

// flameJSON is a node as the page has it; its names are short because it is there a thousand times.
type flameJSON struct {
	Name     int32       `json:"n"`
	Kind     int8        `json:"k"`
	Values   flameValues `json:"v"`
	Children []flameJSON `json:"c,omitempty"`
}

// mostFlameNodes bounds the tree of a page.
const mostFlameNodes = 3000

// finish returns the tree without frames that are too small to be seen, and how small those are
// at most, as a share of everything.
func (b *flameBuilder) finish() (tree flameJSON, least float64) {
	for least = 0.0005; b.count(b.root, least) > mostFlameNodes; least *= 2 {
	}
	return b.json(b.root, least), least
}

func (b *flameBuilder) visible(n *flameNode, least float64) bool {
	for i, v := range n.values {
		if v > 0 && float64(v) >= least*float64(b.root.values[i]) {
			return true
		}
	}
	return false
}

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

// flame makes the tree of memory and calls.
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
	for id := range memory.ever {
		v := flameValues{
			atEnd:          memory.now[id].bytes,
			allocatedBytes: memory.ever[id].bytes,
			allocations:    memory.ever[id].blocks,
		}
		if id < len(memory.peak.held) {
			v[atPeak] = memory.peak.held[id].bytes
		}
		b.add(t.Origins.List[id].Stack, &v)
	}
	for _, stack := range slices.Sorted(maps.Keys(calls.byStack)) { // texts are numbered in this order
		s := calls.byStack[stack]
		b.add(stack, &flameValues{hostTime: s.hostNs, callCount: s.calls})
	}
	return b.finish()
}
