package idle

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/activity"
)

// class tells copies and collectives from other operations.
type class uint8

const (
	classKernel     class = iota // kernels, graphs, fills and copies on the device
	classCopy                    // copies between host and device
	classCollective              // kernels of NCCL
	classNone                    // records of events
)

// classes tells the class of an operation by its label.
type classes struct{ collective []bool }

func newClasses(labels []activity.Label) *classes {
	c := &classes{collective: make([]bool, len(labels))}
	for i := range labels {
		c.collective[i] = strings.Contains(strings.ToLower(labels[i].Kernel), "nccl")
	}
	return c
}

func (c *classes) of(w *activity.Call) class {
	switch w.Op {
	case activity.OpRecordEvent:
		return classNone
	case activity.OpCopyToDevice, activity.OpCopyToHost:
		return classCopy
	case activity.OpKernel:
		if w.Label >= 0 && int(w.Label) < len(c.collective) && c.collective[w.Label] {
			return classCollective
		}
	}
	return classKernel
}

// placed is an operation with its probable time, in Unix ns. possible contains the true time, and certain is
// contained in it, except for the errors of estimated durations.
type placed struct {
	call                          *operation
	class                         class
	startNs, endNs                int64
	certain, possible             activity.Interval
	shortestNs, longestNs         float64 // bounds of the duration
	measuredEndNs                 int64
	isStartMeasured               bool
	isEstimated                   bool // of the start
	isMeasured, isLimited, hasEnd bool // of the end; isLimited: only bounds are known
}

// operation has the facts of an operation that are kept until the gap that it ends is explained.
type operation struct {
	callNs, returnNs     int64 // Unix ns; returnNs is UnknownNs if it was not recorded
	startHiNs, endLoNs   int64
	pid, tid, device     int32
	stack, label, stream int32
	op                   activity.Op
	class                class
	hold                 *activity.Hold
}

// placer gives operations their probable times. Operations of a stream on a channel come in order.
type placer struct {
	classes *classes
	labels  []activity.Label
	queues  map[queueKey]*queue
	lastKey queueKey // of last, the queue of the last operation
	last    *queue
	chunk   []operation
	// spare has memory of operations that are not kept after eachPlaced has yielded them; nil: all are kept.
	spare []*operation
	// residualsNs are the uncertainties of the clocks of channels. A start with a narrower interval was
	// sampled.
	residualsNs map[int32]int64
	// endsBy are the first operations that waited for an operation, by its call.
	endsBy map[callKey]waiterStart
}

type queueKey struct{ stream, channel int32 }

// callKey identifies a call.
type callKey struct {
	pid     int32
	startNs int64
}

const (
	// startDelayNs is the time from a call until an idle GPU begins its operation, with the call itself. On an
	// H200 the median is 2.2 µs after the return.
	startDelayNs = 4000
	// copySlackNs is added to the bounds of copies.
	copySlackNs = 3000
	// lateStartNs is longer than the time from the return of a call until an idle GPU begins its operation.
	lateStartNs = 20_000
	// seenNs is the mean time from the start of an operation until its progress word shows it.
	seenNs = 500
	// pauseNs is the mean time between two operations in the queue.
	pauseNs = 1000
	// unknownKernelNs and copyBytesPerNs give operations of unknown duration a length.
	unknownKernelNs, copyBytesPerNs = 5000, 25
	// maxEndsBy bounds endsBy.
	maxEndsBy = 1 << 18
)

// queueOf returns the queue of a stream on a channel.
func (p *placer) queueOf(key queueKey) *queue {
	if p.last != nil && p.lastKey == key {
		return p.last
	}
	q := p.queues[key]
	if q == nil {
		q = new(queue)
		p.queues[key] = q
	}
	p.lastKey, p.last = key, q
	return q
}

// queuesInOrder returns the queues by stream and channel.
func (p *placer) queuesInOrder() []*queue {
	keys := slices.SortedFunc(maps.Keys(p.queues), func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.channel, b.channel))
	})
	list := make([]*queue, len(keys))
	for i, key := range keys {
		list[i] = p.queues[key]
	}
	return list
}

