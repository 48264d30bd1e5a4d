package activity

import (
	"math/rand/v2"
)

// An operation in the queue begins when the operation before it on its stream has ended. So the time between two
// samples, if the queue was never empty, is the sum of the durations of the operations that began from the
// first to the one before the second, and of a short gap after each. Each such pair is an equation.

// labelKey identifies operations that are assumed to have one distribution of durations.
type labelKey struct {
	op    Op
	label int32
}

// term is a number of operations with one label in an equation.
type term struct {
	label int32 // index in equationSet.keys
	count int32
}

// equation says that the durations of operations, and a gap after each of them, sum up to a time.
type equation struct {
	terms      []term
	sumNs      float64
	operations int32
	// graphs are the launches of graphs with several operations before which a gap lies.
	graphs int32
	from   spanStart
	// isLoose reports that a start in it is estimated, so its residual says nothing about other equations.
	isLoose bool
}

// equationSet is a random sample of the equations of a process, with a bounded size.
type equationSet struct {
	indices    [OpCopyToHost + 1][]int32 // index of a label plus 1, by label plus 1
	keys       []labelKey
	operations []int64  // operations by label
	alone      []int64  // equations with one operation by label
	limits     []limits // upper bounds of durations by label
	list       []equation
	seen       int // equations so far
	scratch    []term
}

// maxTimes bounds the times of limits and of wordEvidence.
const maxTimes = 1000

// labelOf returns the index of a label. It returns -1 if there are too many labels.
func (e *equationSet) labelOf(key labelKey) int32 {
	list := e.indices[key.op]
	at := int(key.label) + 1
	if at < len(list) && list[at] != 0 {
		return list[at] - 1
	}
	if len(e.keys) >= maxLabels {
		return -1
	}
	if at >= len(list) {
		list = append(list, make([]int32, at+1-len(list))...)
		e.indices[key.op] = list
	}
	i := int32(len(e.keys))
	list[at] = i + 1
	e.keys, e.operations, e.limits = append(e.keys, key), append(e.operations, 0), append(e.limits, limits{})
	e.alone = append(e.alone, 0)
	return i
}

// add adds an equation about the durations of calls, with gaps before graphs.
func (e *equationSet) add(calls []issuedCall, sumNs int64, graphs int32, from spanStart, random *rand.Rand) {
	e.scratch = e.scratch[:0]
	operations := int32(0)
	for i := range calls {
		if calls[i].part > 0 { // the duration of a graph is that of all its operations
			continue
		}
		operations++
		if !e.addTerm(labelKey{calls[i].call.Op, calls[i].call.Label}) {
			return
		}
	}
	sumNs -= int64(graphs) * (graphGapMeanNs - gapMeanNs)
	e.addEquation(equation{e.scratch, float64(sumNs), operations, graphs, from, false}, random)
}

// addSingle adds an equation about the duration of one operation, of the label with index i.
func (e *equationSet) addSingle(i int32, ns int64, from spanStart, random *rand.Rand) {
	e.addEquation(equation{[]term{{i, 1}}, float64(ns), 1, 0, from, false}, random)
}

// addLoose adds an equation in which a start is estimated.
func (e *equationSet) addLoose(terms []term, sumNs int64, from spanStart, random *rand.Rand) {
	e.addEquation(equation{terms, float64(sumNs), int32(len(terms)), 0, from, true}, random)
}

// addEquation adds an equation, or replaces a random one if there are too many.
func (e *equationSet) addEquation(eq equation, random *rand.Rand) {
	e.seen++
	if eq.operations == 1 {
		e.alone[eq.terms[0].label]++
	}
	at := len(e.list)
	if at >= maxEquations {
		if at = random.IntN(e.seen); at >= len(e.list) {
			return
		}
	}
	eq.terms = append([]term(nil), eq.terms...)
	if at == len(e.list) {
		e.list = append(e.list, eq)
	} else {
		e.list[at] = eq
	}
}

