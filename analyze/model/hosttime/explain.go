package hosttime

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// nearNs is how far samples may be from a span without any, to tell in which lines it ran.
const nearNs = 1_000_000_000

// Explain returns how a thread spent a span of Unix ns, the longest part first. The parts add up to the
// span. CPU time without a sample in the span has the lines of samples nearby. The result is valid until
// the next call.
func (h *History) Explain(pid, tid int32, fromNs, toNs int64) Parts {
	parts := h.Measure(pid, tid, fromNs, toNs)
	v := h.viewOf(origin.Thread{Pid: pid, Tid: tid}, fromNs, toNs)
	for i := range parts {
		if parts[i].Cause == CauseCPU && parts[i].Stack == 0 && parts[i].Samples == 0 {
			ns := parts[i].Ns
			h.parts[i].Ns = 0
			h.divide(v, ns, fromNs-nearNs, toNs+nearNs)
			break
		}
	}
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
	th := origin.Thread{Pid: pid, Tid: tid}
	if len(h.index.threads[th]) == 0 && len(h.index.pauses[pid]) == 0 {
		h.parts.add(Place{}, toNs-fromNs, 0, 0)
		return h.parts
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
	h.parts.sort()
	return h.parts
}

// addWait adds the part of a wait between two times.
func (h *History) addWait(v *threadView, w *Wait, fromNs, toNs int64) {
	queuedNs := max(0, toNs-max(fromNs, w.queuedFromNs()))
	if waitNs := toNs - fromNs - queuedNs; waitNs > 0 {
		at := h.placeOf(w)
		certainNs := waitNs
		if w.IsInferred || at.Cause == CauseWait {
			certainNs = 0
		}
		h.parts.add(at, waitNs, certainNs, 0)
	}
	if queuedNs == 0 {
		return
	}
	queue := Place{Cause: CauseRunQueue, Stack: w.Stack, InLoader: h.index.isLoader[w.Stack] == loaderInside}
	if w.State == format.StateRunnable {
		queue.Owner = origin.Thread{Pid: w.Fact.OwnerPid, Tid: w.Fact.OwnerTid}
		queue.OwnerName = w.Fact.Owner
	}
	share, cgroup := h.throttledShare(v, w)
	throttledNs := int64(float64(queuedNs) * share)
	if w.State == format.StateRunnable && w.Fact.Reason == format.ReasonThrottled {
		throttledNs = queuedNs
	}
	h.parts.add(queue, queuedNs-throttledNs, queuedNs-throttledNs, 0)
	queue.Cause, queue.Owner, queue.OwnerName, queue.Target = CauseThrottled, origin.Thread{}, "", cgroup
	h.parts.add(queue, throttledNs, 0, 0)
}

// placeOf returns where and for what the thread waited.
func (h *History) placeOf(w *Wait) Place {
	f := w.Fact
	cause, ok := reasonCauses[f.Reason]
	use := h.index.isLoader[w.Stack]
	switch {
	case !ok:
		cause = CauseWait
	case cause == CauseRunQueue && w.State != format.StateRunnable:
		cause = CauseWait
	}
	isForWorkers := cause == CauseLock || cause == CausePipe || cause == CauseNetwork || cause == CauseWait
	if use == loaderWaits && isForWorkers {
		cause = CauseLoader
	}
	return Place{
		Cause: cause, Stack: w.Stack, InLoader: use == loaderInside, Target: f.Target, OwnerName: f.Owner,
		Owner: origin.Thread{Pid: f.OwnerPid, Tid: f.OwnerTid},
	}
}

// throttledShare returns the share of the time in run queues around a wait in which the CPU limit of a
// cgroup can have held the thread up, from the growth of the cgroup's counter.
func (h *History) throttledShare(v *threadView, w *Wait) (share float64, cgroup string) {
	for path, points := range h.index.throttled[w.Pid] {
		by, fromNs, toNs, ok := growth(points, w.queuedFromNs(), w.ToNs)
		if !ok || by == 0 {
			continue
		}
		_, queued := v.waitNs(fromNs, toNs)
		s := min(1, by/float64(max(1, queued)))
		if s > share || s == share && path > cgroup { // the longest path is the nearest cgroup
			share, cgroup = s, path
		}
	}
	return share, cgroup
}

// addRunning adds a time without a wait. Samples and counters limit how much of it the thread ran.
func (h *History) addRunning(v *threadView, th origin.Thread, fromNs, toNs int64) {
	if toNs <= fromNs {
		return
	}
	at := fromNs
	for _, p := range h.pausesIn(th, fromNs, toNs) {
		begin, end := max(p.FromNs, at), min(p.ToNs, toNs)
		if end <= begin {
			continue
		}
		h.addConfirmed(v, at, begin)
		h.addPause(v, p, begin, end)
		at = end
	}
	h.addConfirmed(v, at, toNs)
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

// addPause adds a part of a garbage collection.
func (h *History) addPause(v *threadView, p *Pause, fromNs, toNs int64) {
	stack := p.Stack
	v.eachSample(fromNs, toNs, func(s *CPUSample) { stack = s.Stack })
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
	h.parts.add(Place{Cause: CauseGC, Stack: stack}, toNs-fromNs, max(0, certainNs), 0)
}

// addConfirmed adds the CPU time in a span without waits, and what is unknown of it.
func (h *History) addConfirmed(v *threadView, fromNs, toNs int64) {
	if toNs <= fromNs {
		return
	}
	spanNs := toNs - fromNs
	samples := int64(0)
	v.eachSample(fromNs, toNs, func(*CPUSample) { samples++ })
	share, queuedShare, isCounted := v.runningShare(fromNs, toNs)
	cpuNs := int64(float64(spanNs) * share)
	if h.index.sampleNs > 0 { // n samples cannot be of more than n+1 periods, with some play
		cpuNs = min(cpuNs, samples*h.index.sampleNs+h.index.sampleNs*3/2)
	} else if !isCounted {
		cpuNs = 0
	}
	queuedNs := min(spanNs-cpuNs, int64(float64(spanNs)*queuedShare))
	h.divide(v, cpuNs, fromNs, toNs)
	h.parts.add(Place{Cause: CauseRunQueue}, queuedNs, 0, 0)
	h.parts.add(Place{}, spanNs-cpuNs-queuedNs, 0, 0)
}

// divide divides CPU time by the samples in a span. Without samples it has no line.
func (h *History) divide(v *threadView, ns, fromNs, toNs int64) {
	left := int64(0)
	v.eachSample(fromNs, toNs, func(*CPUSample) { left++ })
	if left == 0 {
		h.parts.add(Place{Cause: CauseCPU}, ns, 0, 0)
		return
	}
	v.eachSample(fromNs, toNs, func(s *CPUSample) {
		at := Place{Cause: CauseCPU, Stack: s.Stack, InLoader: h.index.isLoader[s.Stack] == loaderInside}
		if h.index.isDriver[s.Stack] {
			at.Cause = CauseDriver
		}
		part := ns / left
		h.parts.add(at, part, 0, 1)
		ns, left = ns-part, left-1
	})
}

// shares tell how a thread spent the time without waits between two readings of its counters.
type shares struct {
	fromNs, toNs    int64
	running, queued float64
}

// runningShare returns the share of the time without waits in which the thread ran, and that in which it was
// in run queues, from its counters around a span. Without counters it may have run all the time.
func (v *threadView) runningShare(fromNs, toNs int64) (share, queuedShare float64, isCounted bool) {
	for _, g := range v.groups {
		ran, sinceNs, untilNs, ok := growth(g.running, fromNs, toNs)
		if !ok {
			continue
		}
		if s := &v.shares; s.fromNs != sinceNs || s.toNs != untilNs {
			queued, _, _, _ := growth(g.runnable, fromNs, toNs)
			v.shares = v.sharesOf(sinceNs, untilNs, ran, queued)
		}
		return v.shares.running, v.shares.queued, true
	}
	return 1, 0, false
}

// sharesOf returns the shares of a span in which the counters grew by ran and queued.
func (v *threadView) sharesOf(fromNs, toNs int64, ran, queued float64) shares {
	const tolerated = 0.95 // the counters and the waits are not read at the same time
	waits, queuedInWaits := v.waitNs(fromNs, toNs)
	rest := float64(toNs - fromNs - waits)
	if rest <= 0 || ran >= tolerated*rest {
		return shares{fromNs, toNs, 1, 0}
	}
	share := ran / rest
	return shares{fromNs, toNs, share, max(0, min(1-share, (queued-float64(queuedInWaits))/rest))}
}
