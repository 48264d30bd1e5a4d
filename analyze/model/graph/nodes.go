package graph

import "strings"

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
