package hosttime

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// Limits of chains of wakers. With a wait that exceeds them, its own cause counts.
const (
	maxLinks = 8
	maxSteps = 1000 // waits of other threads that are looked at for one wait
	// maxPieces bounds the pieces into which timers and signals cut a wait.
	maxPieces = 1000
)

// driverWaker is the name of the thread of the CUDA driver that ends waits for the GPU.
const driverWaker = "cuda-EvtHandlr"

// chain is the way of wakers from the thread that is explained to the thread that is looked at.
type chain struct {
	threads []origin.Thread // wakers; empty: the thread itself is looked at
	self    origin.Thread   // the thread that is explained, if threads is not empty
	here    Chain           // of parts of the thread that is looked at
}

// add adds time to the part of a place of the thread that is looked at.
func (h *History) add(at Place, ns, certainNs int64, samples int32) {
	at.Chain = h.chainTo(at.Stack)
	h.parts.add(at, ns, certainNs, samples)
}

// addBeyond adds time outside of the span to the part of a place of the thread that is looked at.
func (h *History) addBeyond(at Place, ns int64) {
	at.Chain = h.chainTo(at.Stack)
	h.parts.addBeyond(at, ns)
}

// chainTo returns the chain to a stack of the thread that is looked at.
func (h *History) chainTo(stack int32) Chain {
	c := h.chain.here
	c.InLoader = c.InLoader || c.IsOther() && h.index.isInLoader(stack)
	return c
}

// isInLoader reports whether a stack waits for, or works in, a data loader.
func (idx *index) isInLoader(stack int32) bool {
	use := idx.isLoader[stack]
	return use != loaderNone && use != queueWaits
}

// addAsleep adds a part of a wait without its time in run queues: what its waker did since it is watched, and the wait
// itself for the time before. So a waker's time counts only between the begin of the wait and the
// wake-up, and its own waits count as what their wakers did. The parts add up to the time.
func (h *History) addAsleep(v *threadView, w *Wait, fromNs, toNs int64) {
	waker, ok := h.wakerOf(v, w)
	if !ok {
		h.addOwnWait(w, toNs-fromNs)
		return
	}
	knownNs := min(toNs, max(fromNs, h.index.firstNs[waker]))
	if knownNs > fromNs {
		h.addOwnWait(w, knownNs-fromNs)
	}
	if knownNs == toNs {
		return
	}
	h.follow(w, waker, func() { h.addSpan(waker, knownNs, toNs) })
}

// follow calls do while waker, which ended a wait of the thread that is looked at, is looked at.
func (h *History) follow(w *Wait, waker origin.Thread, do func()) {
	c, before := &h.chain, h.chain.here
	if len(c.threads) == 0 {
		at := h.placeOf(w)
		c.self, c.here = w.Thread, Chain{Cause: at.Cause, Stack: at.Stack}
	}
	c.here.InLoader = c.here.InLoader || h.index.isInLoader(w.Stack)
	c.threads = append(c.threads, waker)
	c.here.End, c.here.EndName, c.here.Links = waker, h.index.names[waker], int8(len(c.threads))
	do()
	c.threads, c.here = c.threads[:len(c.threads)-1], before
}

// wakerOf returns the thread whose activity explains a wait of the thread that is looked at. ok is false if the
// wait has its own cause, or if the thread is not known.
func (h *History) wakerOf(v *threadView, w *Wait) (waker origin.Thread, ok bool) {
	if len(h.chain.threads) == 0 {
		h.steps = 0
	}
	if h.steps++; h.steps > maxSteps || len(h.chain.threads) >= maxLinks || w.IsOpen || !canDependOnOthers(w) ||
		w.Fact.Reason == format.ReasonGIL && len(h.chain.threads) == 0 {
		return waker, false
	}
	last := v.lastPiece(w)
	owner := origin.Thread{Pid: w.Fact.OwnerPid, Tid: w.Fact.OwnerTid}
	switch by := last.Fact.EndedBy; {
	case w.Fact.Reason == format.ReasonGIL:
		if waker = owner; owner.Tid == 0 {
			waker = h.index.gilHolder(w)
		}
	case by == format.EndedByThread || by == format.EndedBySender:
		waker = last.Waker
	default: // a lock has an owner, whose end of the wait was not seen
		waker = owner
	}
	isOnWay := waker == w.Thread || slices.Contains(h.chain.threads, waker) ||
		len(h.chain.threads) > 0 && waker == h.chain.self
	_, isWatched := h.index.firstNs[waker]
	return waker, isWatched && !isOnWay && last.Fact.Waker != driverWaker
}

// gilHolder returns the thread that held the GIL for most of the time around a wait for it, by readings of the
// interpreter. Without a thread that had two thirds of the readings, it returns none.
func (idx *index) gilHolder(w *Wait) (holder origin.Thread) {
	all, most := 0.0, 0.0
	for tid, points := range idx.gilHeld[w.Pid] {
		by, _, _, ok := growth(points, w.FromNs, w.ToNs)
		if !ok || tid == w.Tid {
			continue
		}
		all += by
		if by > most {
			most, holder = by, origin.Thread{Pid: w.Pid, Tid: tid}
		}
	}
	if 3*most < 2*all {
		return origin.Thread{}
	}
	return holder
}

// canDependOnOthers reports whether a wait can have a cause in another thread. Where wake-ups were not recorded, no wait
// has. A wait for the GIL depends on the thread that holds it: who hands it over is no cause. In a chain that thread is
// the next link. For the thread that is explained, the GIL itself is the cause.
func canDependOnOthers(w *Wait) bool {
	if w.Fact.EndedBy == "" || w.State == format.StateRunnable {
		return false
	}
	switch w.Fact.Reason {
	case format.ReasonSleep, format.ReasonFile, format.ReasonPageFault, format.ReasonCUDA,
		format.ReasonStopped, format.ReasonRunQueue, format.ReasonThrottled:
		return false
	}
	return true
}

// lastPiece returns the last piece of a wait that timers or signals have cut: it says who ended the wait.
func (v *threadView) lastPiece(w *Wait) *Wait {
	const aheadNs = aroundNs // what the view has
	last, n := w, 0
	for _, g := range v.groups {
		for i := g.firstWait(w.ToNs); i < len(g.waits) && g.waits[i].FromNs < w.ToNs+aheadNs; i++ {
			next := &g.waits[i]
			if next.State == format.StateRunnable {
				continue
			}
			if n++; !next.Continues || n > maxPieces {
				return last
			}
			last = next
		}
	}
	return last
}
