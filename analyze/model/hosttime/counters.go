package hosttime

import (
	"cmp"
	"slices"
)

// counters have how a thread spent the time without waits between two readings of its counters. A nil
// *counters has none: the thread may have run all the time.
type counters struct {
	fromNs, toNs int64
	queued       float64 // share of the time without a wait that it did not run, in which it was in run queues
	pieces       []piece // in order of time
}

// piece is a time between two waits.
type piece struct {
	fromNs, toNs int64
	// unsampledNs is the part that its CPU samples do not represent.
	unsampledNs int64
	running     float64 // share in which the thread ran
}

// countersOf returns the growth of the counters around a span; nil without counters on both sides.
func (h *History) countersOf(v *threadView, fromNs, toNs int64) *counters {
	if c := v.counters; c != nil && c.fromNs <= fromNs && toNs <= c.toNs {
		return c
	}
	for _, g := range v.groups {
		ran, sinceNs, untilNs, ok := growth(g.running, fromNs, toNs)
		if !ok {
			continue
		}
		queued, _, _, _ := growth(g.runnable, fromNs, toNs)
		v.counters = h.newCounters(v, sinceNs, untilNs, ran, queued)
		return v.counters
	}
	return nil
}

// newCounters returns the counters of a span in which they grew by ran and queued.
func (h *History) newCounters(v *threadView, fromNs, toNs int64, ran, queued float64) *counters {
	c := &counters{fromNs: fromNs, toNs: toNs}
	at, restNs := fromNs, int64(0)
	add := func(untilNs int64) {
		if untilNs <= at {
			return
		}
		unsampledNs := untilNs - at - v.countSamples(at, untilNs)*h.index.sampleNs
		c.pieces = append(c.pieces, piece{at, untilNs, max(0, unsampledNs), 1})
		restNs += untilNs - at
	}
	queuedInWaits := 0.0
	v.eachWait(fromNs, toNs, func(w *Wait) {
		add(w.FromNs)
		at = max(at, w.ToNs)
		queuedInWaits += float64(max(0, min(w.ToNs, toNs)-max(w.queuedFromNs(), fromNs)))
	})
	add(toNs)
	missingNs := float64(restNs) - ran
	const tolerated = 0.05 // the counters and the waits are not read at the same time
	if missingNs <= tolerated*float64(restNs) {
		return c
	}
	c.queued = max(0, min(1, (queued-queuedInWaits)/missingNs))
	c.spread(missingNs)
	return c
}

// spread gives the time in which the thread did not run to the pieces. A wait without a row is most likely in
// the piece with the longest time without samples, so all pieces above a level are lowered to it.
func (c *counters) spread(missingNs float64) {
	order := make([]*piece, len(c.pieces))
	for i := range c.pieces {
		order[i] = &c.pieces[i]
	}
	slices.SortFunc(order, func(a, b *piece) int { return cmp.Compare(b.unsampledNs, a.unsampledNs) })
	sum, level := 0.0, 0.0
	for i, p := range order {
		sum += float64(p.unsampledNs)
		level = max(0, (sum-missingNs)/float64(i+1))
		if i+1 < len(order) && level >= float64(order[i+1].unsampledNs) {
			break
		}
	}
	for _, p := range order {
		p.running = 1 - max(0, float64(p.unsampledNs)-level)/float64(p.toNs-p.fromNs)
	}
}

// runningShare returns the share in which the thread ran of the piece around a time.
func (c *counters) runningShare(ns int64) float64 {
	if c == nil {
		return 1
	}
	i, found := slices.BinarySearchFunc(c.pieces, ns, func(p piece, ns int64) int { return cmp.Compare(p.fromNs, ns) })
	if !found {
		i--
	}
	if i < 0 || ns >= c.pieces[i].toNs {
		return 1
	}
	return c.pieces[i].running
}

// queuedShare returns the share in run queues of the time in which the thread did not run.
func (c *counters) queuedShare() float64 {
	if c == nil {
		return 0
	}
	return c.queued
}
