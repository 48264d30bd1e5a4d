package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// graphNodes counts the nodes of a graph by label. Labels are in the order in which they were first
// added.
type graphNodes struct {
	labels  []string
	counts  map[string]int64
	kernels map[int32]int64 // kernel nodes by the stack of the call that added them
	byType  NodeCounts
	changed bool // some nodes were removed or changed, and it is unknown which
}

func (n *graphNodes) addLabel(label string, count int64) {
	if n.counts == nil {
		n.counts = make(map[string]int64)
	}
	if n.counts[label] == 0 {
		n.labels = append(n.labels, label)
	}
	n.counts[label] += count
}

// addKernel adds kernel nodes that a call with the stack added, besides their labels.
func (n *graphNodes) addKernel(stack int32, count int64) {
	if n.kernels == nil {
		n.kernels = make(map[int32]int64)
	}
	n.kernels[stack] += count
}

func (n *graphNodes) addNodes(o *graphNodes) {
	if o == nil {
		return
	}
	for stack, count := range o.kernels {
		n.addKernel(stack, count)
	}
	n.byType.merge(&o.byType)
	for _, label := range o.labels {
		n.addLabel(label, o.counts[label])
	}
	n.changed = n.changed || o.changed
}

// replaceNode removes one node with the label old, and adds one with the label label unless it is
// "".
func (n *graphNodes) replaceNode(old, label string) {
	if n.counts[old]--; n.counts[old] <= 0 {
		delete(n.counts, old)
		n.labels = slices.DeleteFunc(n.labels, func(l string) bool { return l == old })
	}
	if label != "" {
		n.addLabel(label, 1)
	}
}

// maxGraphLabels is the maximum number of node labels in the text for a graph.
const maxGraphLabels = 12

// String lists the nodes, e.g. "gemm ×24, copy DtoD, relu ×24".
func (n *graphNodes) String() string {
	var list []string
	for i, label := range n.labels {
		if i == maxGraphLabels {
			list = append(list, fmt.Sprintf("… and %d kinds more", len(n.labels)-i))
			break
		}
		if count := n.counts[label]; count > 1 {
			label += " ×" + units.FormatCount(count)
		}
		list = append(list, label)
	}
	if n.changed {
		list = append(list, "nodes changed since")
	}
	return strings.Join(list, ", ")
}

// NodeCounts are the numbers of nodes of a graph by type. A child graph counts by its nodes.
type NodeCounts struct {
	Kernels, Copies, Fills int64
	Others                 int64 // memory nodes, host functions and others
}

// Nodes returns the numbers of nodes. It returns false if nodes were changed since, and it is unknown which.
func (v *GraphVersion) Nodes() (NodeCounts, bool) { return v.nodes.byType, !v.nodes.changed }

func (n *NodeCounts) merge(o *NodeCounts) {
	n.Kernels += o.Kernels
	n.Copies += o.Copies
	n.Fills += o.Fills
	n.Others += o.Others
}

// addNode adds the node of a call, by its label and its type.
func (n *graphNodes) addNode(s *graphStep) {
	n.addLabel(s.label, 1)
	switch {
	case isKernelLaunch(s.name), strings.HasPrefix(s.name, "cuGraphAddKernelNode"), s.node == "kernel":
		n.byType.Kernels++
	case strings.HasPrefix(s.name, "cuMemcpy"), s.name == "cuGraphAddMemcpyNode", s.node == "memcpy":
		n.byType.Copies++
	case strings.HasPrefix(s.name, "cuMemset"), s.name == "cuGraphAddMemsetNode", s.node == "memset":
		n.byType.Fills++
	default:
		n.byType.Others++
	}
}