// limits is a random sample of the times that operations of a label took at most, with a bounded size.
type limits struct {
	list    []int64 // ns
	seen    int
	leastNs int64 // the lowest one of all; 0: there are none
}

func (l *limits) meanNs() float64 {
	sum := 0.0
	for _, ns := range l.list {
		sum += float64(ns)
	}
	return sum / float64(len(l.list))
}

// addLimit adds a time that an operation of the label with index i took at most.
func (e *equationSet) addLimit(i int32, ns int64, random *rand.Rand) {
	l := &e.limits[i]
	l.seen++
	if l.leastNs == 0 || ns < l.leastNs {
		l.leastNs = ns
	}
	if len(l.list) < maxTimes {
		l.list = append(l.list, ns)
	} else if at := random.IntN(l.seen); at < maxTimes {
		l.list[at] = ns
	}
}

func (e *equationSet) addTerm(key labelKey) bool {
	label := e.labelOf(key)
	if label < 0 {
		return false
	}
	for i := range e.scratch {
		if e.scratch[i].label == label {
			e.scratch[i].count++
			return true
		}
	}
	e.scratch = append(e.scratch, term{label, 1})
	return true
}

// maxEquationOperations is the highest number of operations in an equation. Longer equations say little.
const maxEquationOperations = 64

// addEquations adds the equations between the samples up to an anchor. The number of operations without a
// call is the same for all of them.
func (r *results) addEquations(c *channelState, counter int64) {
	if !r.collects() {
		return
	}
	set := r.equationsOf(c.Pid)
	from := 0
	for i := 1; i < len(c.moments) && c.moments[i].counter <= counter; i++ {
		a, b := &c.moments[from], &c.moments[i]
		calls := c.order.between(a.counter-c.least, b.counter-c.least)
		if n := len(calls); n > 0 && !calls[n-1].isBoundary() {
			continue
		}
		from = i
		if a.gpuNs == 0 || len(calls) < 2 || len(calls) > maxEquationOperations+1 || !calls[0].isBoundary() ||
			!areInOrder(calls, a.counter-c.least) {
			continue
		}
		operations, ns := calls[:len(calls)-1], b.gpuNs-a.gpuNs
		if c.showsEnds {
			operations = calls[1:]
		}
		queuedFromNs := a.begin.LoNs
		if len(operations) == 1 {
			queuedFromNs = b.begin.LoNs
		}
		if areQueued(calls[1:], queuedFromNs) {
			set.add(operations, ns, countGraphs(calls[1:]), spanStart{c, a.begin.LoNs}, r.random)
		}
	}
}

// countGraphs returns how many calls launch graphs of several operations. The gaps before them are longer than others.
func countGraphs(calls []issuedCall) (n int32) {
	for i := range calls {
		if c := &calls[i]; c.part == 0 && c.parts > 1 {
			n++
		}
	}
	return n
}

// between returns the calls from one index to another one, both included. It returns nil if they are not
// all known.
func (o *issueOrder) between(from, to int64) []issuedCall {
	switch {
	case from < max(1, o.base) || to > o.issued() || to < from:
		return nil
	case from > o.base:
		return o.pending.items[from-o.base-1 : to-o.base]
	}
	o.scratch = append(append(o.scratch[:0], o.last), o.pending.items[:to-o.base]...)
	return o.scratch
}

// areInOrder reports whether calls of one stream have the positions from first on.
func areInOrder(calls []issuedCall, first int64) bool {
	for i := range calls {
		c := &calls[i]
		if c.unsure || c.first != first+int64(i) || c.last != c.first || c.stream != calls[0].stream {
			return false
		}
	}
	return true
}

// areQueued reports whether all calls waited in the queue, and for nothing else, from ns on. The operations of a
// graph launch only wait for each other.
func areQueued(calls []issuedCall, ns int64) bool {
	for i := range calls {
		if c := &calls[i]; c.part == 0 && (c.barrier || !c.wasSeenReturned(ns-queuedNs)) {
			return false
		}
	}
	return true
}
