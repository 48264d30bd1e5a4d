package idle

import (
	"cmp"
	"slices"
)

// edge is the start or the end of an interval of a work.
type edge struct {
	ns   int64
	work *work
	kind edgeKind
	step int8 // 1: start, -1: end
}

// edgeKind is a class of work with a certainty, or one of the kinds below.
type edgeKind uint8

const (
	edgeCertain    edgeKind = 0 // plus class
	edgeProbable   edgeKind = 3 // plus class
	edgePossible   edgeKind = 6 // plus class
	edgeMain       edgeKind = 9 // probable time of kernels of the main stream
	edgeUnrecorded edgeKind = 10
	edgeKinds               = 11
)

// state is the probable activity of a device.
type state uint8

const (
	stateIdle state = iota
	stateCopies
	stateCollectives
	stateOther // only other streams than the main stream run kernels
	stateBusy
	stateUnrecorded
)

// maxEdges is the number of edges that wait for their order. Works of different channels come in the order
// of their calls, but interleaved as their numbers become final.
const maxEdges = 1 << 20

// sweep gives the edges of a device in order of time. An edge that comes too late counts at the time that
// is reached.
type sweep struct {
	sorted, fresh []edge
	spare         []edge
	atNs          int64
	visit         func(*edge)
}

// add adds an edge.
func (s *sweep) add(e edge) {
	if e.ns < s.atNs {
		e.ns = s.atNs
	}
	s.fresh = append(s.fresh, e)
	if len(s.fresh) >= maxEdges/2 {
		s.merge()
		if n := len(s.sorted); n > maxEdges {
			s.pass(n - maxEdges/2)
		}
	}
}

// finish visits all edges.
func (s *sweep) finish() {
	s.merge()
	s.pass(len(s.sorted))
}

// merge sorts the fresh edges into the sorted ones. At one time, ends come before starts.
func (s *sweep) merge() {
	order := func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.step, b.step)) }
	slices.SortStableFunc(s.fresh, order)
	merged := s.spare[:0]
	i := 0
	for _, e := range s.sorted {
		for i < len(s.fresh) && order(s.fresh[i], e) < 0 {
			merged = append(merged, s.fresh[i])
			i++
		}
		merged = append(merged, e)
	}
	merged = append(merged, s.fresh[i:]...)
	s.spare, s.sorted, s.fresh = s.sorted, merged, s.fresh[:0]
}

// pass visits the first n edges, and drops them.
func (s *sweep) pass(n int) {
	for i := range s.sorted[:n] {
		s.visit(&s.sorted[i])
	}
	if n > 0 {
		s.atNs = s.sorted[n-1].ns
	}
	s.sorted = append(s.sorted[:0], s.sorted[n:]...)
}
