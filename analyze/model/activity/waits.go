package activity

// completion is a fact that a wait proves: at atNs, the call of a stream at a position was done. So all
// earlier calls of the stream were done, and all earlier calls of the channel had begun.
type completion struct {
	atNs, position int64
	stream         int32
	// byGPU reports that no wait of the program proves it, but an operation of another channel.
	byGPU bool
}

// completions are the facts of waits on a channel, in order of time.
type completions struct {
	list []completion
	// before is the highest position that was done before the last sampled operation began, and
	// next is the first entry after that time. seen and nextSeen are the same for the read of that
	// sample.
	before, seen   int64
	next, nextSeen int
}

// add adds a completion. Waits of several threads come in the order of their start, not their end.
func (c *completions) add(new completion) {
	i := len(c.list)
	for i > c.nextSeen && c.list[i-1].atNs > new.atNs {
		i--
	}
	c.list = append(c.list, completion{})
	copy(c.list[i+1:], c.list[i:])
	c.list[i] = new
}

// hasReturned reports whether a wait returned between two times, which are not before the last anchor.
func (c *completions) hasReturned(fromNs, toNs int64) bool {
	for i := len(c.list) - 1; i >= 0; i-- {
		switch w := &c.list[i]; {
		case w.byGPU: // may be out of order
		case w.atNs < fromNs:
			return false
		case w.atNs <= toNs:
			return true
		}
	}
	return false
}

// cancel removes a completion that no sample has passed yet.
func (c *completions) cancel(atNs, position int64) {
	for i := len(c.list) - 1; i >= c.nextSeen; i-- {
		if c.list[i].atNs == atNs && c.list[i].position == position {
			c.list[i].position = 0
			return
		}
	}
}

// advance returns the highest positions that were done before an operation began, and before a sample was
// read.
func (c *completions) advance(beginNs, seenNs int64) (before, seen int64) {
	for ; c.nextSeen < len(c.list) && c.list[c.nextSeen].atNs <= seenNs; c.nextSeen++ {
		if w := &c.list[c.nextSeen]; !w.byGPU {
			c.seen = max(c.seen, w.position)
		}
	}
	for ; c.next < c.nextSeen && c.list[c.next].atNs < beginNs; c.next++ {
		c.before = max(c.before, c.list[c.next].position)
	}
	return c.before, c.seen
}

// doneBy returns the time at which the operation of a stream at a position was done at the latest. It searches
// from entry *from on, and sets *from for a later position.
func (c *completions) doneBy(stream int32, position int64, from *int) int64 {
	const most = 64 // entries of other streams
	for *from < len(c.list) && c.list[*from].position < position {
		*from++
	}
	for _, w := range c.list[*from:min(*from+most, len(c.list))] {
		if w.stream == stream && w.position >= position {
			return w.atNs
		}
	}
	return UnknownNs
}

// dropOld drops the entries for positions up to done that both sides have passed.
func (c *completions) dropOld(done int64) {
	n := 0
	for n < c.next && c.list[n].position <= done {
		n++
	}
	c.list = append(c.list[:0], c.list[n:]...)
	c.next -= n
	c.nextSeen -= n
}
