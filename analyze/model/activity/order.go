package activity

import (
	"slices"
	"sort"
)

// callReturn is the return of a call whose EndNs is unknown. The next call of its thread bounds it.
type callReturn struct{ endNs int64 }

// issuedCall is a call whose operation a channel runs. Positions count the operations with a call on the
// channel from 1. Calls that overlapped have several possible positions.
type issuedCall struct {
	call        Call
	returned    *callReturn // nil if call.EndNs is known
	first, last int64       // the earliest and the latest position
	stream      int32       // stream of the call; it differs from the channel's for copies
	barrier     bool        // the operation may wait for another channel
	hold        *Hold
	unsure      bool // the numbering failed at this call
	// handedOver reports that the operation may wait for another channel only because the operation before it on
	// the stream ran there.
	handedOver bool
	// followsKnown reports that the operation waits for nothing but the operation before it on its stream, which has a
	// channel.
	followsKnown bool
	// part is the index of the operation among the operations of its call, and parts their number: a launch of a graph
	// may add several.
	part, parts int64
	inOrder     bool  // it came after all earlier calls of the stream
	number      int64 // number of the call on the stream, from 1
	// after is an operation of another stream that ends before this operation begins; its number is 0 if there is
	// none.
	after operationID
	// behind are operations of other channels that end before this operation begins.
	behind [2]dependency
	// earliest and earliestBeginNs bound number and start of the operation, if an earlier anchor has set them.
	earliest, earliestBeginNs int64
}

// returnedBy reports whether the call is known to have returned at ns.
func (c *issuedCall) returnedBy(ns int64) bool {
	if c.returned != nil {
		return min(c.returned.endNs, c.call.StartNs+unseenReturnNs) <= ns
	}
	return c.call.EndNs <= ns
}

// wasSeenReturned reports whether the call is known to have returned at ns without the assumption about
// unseen returns: a thread may lose its processor inside of a call.
func (c *issuedCall) wasSeenReturned(ns int64) bool {
	if c.returned != nil {
		return c.returned.endNs <= ns
	}
	return c.call.EndNs <= ns
}

// returnedBefore reports whether the call is known to have returned when the next call of a stream
// starts at ns.
func (c *issuedCall) returnedBefore(stream int32, ns int64) bool {
	return c.returnedBy(ns) || c.returned != nil && c.stream == stream && c.call.StartNs+orderedReturnNs <= ns
}

// isOfCall reports whether both are operations of one call.
func (c *issuedCall) isOfCall(o *issuedCall) bool {
	return o.part > 0 && c.call.StartNs == o.call.StartNs && c.call.Tid == o.call.Tid && c.stream == o.stream
}

// isBoundary reports whether the progress word of the operation shows that the operation before it has ended.
func (c *issuedCall) isBoundary() bool { return !c.call.StartsEarly && c.part == 0 }

// operationID is an operation by its stream and its number on the stream, from 1.
type operationID struct {
	stream int32
	number int64
}

// issueOrder has the calls of a channel in the order of their start.
type issueOrder struct {
	pending tail[issuedCall] // calls without a final number
	base    int64            // number of calls before pending
	scratch []issuedCall     // of between
	last    issuedCall       // the last call before pending, if base is not 0
	open    []int64          // indices, from 1, of pending calls that may not have returned
	streams map[int32]*streamOrder
	// latest is the entry of the last call in streams; nil: none.
	latest       *streamOrder
	latestStream int32
}

// streamOrder has the latest calls of one stream on a channel.
type streamOrder struct {
	returned int64   // the latest earliest position of a call that returned
	open     []int64 // indices of later calls that may not have returned
}

// issued returns the number of calls so far.
func (o *issueOrder) issued() int64 { return o.base + int64(len(o.pending.items)) }

// at returns the call with an index, counted from 1. It returns nil if its number is final.
func (o *issueOrder) at(index int64) *issuedCall {
	if index <= o.base {
		return nil
	}
	return &o.pending.items[index-o.base-1]
}

