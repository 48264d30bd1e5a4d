package activity

import "sort"

// A program may never wait for a stream itself, but let another stream wait for it, as PyTorch does with the stream
// of NCCL. Then the start of an operation shows that operations of other channels had ended: the one before the record
// of the event that its stream waited for, and the one before it on its stream.

// dependency is an operation of another channel that ends before an operation begins.
type dependency struct {
	channel  *channelState // nil: there is none
	position int64         // earliest position of its call on the channel
	stream   int32
}

// dependencyProof shows that an operation of another channel had ended at atNs.
type dependencyProof struct {
	dependency
	atNs int64
}

// dependencyOn returns the operation of a channel with an index, if its call had returned at ns. An operation with a
// final number needs no proof.
func dependencyOn(channel *channelState, index, ns int64) dependency {
	if channel == nil {
		return dependency{}
	}
	p := channel.order.at(index)
	if p == nil || !p.returnedBy(ns) {
		return dependency{}
	}
	return dependency{channel, p.first, p.stream}
}

// noteProofs notes what the start of an operation shows about other channels.
func (r *reader) noteProofs(p *issuedCall, w *Operation) {
	if w.StartQuality < Bounded || w.Call.StartsEarly {
		return
	}
	for _, d := range p.behind {
		if d.channel != nil {
			r.proofs = append(r.proofs, dependencyProof{d, w.Start.HiNs})
		}
	}
}

// applyProofs bounds the numbers of channels by the starts of operations of other channels. Numbers that become final
// give more starts.
func (r *reader) applyProofs() {
	for len(r.proofs) > 0 {
		p := r.proofs[len(r.proofs)-1]
		r.proofs = r.proofs[:len(r.proofs)-1]
		p.channel.completeBy(completion{atNs: p.atNs, position: p.position, stream: p.stream, byGPU: true})
	}
}

// completeBy notes that an operation was done at a time, which may be before samples that are used already. It shows
// nothing about samples that were read later, because the progress word may come late, but about operations that began
// later.
func (c *channelState) completeBy(done completion) {
	if c.clock == nil || done.position <= c.order.base {
		return
	}
	c.waits.add(done)
	atNs := done.atNs + c.lateNs()
	began := sort.Search(len(c.moments), func(i int) bool { return c.moments[i].begin.LoNs > atNs })
	if began < len(c.moments) {
		c.limitLate(&c.moments[began], c.moments[began].counter-1, done.position)
	}
}

// limitLate adds an upper bound of the operations without a call among the first ones, which follows from an operation
// that was done at a sample used before.
func (c *channelState) limitLate(m *moment, counter, position int64) {
	least, ok := c.numbers.limit(counter, counter-position)
	switch {
	case !ok || counter <= c.anchorCounter && c.anchored:
	case counter-position < least:
		c.counts.Conflicts++
		c.restart(c.readNs, c.moments[len(c.moments)-1].counter-c.order.startedBy(c.readNs))
	case counter-position == least && least == c.least:
		c.anchorNs = m.seenNs
		c.reachAnchor(counter)
	}
}
