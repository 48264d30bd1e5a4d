package hosttime

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// nearNs is the largest distance of samples from a span without any, for them to name the lines in which it ran.
const nearNs = 1_000_000_000

// Explain returns how a thread spent a span of Unix ns, the longest part first. The parts add up to the
// span. A wait that another thread ended is divided into what that thread did meanwhile: see Chain. CPU time
// without a sample in the span has the lines of samples nearby. The result is valid until the next call.
func (h *History) Explain(pid, tid int32, fromNs, toNs int64) Parts {
	for i := range len(h.Measure(pid, tid, fromNs, toNs)) {
		p := h.parts[i]
		if p.Cause != CauseCPU || p.Stack != 0 || p.Samples != 0 {
			continue
		}
		th := origin.Thread{Pid: pid, Tid: tid}
		if p.Chain.IsOther() {
			th = p.Chain.End
		}
		v := h.viewOf(th, fromNs, toNs)
		h.parts[i].Ns = 0
		h.chain.here = p.Chain
		h.divide(v, p.Ns, fromNs-nearNs, toNs+nearNs, v.countSamples(fromNs-nearNs, toNs+nearNs))
	}
	h.chain.here = Chain{}
	kept := h.parts[:0]
	for _, p := range h.parts {
		if p.Ns > 0 {
			kept = append(kept, p)
		}
	}
	h.parts = kept
	h.parts.sort()
	return h.parts
}

// Measure is Explain without guesses from samples nearby: CPU time without a sample in the span has no line.
// A caller that sums up many spans divides this time by the samples of all of them.
func (h *History) Measure(pid, tid int32, fromNs, toNs int64) Parts {
	h.parts = h.parts[:0]
	if toNs <= fromNs {
		return h.parts
	}
	h.addSpan(origin.Thread{Pid: pid, Tid: tid}, fromNs, toNs)
	h.parts.sort()
	return h.parts
}

// addSpan adds how a thread spent a span.
func (h *History) addSpan(th origin.Thread, fromNs, toNs int64) {
	if len(h.index.threads[th]) == 0 && len(h.index.pauses[th.Pid]) == 0 {
		h.add(Place{}, toNs-fromNs, 0, 0)
		return
	}
	v := h.viewOf(th, fromNs, toNs)
	at := fromNs
	v.eachWait(fromNs, toNs, func(w *Wait) {
		begin, end := max(w.FromNs, at), min(w.ToNs, toNs)
		if end <= at {
			return
		}
		h.addRunning(v, th, at, begin)
		h.addWait(v, w, begin, end)
		at = end
	})
	h.addRunning(v, th, at, toNs)
}

// addWait adds the part of a wait between two times.
func (h *History) addWait(v *threadView, w *Wait, fromNs, toNs int64) {
	queuedNs := max(0, toNs-max(fromNs, w.queuedFromNs()))
	if waitNs := toNs - fromNs - queuedNs; waitNs > 0 {
		h.addAsleep(v, w, fromNs, toNs-queuedNs)
	}
	if queuedNs == 0 {
		return
	}
	queue := Place{Stack: w.Stack, InLoader: h.index.isLoader[w.Stack] == loaderInside}
	if w.State == format.StateRunnable {
		queue.Owner = origin.Thread{Pid: w.Fact.OwnerPid, Tid: w.Fact.OwnerTid}
		queue.OwnerName = w.Fact.Owner
	}
	if w.State == format.StateRunnable && w.Fact.Reason == format.ReasonThrottled {
		queue.Cause = CauseThrottled
		h.add(queue, queuedNs, queuedNs, 0)
		return
	}
	h.addQueued(v, w.Thread, queue, w.queuedFromNs(), w.ToNs, queuedNs, 1)
}

// addOwnWait adds a part of a wait that no chain of wakers explains.
func (h *History) addOwnWait(w *Wait, ns int64) {
	at := h.placeOf(w)
	certainNs := ns
	if w.IsInferred || at.Cause == CauseWait {
		certainNs = 0
	}
	h.add(at, ns, certainNs, 0)
}