// recent returns the call with an index, if it is pending or the last one before. It returns nil for
// all other indices.
func (o *issueOrder) recent(index int64) *issuedCall {
	switch {
	case index < max(1, o.base) || index > o.issued():
		return nil
	case index == o.base:
		return &o.last
	}
	return o.at(index)
}

// add appends a call. It starts after all calls before it. It sets the positions in c, and copies c.
func (o *issueOrder) add(c *issuedCall) {
	index := o.issued() + 1
	o.open = slices.DeleteFunc(o.open, func(i int64) bool {
		p := o.at(i) // nil: its operation is done
		return p == nil || p.returnedBefore(c.stream, c.call.StartNs)
	})
	overlapping := int64(0)
	for _, i := range o.open {
		if p := o.at(i); !p.isOfCall(c) {
			p.last = index
			overlapping++
		}
	}
	c.first, c.last = index-overlapping, index
	*o.pending.next() = *c
	o.pending.extend()
	o.open = append(o.open, index)
	s := o.streamOf(c.stream)
	s.open = append(o.dropReturned(s.open, c.call.StartNs, s), index)
}

// streamOf returns the latest calls of a stream.
func (o *issueOrder) streamOf(stream int32) *streamOrder {
	if o.latest != nil && o.latestStream == stream {
		return o.latest
	}
	if o.streams == nil {
		o.streams = make(map[int32]*streamOrder)
	}
	s := o.streams[stream]
	if s == nil {
		s = new(streamOrder)
		o.streams[stream] = s
	}
	o.latest, o.latestStream = s, stream
	return s
}

// endStream forgets the calls of a stream.
func (o *issueOrder) endStream(stream int32) {
	delete(o.streams, stream)
	o.latest = nil
}

// tail is a list to whose end items are added, and from whose start items are dropped.
type tail[T any] struct {
	items []T
	store []T // items is its end
}

// next returns memory for the item that extend adds. It moves items to the start of store only if store is full and
// at least half of it was dropped.
func (t *tail[T]) next() *T {
	n := len(t.items)
	switch dropped := len(t.store) - n; {
	case n < cap(t.items):
	case n <= dropped && dropped > 0:
		copy(t.store, t.items)
		clear(t.store[n:]) // drops pointers
		t.store = t.store[:n]
		t.items = t.store
	default:
		t.store = slices.Grow(t.store, 1)
		t.items = t.store[dropped:]
	}
	return &t.items[:n+1][n]
}

// extend adds the item of next.
func (t *tail[T]) extend() {
	t.items = t.items[:len(t.items)+1]
	t.store = t.store[:len(t.store)+1]
}

// drop removes the first n items.
func (t *tail[T]) drop(n int) { t.items = t.items[n:] }

// dropReturned removes the calls that returned at ns, and those with a final number. It notes their
// positions in s.
func (o *issueOrder) dropReturned(open []int64, ns int64, s *streamOrder) []int64 {
	kept := open[:0]
	for _, i := range open {
		c := o.at(i)
		switch {
		case c == nil: // its operation is done
		case !c.returnedBy(ns):
			kept = append(kept, i)
		default:
			s.returned = max(s.returned, c.first)
		}
	}
	return kept
}

// returnedPosition returns a position that the operation of a stream has reached if all its calls that
// returned at ns are done. It is 0 if there are none.
func (o *issueOrder) returnedPosition(stream int32, ns int64) int64 {
	s := o.streams[stream]
	if s == nil {
		return 0
	}
	s.open = o.dropReturned(s.open, ns, s)
	return s.returned
}

// startedBy returns the number of calls that started at ns or earlier.
func (o *issueOrder) startedBy(ns int64) int64 {
	n := sort.Search(len(o.pending.items), func(i int) bool { return o.pending.items[i].call.StartNs > ns })
	return o.base + int64(n)
}

// drop removes the first n pending calls.
func (o *issueOrder) drop(n int) {
	if n > 0 {
		o.last = o.pending.items[n-1]
	}
	o.base += int64(n)
	o.pending.drop(n)
}
