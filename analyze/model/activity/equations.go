package activity

import "math/rand/v2"

// Between two samples of a channel whose queue was never empty, the time that passed is the sum of
// the durations of the works in between, and of the gaps before them. Each such pair is an equation.
// A work on an idle channel gives another kind of equation: the time from its call until its end is
// the latency of the launch plus the duration.

// labelKey identifies works that are assumed to have one distribution of durations.
type labelKey struct {
	op    Op
	label int32
}

// latencyLabel is the label of the time from a call until its work starts on an idle channel.
const latencyLabel = -2

// latencyOf returns the label of the latency of an operation. Kernels, fills, copies on the device
// and event records share one label.
func latencyOf(op Op) labelKey {
	switch op {
	case OpGraph, OpCopyToDevice, OpCopyToHost:
		return labelKey{op, latencyLabel}
	}
	return labelKey{OpKernel, latencyLabel}
}

// term is a number of works with one label in an equation.
type term struct {
	label int32 // index in equationSet.keys
	count int32
}

// equation says that the durations and gaps of works sum up to a time.
type equation struct {
	terms []term
	sumNs float64
	gaps  int32 // number of gaps between works
}

// equationSet is a random sample of the equations of a process, with a bounded size.
type equationSet struct {
	labels  map[labelKey]int32
	keys    []labelKey
	works   []int64 // works by label
	queued  sampledEquations
	idle    sampledEquations
	scratch []term
}

// sampledEquations is a reservoir of equations.
type sampledEquations struct {
	list []equation
	seen int
}

func newEquationSet() *equationSet { return &equationSet{labels: make(map[labelKey]int32)} }

// labelOf returns the index of a label. It returns -1 if there are too many labels.
func (e *equationSet) labelOf(key labelKey) int32 {
	i, ok := e.labels[key]
	if !ok {
		if len(e.keys) >= maxLabels {
			return -1
		}
		i = int32(len(e.keys))
		e.labels[key] = i
		e.keys, e.works = append(e.keys, key), append(e.works, 0)
	}
	return i
}

// countWork counts a work for the total of its label.
func (e *equationSet) countWork(c *Call) {
	if i := e.labelOf(labelKey{c.Op, c.Label}); i >= 0 {
		e.works[i]++
	}
}

// add adds an equation about calls. idle marks a single work on an idle channel.
func (e *equationSet) add(calls []issuedCall, sumNs int64, idle bool, random *rand.Rand) {
	into := &e.queued
	if idle {
		into = &e.idle
	}
	into.seen++
	at := len(into.list)
	if at >= maxEquations/2 {
		if at = random.IntN(into.seen); at >= len(into.list) {
			return
		}
	}
	e.scratch = e.scratch[:0]
	for i := range calls {
		if !e.addTerm(labelKey{calls[i].call.Op, calls[i].call.Label}) {
			return
		}
	}
	if idle && !e.addTerm(latencyOf(calls[0].call.Op)) {
		return
	}
	eq := equation{append([]term(nil), e.scratch...), float64(sumNs), int32(len(calls))}
	if idle {
		eq.gaps = 0
	}
	if at == len(into.list) {
		into.list = append(into.list, eq)
	} else {
		into.list[at] = eq
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

// maxEquationWorks is the highest number of works in an equation. Longer ones say little.
const maxEquationWorks = 64

// addEquations adds the equations between the samples up to an anchor. The number of works without a
// call is the same for all of them.
func (r *results) addEquations(c *channelState, counter int64) {
	if r.trial {
		return
	}
	set := r.equationsOf(c.Pid)
	for i := 1; i < len(c.moments) && c.moments[i].counter <= counter; i++ {
		a, b := &c.moments[i-1], &c.moments[i]
		first, last := a.counter-c.least+1, b.counter-c.least
		from, to := first-c.order.base-1, last-c.order.base
		if a.gpuNs == 0 || from < 0 || to > int64(len(c.order.pending)) || to-from > maxEquationWorks {
			continue
		}
		calls := c.order.pending[from:to]
		switch {
		case areQueued(calls, first, a.end.LoNs):
			set.add(calls, b.gpuNs-a.gpuNs, false, r.random)
		case len(calls) == 1 && isIdle(&calls[0], first, a.end.HiNs):
			set.add(calls, b.end.HiNs-transportNs/2-calls[0].call.StartNs, true, r.random)
		}
	}
}

// areQueued reports whether all calls had waited in the queue when the work before them ended at
// endNs.
func areQueued(calls []issuedCall, first, endNs int64) bool {
	for i := range calls {
		c := &calls[i]
		if c.unsure || c.barrier || c.first != first+int64(i) || c.last != c.first || !c.returnedBy(endNs-queuedNs) {
			return false
		}
	}
	return true
}

// isIdle reports whether the channel was idle when a short call started.
func isIdle(c *issuedCall, position, endNs int64) bool {
	return !c.unsure && !c.barrier && c.first == position && c.last == position && c.call.StartNs > endNs &&
		c.returnedBy(c.call.StartNs+queuedNs)
}