// addQueued adds ns that a thread was in run queues between two times. A part of it is due to the CPU limit.
func (h *History) addQueued(v *threadView, th origin.Thread, at Place, fromNs, toNs, ns int64, certain float64) {
	if ns <= 0 {
		return
	}
	share, cgroup := h.throttledShare(v, th.Pid, fromNs, toNs)
	throttledNs := int64(float64(ns) * share)
	at.Cause = CauseRunQueue
	h.add(at, ns-throttledNs, int64(float64(ns-throttledNs)*certain), 0)
	at.Cause, at.Owner, at.OwnerName, at.Target = CauseThrottled, origin.Thread{}, "", cgroup
	h.add(at, throttledNs, 0, 0)
}

// placeOf returns where and for what the thread waited.
func (h *History) placeOf(w *Wait) Place {
	f := w.Fact
	cause, ok := reasonCauses[f.Reason]
	use := h.index.isLoader[w.Stack]
	switch {
	case f.Waker == driverWaker:
		cause = CauseCUDA
	case !ok:
		cause = CauseWait
	case cause == CauseRunQueue && w.State != format.StateRunnable:
		cause = CauseWait
	}
	isForOthers := cause == CauseLock || cause == CausePipe || cause == CauseNetwork || cause == CauseWait
	switch {
	case use == loaderWaits && isForOthers:
		cause = CauseLoader
	case use == queueWaits && isForOthers:
		cause = CauseQueue
	}
	at := Place{
		Cause: cause, Stack: w.Stack, InLoader: use == loaderInside, Target: f.Target, OwnerName: f.Owner,
		Owner: origin.Thread{Pid: f.OwnerPid, Tid: f.OwnerTid},
	}
	if canDependOnOthers(w) && f.EndedBy != format.EndedBySignal && f.Reason != format.ReasonGIL {
		at.Waker, at.WakerName = w.Waker, f.Waker
	}
	return at
}

// throttledShare returns the share of the time in run queues around a span in which the CPU limit of a cgroup
// can have held the thread up, from the growth of the cgroup's counter.
func (h *History) throttledShare(v *threadView, pid int32, fromNs, toNs int64) (share float64, cgroup string) {
	for path, points := range h.index.throttled[pid] {
		by, sinceNs, untilNs, ok := growth(points, fromNs, toNs)
		if !ok || by == 0 {
			continue
		}
		s := min(1, by/max(1, h.queuedNs(v, sinceNs, untilNs)))
		if s > share || s == share && path > cgroup { // the longest path is the nearest cgroup
			share, cgroup = s, path
		}
	}
	return share, cgroup
}

// queuedNs returns how long a thread was in run queues in a span: by its counters, or else by its waits.
func (h *History) queuedNs(v *threadView, fromNs, toNs int64) float64 {
	_, queued := v.waitNs(fromNs, toNs)
	for _, g := range v.groups {
		if by, _, _, ok := growth(g.runnable, fromNs, toNs); ok {
			return max(by, float64(queued))
		}
	}
	return float64(queued)
}

// addRunning adds a time without a wait. Samples and counters limit how much of it the thread ran.
func (h *History) addRunning(v *threadView, th origin.Thread, fromNs, toNs int64) {
	if toNs <= fromNs {
		return
	}
	at := fromNs
	for _, p := range h.pausesIn(th, fromNs, toNs) {
		begin, end, beyondNs := p.within(at, toNs)
		if end <= begin {
			continue
		}
		h.addConfirmed(v, th, at, begin)
		h.addPause(v, p, begin, end, beyondNs)
		at = end
	}
	h.addConfirmed(v, th, at, toNs)
}

// within returns the part of a pause that counts in a span. The ends of a pause are estimated: each reading of the
// interpreter represents the time to the middle between it and the next one. This time counts in the span with
// the reading. beyondNs is the part of it that lies outside of the span. So many short pauses have the right sum:
// those with a reading make up for those without.
func (p *Pause) within(fromNs, toNs int64) (beginNs, endNs, beyondNs int64) {
	cellNs := min(p.UncertainNs, p.ToNs-p.FromNs)
	beginNs, endNs = max(p.FromNs, fromNs), min(p.ToNs, toNs)
	switch {
	case p.FromNs >= fromNs:
	case p.FromNs+cellNs/2 < fromNs:
		beginNs = max(beginNs, p.FromNs+cellNs)
	default:
		beyondNs += fromNs - p.FromNs
	}
	switch {
	case p.ToNs <= toNs:
	case p.ToNs-cellNs/2 >= toNs:
		endNs = min(endNs, p.ToNs-cellNs)
	default:
		beyondNs += p.ToNs - toNs
	}
	return beginNs, endNs, beyondNs
}

