package activity

import (
	"maps"

	"github.com/gpurec/gpurec/analyze/stats"
)

// An event that was created before the recording may have timing or not. Its records show it: between two anchors of
// a channel, the operations without a call are the records of events with timing. The numbers of records and of
// operations give equations with one unknown for each event, 0 or 1.

// maxTimedEvents bounds the events in equations. For further ones, the equations decide nothing.
const maxTimedEvents = 128

// timedEvents has the normal equations for events of unknown timing.
type timedEvents struct {
	columns map[handleKey]int
	assumed map[handleKey]bool // the events that are taken for events with timing
	matrix  [maxTimedEvents][maxTimedEvents]float64
	right   [maxTimedEvents]float64
	counts  [maxTimedEvents]float64 // memory of add
}

// markedEvent is the record of an event of unknown timing, after a number of calls of the channel.
type markedEvent struct {
	column      int
	after       int64
	isOperation bool // it is taken for an operation
}

// maxMarkedEvents bounds the records of a channel since its last anchor.
const maxMarkedEvents = 1 << 16

// noteMark notes the record of an event of unknown timing on a channel.
func (r *reader) noteMark(c *Call, channel *channelState) {
	if channel == nil || !c.AnyTiming {
		return
	}
	if r.timings == nil {
		r.timings = &timedEvents{columns: make(map[handleKey]int), assumed: make(map[handleKey]bool)}
	}
	key, isOperation := handleKey{c.Pid, c.Event}, c.Op == OpRecordEvent
	if isOperation {
		r.timings.assumed[key] = true
	}
	column, ok := r.timings.columns[key]
	if !ok {
		if column = len(r.timings.columns); column == maxTimedEvents {
			return
		}
		r.timings.columns[key] = column
	}
	if len(channel.marked) < maxMarkedEvents {
		channel.marked = append(channel.marked, markedEvent{column, channel.order.issued(), isOperation})
	}
}

// noteTimings adds the equation of the time up to an anchor, at which the operations of a number of calls had begun.
// Records next to an anchor may belong to the time before or after it, so then there is no equation.
func (c *channelState) noteTimings(begun int64) {
	n, isExact, operations := 0, c.anchored, c.least-c.anchor
	for ; n < len(c.marked) && c.marked[n].after < begun; n++ {
		isExact = isExact && c.marked[n].after > c.anchorBegun
		if c.marked[n].isOperation {
			operations++
		}
	}
	if n < len(c.marked) && c.marked[n].after == begun {
		isExact = false
	}
	if isExact && n > 0 && n < maxMarkedEvents && !c.isInGapSinceAnchor() {
		c.reader.timings.add(c.marked[:n], float64(operations))
	}
	c.marked = append(c.marked[:0], c.marked[n:]...)
	c.anchorBegun = begun
}

// add adds an equation: a number of operations without a call are those of some records. Equations of few records count
// more, because fewer of them have other operations.
func (e *timedEvents) add(marks []markedEvent, operations float64) {
	if operations > float64(len(marks)) {
		return // there are other operations
	}
	n := len(e.columns)
	clear(e.counts[:n])
	for i := range marks {
		e.counts[marks[i].column]++
	}
	weight := 1 / float64(len(marks)*len(marks))
	for i, count := range e.counts[:n] {
		if count == 0 {
			continue
		}
		e.right[i] += weight * count * operations
		for k, other := range e.counts[:n] {
			e.matrix[i][k] += weight * count * other
		}
	}
}

// solve returns the events whose records add operations: where the equations do not decide it, those that were taken
// for such. isNew reports that they are others than those, and isSure that the equations decide it for all events.
func (e *timedEvents) solve() (timed map[handleKey]bool, isNew, isSure bool) {
	const ridge, unsure = 1e-3, 0.2
	n := len(e.columns)
	x, right, matrix := make([]float64, n), make([]float64, n), make([][]float64, n)
	for i := range matrix {
		matrix[i], right[i] = append([]float64(nil), e.matrix[i][:n]...), e.right[i]
		matrix[i][i] += ridge
	}
	stats.SolveNonNegative(matrix, right, x)
	timed, isSure = maps.Clone(e.assumed), n < maxTimedEvents
	for key, i := range e.columns {
		if e.matrix[i][i] == 0 {
			isSure = false
			continue
		}
		if x[i] > unsure && x[i] < 1-unsure {
			isSure = false
		}
		if isTimed := x[i] > 0.5; isTimed != timed[key] {
			timed[key], isNew = isTimed, true
		}
	}
	return timed, isNew, isSure
}