// place returns the probable time of an operation after the operations of its queue so far. Without a known start, ok
// is false.
func (p *placer) place(w *activity.Operation, q *queue) (at placed, ok bool) {
	if w.StartQuality < activity.Estimated {
		return at, false
	}
	at = placed{
		class: p.classes.of(&w.Call), startNs: w.StartNs(), hasEnd: w.EndQuality >= activity.Bounded || w.Mean != nil,
		isMeasured: w.EndQuality == activity.Measured, isStartMeasured: w.StartQuality == activity.Measured,
		isEstimated: w.StartQuality == activity.Estimated,
		isLimited:   w.EndQuality != activity.Measured && (w.Mean == nil || w.Mean.IsLimited),
	}
	if at.isEstimated && w.Start.WidthNs() <= 2*p.residualsNs[w.Channel] {
		at.startNs, at.isStartMeasured = max(w.Start.LoNs, w.Start.HiNs-seenNs), true
	}
	switch {
	case at.isStartMeasured:
	case at.class == classCopy && at.isMeasured: // its start follows from its end
		at.startNs = w.StartNs()
	default:
		at.startNs = max(w.Start.LoNs, min(w.Start.HiNs, max(q.endNs(), w.Call.StartNs+startDelayNs)))
	}
	end, quality := w.ProbableEnd()
	if quality == activity.Unknown {
		end = activity.Interval{LoNs: at.startNs, HiNs: at.startNs}
	}
	if at.isLimited && w.Mean != nil && w.EndQuality < activity.Bounded {
		end.HiNs += int64(w.Mean.ErrorNs / 2)
	}
	at.setEnd(w, p.guessNs(&w.Call))
	at.certain = activity.Interval{LoNs: w.Start.HiNs, HiNs: min(end.LoNs, at.endNs)}
	at.possible = activity.Interval{LoNs: w.Start.LoNs, HiNs: max(end.HiNs, at.endNs)}
	if at.class == classCopy && at.isMeasured {
		at.boundStartOfCopy(w)
	}
	if at.class == classCopy { // the clocks of channels with few operations are less exact
		at.certain.LoNs, at.certain.HiNs = at.certain.LoNs+copySlackNs, at.certain.HiNs-copySlackNs
		at.possible.LoNs, at.possible.HiNs = max(
			at.possible.LoNs-copySlackNs,
			w.Call.StartNs,
		), at.possible.HiNs+copySlackNs
	}
	if at.isEstimated {
		at.certain, at.possible.LoNs = activity.Interval{}, w.Call.StartNs
	}
	p.limitByWaiters(w, &at)
	at.setDuration(w)
	at.call = p.keep(w, at.class)
	at.call.startHiNs, at.call.endLoNs = w.Start.HiNs, end.LoNs
	return at, true
}

// boundStartOfCopy bounds the start of a copy whose end is measured.
func (p *placed) boundStartOfCopy(w *activity.Operation) {
	const shortest, longest = 0.75, 1.25 // copies of one size, in their mean duration
	switch {
	case w.BeginsAtCall() && w.Call.EndNs != activity.UnknownNs:
		p.certain.LoNs = min(w.Call.EndNs+lateStartNs, p.certain.HiNs)
	case w.Mean != nil && !w.Mean.IsLimited:
		p.certain.LoNs = max(w.Start.LoNs, w.End.HiNs-int64(shortest*w.Mean.MeanNs))
		p.possible.LoNs = max(p.possible.LoNs, w.End.LoNs-int64(longest*w.Mean.MeanNs))
	}
}

// setEnd sets the probable end. A measured end of an operation whose start is not measured is kept for the queue,
// because the start may be wrong.
func (p *placed) setEnd(w *activity.Operation, guessNs int64) {
	switch {
	case p.isMeasured && (p.isStartMeasured || w.Mean == nil):
		p.endNs = w.EndNs()
	case w.Mean != nil:
		p.endNs = p.startNs + int64(w.Mean.MeanNs)
	default:
		p.endNs = p.startNs + guessNs
	}
	if p.isMeasured {
		p.measuredEndNs = w.EndNs()
		p.endNs = min(p.endNs, p.measuredEndNs)
	} else if w.EndQuality >= activity.Bounded {
		p.endNs = max(min(p.endNs, w.End.HiNs), w.End.LoNs)
	}
	p.endNs = max(p.endNs, p.startNs+1)
}