// pausesIn returns the garbage collections that may be those of a thread and overlap a span, in order.
func (h *History) pausesIn(th origin.Thread, fromNs, toNs int64) (list []*Pause) {
	all := h.index.pauses[th.Pid]
	lo, hi := 0, len(all)
	for lo < hi { // the first pause that begins in the span
		if mid := (lo + hi) / 2; all[mid].FromNs < fromNs {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	const before = 4 // pauses of other threads may lie between
	for i := max(0, lo-before); i < len(all) && all[i].FromNs < toNs; i++ {
		if all[i].ToNs > fromNs && (all[i].Tid == 0 || all[i].Tid == th.Tid) {
			list = append(list, &all[i])
		}
	}
	return list
}

// addPause adds a part of a garbage collection, and how much of it counts here although it lies outside.
func (h *History) addPause(v *threadView, p *Pause, fromNs, toNs, beyondNs int64) {
	stack, samples := p.Stack, int32(0)
	v.eachSample(fromNs, toNs, func(s *CPUSample) { stack, samples = s.Stack, samples+1 })
	certainNs := toNs - fromNs
	if p.FromNs == fromNs {
		certainNs -= p.UncertainNs
	}
	if p.ToNs == toNs {
		certainNs -= p.UncertainNs
	}
	if p.Tid == 0 {
		certainNs = 0
	}
	at := Place{Cause: CauseGC, Stack: stack}
	h.add(at, toNs-fromNs, max(0, certainNs), samples)
	h.addBeyond(at, beyondNs)
}

// addConfirmed adds the CPU time in a span without waits, and what is unknown of it.
func (h *History) addConfirmed(v *threadView, th origin.Thread, fromNs, toNs int64) {
	if toNs <= fromNs {
		return
	}
	spanNs := toNs - fromNs
	c := h.countersOf(v, fromNs, toNs)
	cpuNs := int64(float64(spanNs) * c.runningShare(fromNs))
	samples := v.countSamples(fromNs, toNs)
	if share, ok := v.ranShare(fromNs, toNs); ok {
		cpuNs = int64(float64(spanNs) * share)
	} else if period := h.index.sampleNs; period > 0 { // n samples cannot be of more than n+1 periods, with some play
		cpuNs = min(cpuNs, samples*period+period*3/2)
	} else if c == nil {
		cpuNs = 0
	}
	queuedNs := int64(float64(spanNs-cpuNs) * c.queuedShare())
	h.divide(v, cpuNs, fromNs, toNs, samples)
	h.addQueued(v, th, Place{}, fromNs, toNs, queuedNs, 0)
	h.add(Place{}, spanNs-cpuNs-queuedNs, 0, 0)
}

// ranShare returns the share of the time between two waits in which the thread ran, as the later wait says. ok is
// false if the waits around the span are not known.
func (v *threadView) ranShare(fromNs, toNs int64) (share float64, ok bool) {
	var before, after *Wait
	for _, g := range v.groups {
		i := g.firstWait(toNs)
		if i > 0 {
			before = &g.waits[i-1]
		}
		if i < len(g.waits) {
			after = &g.waits[i]
			break
		}
	}
	if before == nil || after == nil || after.RanNs == 0 || before.ToNs > fromNs || after.FromNs <= before.ToNs {
		return 0, false
	}
	return min(1, float64(after.RanNs)/float64(after.FromNs-before.ToNs)), true
}

// divide divides CPU time by the samples in a span. samples is their number. Without samples the time has no
// line.
func (h *History) divide(v *threadView, ns, fromNs, toNs, samples int64) {
	left := samples
	if left == 0 {
		h.add(Place{Cause: CauseCPU}, ns, 0, 0)
		return
	}
	v.eachSample(fromNs, toNs, func(s *CPUSample) {
		at := Place{Cause: CauseCPU, Stack: s.Stack, InLoader: h.index.isLoader[s.Stack] == loaderInside}
		if h.index.isDriver[s.Stack] {
			at.Cause = CauseDriver
		}
		part := ns / left
		h.add(at, part, 0, 1)
		ns, left = ns-part, left-1
	})
}
