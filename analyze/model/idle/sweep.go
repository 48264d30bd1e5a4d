package idle

import (
	"slices"
	"sort"
)

// edge is the start or the end of an interval of an operation. It has no pointers, so that sorting is fast.
type edge struct {
	ns        int64
	operation uint32 // number in edgeOperations; 0: none
	kind      edgeKind
	step      int8 // 1: start, -1: end
}

// edgeKind is a class of operation with a certainty, or one of the kinds below.
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

// maxEdges is the number of edges that wait for their order. Operations of different channels come in the order
// of their calls, but interleaved as their numbers become final.
const maxEdges = 1 << 20

// minEdges is the least number of edges for which memory is taken.
const minEdges = 1 << 10

// sweep gives the edges of a device in order of time. An edge that comes too late counts at the time that
// is reached.
type sweep struct {
	sorted     []edge // a part of store
	store      []edge
	fresh      []edge
	spare      []edge // memory of join
	operations edgeOperations
	atNs       int64
	visit      func(*edge, *operation)
}

// edgeOperations numbers operations from 1, and forgets those whose edges were visited.
type edgeOperations struct {
	chunks []*operationChunk // nil where all were visited
	last   uint32            // number of the last operation
}

// operationChunk has operations with consecutive numbers.
type operationChunk struct {
	operations [chunkOperations]*operation
	edges      int // that were not visited
}

const chunkOperations = 1024

// add returns the number of an operation. All its edges must be added before the next operation.
func (e *edgeOperations) add(w *operation) uint32 {
	i := e.last % chunkOperations
	if i == 0 {
		e.chunks = append(e.chunks, new(operationChunk))
	}
	e.chunks[e.last/chunkOperations].operations[i] = w
	e.last++
	if i == 0 && e.last > 1 {
		e.forget(e.last - 1)
	}
	return e.last
}

// chunkOf returns the chunk of an operation.
func (e *edgeOperations) chunkOf(number uint32) *operationChunk {
	return e.chunks[(number-1)/chunkOperations]
}

// of returns an operation; nil for 0.
func (e *edgeOperations) of(number uint32) *operation {
	if number == 0 {
		return nil
	}
	return e.chunkOf(number).operations[(number-1)%chunkOperations]
}

// forget drops the chunk of an operation if there is a later one, and all its edges were visited.
func (e *edgeOperations) forget(number uint32) {
	at := (number - 1) / chunkOperations
	if e.chunks[at].edges == 0 && (at+1)*chunkOperations < e.last {
		e.chunks[at] = nil
	}
}

// comesBefore orders edges by time. At one time, ends come before starts.
func (e *edge) comesBefore(o *edge) bool { return e.ns < o.ns || e.ns == o.ns && e.step < o.step }

// add adds an edge.
func (s *sweep) add(e edge) {
	if e.ns < s.atNs {
		e.ns = s.atNs
	}
	if e.operation != 0 {
		s.operations.chunkOf(e.operation).edges++
	}
	if n := len(s.fresh); n == cap(s.fresh) {
		s.fresh = slices.Grow(s.fresh, max(minEdges, min(3*n, maxEdges/2-n)))
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

// merge sorts the fresh edges into the sorted ones.
func (s *sweep) merge() {
	s.sort(s.fresh)
	at := len(s.sorted)
	if at == 0 {
		s.store, s.fresh = s.fresh, s.store[:0]
		s.sorted = s.store
		return
	}
	if cap(s.sorted) < at+len(s.fresh) {
		s.store = slices.Grow(append(s.store[:0], s.sorted...), len(s.fresh))
		s.sorted = s.store
	}
	s.sorted = append(s.sorted, s.fresh...)
	s.join(s.sorted, at)
	s.fresh = s.fresh[:0]
}

// sort sorts edges, and keeps the order of those that are alike. The operations of a channel come in order, so that
// most edges are near their place.
func (s *sweep) sort(list []edge) {
	const short = 16
	for from := 0; from < len(list); from += short {
		sortFew(list[from:min(from+short, len(list))])
	}
	for width := short; width < len(list); width *= 2 {
		for from := 0; from+width < len(list); from += 2 * width {
			s.join(list[from:min(from+2*width, len(list))], width)
		}
	}
}

// sortFew is sort for few edges.
func sortFew(list []edge) {
	for i := 1; i < len(list); i++ {
		e, k := list[i], i
		for ; k > 0 && e.comesBefore(&list[k-1]); k-- {
			list[k] = list[k-1]
		}
		if k < i {
			list[k] = e
		}
	}
}

// join merges the sorted parts of a list before an index and from it on. It moves only edges that are not
// in their place.
func (s *sweep) join(list []edge, at int) {
	if at == 0 || at == len(list) || !list[at].comesBefore(&list[at-1]) {
		return
	}
	end := at + sort.Search(len(list)-at, func(i int) bool { return !list[at+i].comesBefore(&list[at-1]) })
	s.spare = append(s.spare[:0], list[at:end]...)
	i, k := at-1, len(s.spare)-1
	for to := end - 1; k >= 0; to-- {
		if i >= 0 && s.spare[k].comesBefore(&list[i]) {
			list[to] = list[i]
			i--
		} else {
			list[to] = s.spare[k]
			k--
		}
	}
}

// pass visits the first n edges, and drops them.
func (s *sweep) pass(n int) {
	for i := range s.sorted[:n] {
		e := &s.sorted[i]
		s.visit(e, s.operations.of(e.operation))
		if e.operation != 0 {
			s.operations.chunkOf(e.operation).edges--
			s.operations.forget(e.operation)
		}
	}
	if n > 0 {
		s.atNs = s.sorted[n-1].ns
	}
	s.sorted = s.sorted[n:]
}
