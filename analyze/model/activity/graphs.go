package activity

import (
	"cmp"
	"math"

	"github.com/gpurec/gpurec/analyze/stats"
)

// A launch of a graph adds one operation to the channel of its stream, or several: the driver splits a graph at
// its fills and copies. The number is the same for all launches of a graph. It follows from the steps of
// the counter between two moments at which the stream was empty.

// graphKey identifies a graph, or the launches of a graph at one call site.
type graphKey struct{ pid, label int32 }

// graphOperations has the operations that a launch of a graph adds, if these are not one.
type graphOperations map[graphKey]int64

// of returns the number of operations that a call adds to the channel of its stream.
func (g graphOperations) of(c *Call) int64 {
	if c.Op == OpGraph && len(g) > 0 {
		if n, ok := g[graphKey{c.Pid, c.Label}]; ok {
			return n
		}
	}
	return 1
}

// graphLaunches is a number of launches of a graph.
type graphLaunches struct {
	label int32
	n     int64
}

// queueCalls has the calls of a queue so far.
type queueCalls struct {
	others int64 // operations of calls that launch no graph
	graphs []graphLaunches
}

// add counts a call.
func (q *queueCalls) add(c *Call) {
	if c.Op != OpGraph {
		q.others++
		return
	}
	for i := range q.graphs {
		if q.graphs[i].label == c.Label {
			q.graphs[i].n++
			return
		}
	}
	if len(q.graphs) < maxGraphs {
		q.graphs = append(q.graphs, graphLaunches{c.Label, 1})
	}
}

// snapshot returns a copy; nil if no graph was launched, or too many.
func (q *queueCalls) snapshot() *queueCalls {
	if len(q.graphs) == 0 || len(q.graphs) == maxGraphs {
		return nil
	}
	return &queueCalls{q.others, append([]graphLaunches(nil), q.graphs...)}
}

// graphEquation says that the operations of launches sum up to a number.
type graphEquation struct {
	operations int64
	launches   []graphLaunches
}

// graphEquations are the equations of a queue, if a channel runs its operations.
type graphEquations struct {
	counter int64
	atNs    int64
	calls   *queueCalls // at the last moment at which the queue was empty
	list    []graphEquation
}

const (
	// maxGraphs bounds the graphs of a queue whose operations are learned.
	maxGraphs = 64
	// maxGraphEquations bounds the equations of a queue and a channel.
	maxGraphEquations = 512
	// maxGraphOperations bounds the operations of a launch, because each takes memory.
	maxGraphOperations = 4096
	// minGraphEquations is the least number of equations that prove the operations of graphs.
	minGraphEquations = 5
)

// learnGraphs notes the counter of a channel at a moment at which a queue was empty.
func (sv *survey) learnGraphs(pair votePair, counter, atNs int64, calls *queueCalls) {
	e := sv.graphs[pair]
	if e == nil {
		e = new(graphEquations)
		sv.graphs[pair] = e
	}
	before := *e
	e.counter, e.atNs, e.calls = counter, atNs, calls
	if before.calls == nil || len(e.list) >= maxGraphEquations || sv.inGap(before.atNs-gapSlackNs, atNs) {
		return
	}
	eq := graphEquation{operations: counter - before.counter - (calls.others - before.calls.others)}
	for i, g := range calls.graphs { // later snapshots only add graphs
		n := g.n
		if i < len(before.calls.graphs) {
			n -= before.calls.graphs[i].n
		}
		if n > 0 {
			eq.launches = append(eq.launches, graphLaunches{g.label, n})
		}
	}
	if len(eq.launches) > 0 {
		e.list = append(e.list, eq)
	}
}

// solve returns the operations of graphs, and how many equations they satisfy: least squares, rounded to whole
// numbers. Equations with a large residual count less, because the driver sometimes adds an operation.
func (e *graphEquations) solve() (known map[int32]int64, satisfied int) {
	columns := make(map[int32]int)
	for i := range e.list {
		for _, l := range e.list[i].launches {
			if _, ok := columns[l.label]; !ok {
				columns[l.label] = len(columns)
			}
		}
	}
	weights, x := make([]float64, len(e.list)), make([]float64, len(columns))
	known = make(map[int32]int64)
	const rounds = 8
	for range rounds {
		e.fit(columns, weights, x)
		for label, column := range columns {
			known[label] = int64(math.Round(x[column]))
		}
		satisfied = 0
		for i := range e.list {
			off := e.list[i].unexplained(known)
			if off == 0 {
				satisfied++
			}
			weights[i] = 1 / (1 + float64(off*off))
		}
	}
	return known, satisfied
}

// fit solves for the operations of graphs by weighted least squares. A weight of 0 counts as 1.
func (e *graphEquations) fit(columns map[int32]int, weights, x []float64) {
	matrix, right := make([][]float64, len(x)), make([]float64, len(x))
	for i := range matrix {
		matrix[i] = make([]float64, len(x))
		matrix[i][i] = 1e-6
	}
	for i := range e.list {
		q, w := &e.list[i], cmp.Or(weights[i], 1)
		for _, a := range q.launches {
			row := columns[a.label]
			right[row] += w * float64(a.n*q.operations)
			for _, b := range q.launches {
				matrix[row][columns[b.label]] += w * float64(a.n*b.n)
			}
		}
	}
	stats.SolveNonNegative(matrix, right, x)
}

// unexplained returns the operations that known graphs do not explain.
func (e *graphEquation) unexplained(known map[int32]int64) int64 {
	operations := e.operations
	for _, l := range e.launches {
		operations -= l.n * known[l.label]
	}
	return operations
}

// operationsOfGraphs returns the graphs whose launches add several operations.
func (sv *survey) operationsOfGraphs() graphOperations {
	type solution struct {
		known     map[int32]int64
		satisfied int
	}
	best := make(map[int32]solution) // by stream
	for pair, e := range sv.graphs {
		known, satisfied := e.solve()
		if satisfied < minGraphEquations || satisfied*5 < len(e.list)*4 || satisfied <= best[pair.stream].satisfied {
			continue
		}
		best[pair.stream] = solution{known, satisfied}
	}
	operations := make(graphOperations)
	for stream, s := range best {
		for label, n := range s.known {
			if n > 1 && n <= maxGraphOperations {
				operations[graphKey{sv.streams.list[stream].Pid, label}] = n
			}
		}
	}
	return operations
}