// guessNs returns a length for an operation of unknown duration.
func (p *placer) guessNs(c *activity.Call) int64 {
	if c.Label >= 0 && int(c.Label) < len(p.labels) && p.labels[c.Label].Bytes > 0 {
		return unknownKernelNs + p.labels[c.Label].Bytes/copyBytesPerNs
	}
	return unknownKernelNs
}

// waiterStart is the start of the first operation that waited for another one.
type waiterStart struct {
	callNs       int64
	ns, latestNs int64 // probable start, and its upper bound, Unix ns
}

// noteWaiter notes when an operation begins that waited for another one.
func (p *placer) noteWaiter(at *placed) {
	h := at.call.hold
	if h == nil || h.After.StartNs == 0 || len(p.endsBy) >= maxEndsBy {
		return
	}
	key := callKey{at.call.pid, h.After.StartNs}
	if first, ok := p.endsBy[key]; !ok || at.startNs < first.ns {
		p.endsBy[key] = waiterStart{at.call.callNs, at.startNs, at.call.startHiNs}
	}
}

// limitByWaiters uses that an operation ends before operations that wait for it begin. If nothing else is known, and
// the first of them was launched early, it ended then.
func (p *placer) limitByWaiters(w *activity.Operation, at *placed) {
	first, ok := p.endsBy[callKey{w.Call.Pid, w.Call.StartNs}]
	if !ok || at.isMeasured || first.ns <= at.startNs {
		return
	}
	latestNs := first.latestNs
	if at.hasEnd && (w.Mean == nil || !w.Mean.IsLimited) {
		latestNs = min(latestNs, at.possible.HiNs)
	}
	if w.EndQuality >= activity.Bounded {
		latestNs = min(latestNs, w.End.HiNs)
	}
	if at.isLimited && first.callNs < at.endNs {
		at.endNs = first.ns - pauseNs
	}
	at.endNs = max(at.startNs+1, min(at.endNs, first.ns, latestNs))
	at.possible.HiNs = max(at.endNs, latestNs)
	at.hasEnd = true
}

// setDuration sets the bounds of the duration.
func (p *placed) setDuration(w *activity.Operation) {
	p.shortestNs, p.longestNs = 0, float64(p.possible.WidthNs())
	if w.DurationQuality >= activity.Bounded {
		p.shortestNs, p.longestNs = float64(w.Duration.LoNs), float64(w.Duration.HiNs)
	}
	errors := 2.0
	if p.isLimited { // the greatest duration is a mean of limits
		errors = 2.5
	}
	if w.Mean != nil && w.DurationQuality != activity.Measured {
		p.shortestNs = max(p.shortestNs, min(p.longestNs, w.Mean.MeanNs-2*w.Mean.ErrorNs))
		p.longestNs = min(p.longestNs, max(p.shortestNs, w.Mean.MeanNs+errors*w.Mean.ErrorNs))
	}
}

// newOperation returns memory for an operation.
func (p *placer) newOperation() *operation {
	const chunk = 1024
	if n := len(p.spare); n > 0 {
		w := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return w
	}
	if len(p.chunk) == 0 {
		p.chunk = make([]operation, chunk)
	}
	w := &p.chunk[0]
	p.chunk = p.chunk[1:]
	return w
}

// keep keeps the call of an operation.
func (p *placer) keep(w *activity.Operation, c class) *operation {
	kept := p.newOperation()
	*kept = operation{
		callNs:   w.Call.StartNs,
		returnNs: w.Call.EndNs,
		pid:      w.Call.Pid,
		tid:      w.Call.Tid,
		device:   w.Call.Device,
		stack:    w.Call.Stack,
		label:    w.Call.Label,
		stream:   w.Stream,
		op:       w.Call.Op,
		class:    c,
		hold:     w.Hold,
	}
	return kept
}
