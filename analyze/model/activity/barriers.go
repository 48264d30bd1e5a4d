package activity

// streamBarrier notes whether the next operation of a stream may wait for another channel.
type streamBarrier struct {
	holds         bool
	hold          *Hold         // the last call that made the stream wait since its last operation
	after         operationID   // of a hold by an event: the operation before the record of the event
	behind        dependency    // the same operation, if it may still need proof
	gap           int           // gaps that had ended at the last operation
	last          *channelState // channel of the last operation
	index         int64         // index of the last operation on the channel
	open          []openCall    // calls that may not have returned
	lastOperation LastCall      // the last operation, apart from event records
	untimed       untimedCalls
	others        int64 // operations of the context that legacy order waits for, at the last operation
}

// openCall is a call of a stream.
type openCall struct {
	channel  *channelState // nil: the stream has no channel
	index    int64         // on the channel
	startNs  int64
	endNs    int64
	returned *callReturn // nil if endNs is known
	tid      int32
}

// returnedBefore reports whether the call is known to have returned when the next call of its stream
// starts at ns.
func (o *openCall) returnedBefore(ns int64) bool {
	if o.returned != nil {
		return min(o.returned.endNs, o.startNs+orderedReturnNs) <= ns
	}
	return o.endNs <= ns
}

// legacyOrder counts operations of a context. Operations of the legacy default stream and of other streams may
// wait for each other.
type legacyOrder struct{ legacy, other int64 }

func (r *reader) barrierOf(stream int32) *streamBarrier {
	b := r.order[stream]
	if b == nil {
		b = new(streamBarrier)
		r.order[stream] = b
	}
	return b
}

// legacyOrderOf returns the counts of a context. Most calls have the context of the call before.
func (r *reader) legacyOrderOf(key contextKey) *legacyOrder {
	if r.lastOrder != nil && r.lastLegacy == key {
		return r.lastOrder
	}
	l := r.legacy[key]
	if l == nil {
		l = new(legacyOrder)
		r.legacy[key] = l
	}
	r.lastLegacy, r.lastOrder = key, l
	return l
}

// waitsForLegacy reports whether the legacy default stream may order an operation after another stream's.
func (r *reader) waitsForLegacy(c *Call, b *streamBarrier) bool {
	l := r.legacyOrderOf(contextKey{c.Pid, c.Context})
	others := &l.legacy
	if c.Stream == LegacyStream {
		l.legacy++
		others = &l.other
	} else {
		l.other++
	}
	changed := *others != b.others
	b.others = *others
	return changed
}

// overlaps reports whether an earlier call of the stream, by another thread, may not have returned. The
// order of the two is unknown, so both may wait for another channel.
func (r *reader) overlaps(c *Call, b *streamBarrier) (overlaps bool) {
	open := b.open
	b.open = b.open[:0]
	for i := range open {
		o := &open[i]
		if o.returnedBefore(c.StartNs) {
			continue
		}
		b.open = append(b.open, *o)
		if o.tid == c.Tid {
			continue
		}
		overlaps = true
		if o.channel == nil {
			continue
		}
		if p := o.channel.order.at(o.index); p != nil {
			p.barrier = true
		}
	}
	return overlaps
}

// followsGap reports whether calls of the stream may be missing since its last operation.
func (r *reader) followsGap(c *Call, b *streamBarrier) bool {
	inside := r.isInGap(c.StartNs)
	ended := r.gap != b.gap
	b.gap = r.gap
	return ended || inside
}

// isInGap reports whether calls may be missing at ns. ns must not be lower than in an earlier call.
func (r *reader) isInGap(ns int64) bool {
	for r.gap < len(r.gaps) && r.gaps[r.gap].ToNs < ns {
		r.gap++
	}
	return r.gap < len(r.gaps) && r.gaps[r.gap].FromNs <= ns
}
