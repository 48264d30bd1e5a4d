package activity

import (
	"maps"
	"slices"
	"sort"
)

// A driver has few channels, so that streams share them. A stream with few calls moves the counter of a busy channel
// too little to be paired with it. But between two anchors of that channel, its operations have no call. So channels
// with too few such operations cannot run the stream, and the only other one is tried. A wrong pair is noticed, because
// then the counter rises by less than the calls.

// extraSpan is a time in which operations of a channel began that have no call, between two anchors.
type extraSpan struct {
	Interval         // Unix ns
	operations int64 // their number; unknownExtra: it is unknown
}

const (
	unknownExtra = -1
	// extraSlackNs is longer than an error of the clock, and than the time from a call to its word.
	extraSlackNs = 50_000
	// maxExtraSpans bounds the spans of a channel, and the bursts of a recording.
	maxExtraSpans = 1 << 16
	// maxExtraRounds bounds how often streams are paired in this way: each pair leaves fewer operations without a call.
	maxExtraRounds = 3
	// minBursts is the least number of bursts that name a channel. Any channel may have operations of others in one of
	// them, also if it is the only one that the recorder found.
	minBursts = 3
)

// extraSpans are the spans of a channel in order of time. Outside of them, from fromNs to toNs, each operation has a
// call.
type extraSpans struct {
	list         []extraSpan
	fromNs, toNs int64 // from the first to the last anchor; 0: there is none
	nextNs       int64 // operations after the last anchor begin at this time or later
}

// add notes an anchor, before which operations began without a call. The operations up to the anchor begin at toNs or
// earlier, those after it at nextNs or later.
func (e *extraSpans) add(operations, toNs, nextNs int64) {
	switch {
	case e.fromNs == 0:
		e.fromNs = nextNs
	case len(e.list) == maxExtraSpans:
		return // the time after the last span is unknown
	case operations != 0:
		e.list = append(e.list, extraSpan{Interval{e.nextNs, toNs}, operations})
	}
	e.toNs, e.nextNs = nextNs, nextNs
}

// unproven returns the times from fromNs to toNs in which operations without a call may have begun: the spans, and the
// times before the first and after the last anchor.
func (e *extraSpans) unproven(fromNs, toNs int64) []Interval {
	if e.fromNs == 0 {
		return []Interval{{fromNs, toNs}}
	}
	times := []Interval{{fromNs, e.fromNs}}
	for i := range e.list {
		times = append(times, e.list[i].Interval)
	}
	return append(times, Interval{e.toNs, toNs})
}

// burst are the operations of a stream without a channel from a wait for the stream to the next one.
type burst struct {
	Interval   // from the first call to the return of the wait; UnknownNs: none returned
	operations int64
}

// in returns the largest number of operations without a call that the channel ran in an interval. isKnown reports that
// anchors enclose it.
func (e *extraSpans) in(i Interval) (operations int64, isKnown bool) {
	from, to := i.LoNs-extraSlackNs, i.HiNs
	if to == UnknownNs || e.fromNs == 0 || from < e.fromNs || to > e.toNs {
		return 0, false
	}
	to += extraSlackNs
	k := sort.Search(len(e.list), func(k int) bool { return e.list[k].HiNs >= from })
	for ; k < len(e.list) && e.list[k].LoNs <= to; k++ {
		if e.list[k].operations == unknownExtra {
			return 0, false
		}
		operations += e.list[k].operations
	}
	return operations, true
}

// noteExtra notes an anchor at a counter, for pairByExtra.
func (c *channelState) noteExtra(counter int64) {
	operations := int64(unknownExtra)
	if c.anchored {
		operations = max(0, c.least-c.anchor)
	}
	begin, _ := c.moments.beginOf(counter)
	next, _ := c.moments.beginOf(counter + 1)
	c.extra.add(operations, min(begin.HiNs, c.readNs), next.LoNs)
}

// addUntimedBurst notes the operations of a stream without a channel up to a wait that returned at ns.
func (r *reader) addUntimedBurst(u *untimedCalls, ns int64) {
	if u.operations > 0 && u.queue >= 0 && len(r.bursts[u.queue]) < maxExtraSpans {
		r.bursts[u.queue] = append(r.bursts[u.queue], burst{Interval{u.firstNs, ns}, u.operations})
	}
}

// pairByExtra pairs streams without a channel by the operations of channels that no call explains, as long as that
// leaves fewer of them.
func (a *attempt) pairByExtra() error {
	if len(a.opt.Gaps) > 0 {
		return nil // operations without a call may be launches that were not recorded
	}
	tried := make(map[int32]bool) // streams
	for range maxExtraRounds {
		found := a.reader.streamsOfExtra(tried)
		if len(found) == 0 {
			return nil
		}
		before := a.reader.channels
		maps.Copy(a.pairs, found)
		if err := a.number(); err != nil {
			return err
		}
		wrong := false
		for stream, channel := range found {
			tried[stream] = true
			if was, is := &before[channel].counts, &a.reader.channels[channel].counts; is.Conflicts > was.Conflicts ||
				is.Slips >= was.Slips {
				delete(a.pairs, stream)
				wrong = true
			}
		}
		if wrong {
			if err := a.number(); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamsOfExtra returns the streams without a channel, apart from those tried, with the only channel that ran enough
// operations without a call.
func (r *reader) streamsOfExtra(tried map[int32]bool) map[int32]int32 {
	found := make(map[int32]int32)
	for _, stream := range slices.Sorted(maps.Keys(r.bursts)) {
		if tried[stream] {
			continue
		}
		var possible []int32
		for _, c := range r.sortedChannels() {
			if r.hasExtraOf(c, stream) {
				possible = append(possible, c.Number)
			}
		}
		if len(possible) == 1 {
			found[stream] = possible[0]
		}
	}
	return found
}

// hasExtraOf reports whether a channel ran enough operations without a call in each burst of a stream without a channel
// that lies between its anchors, and whether there are enough such bursts.
func (r *reader) hasExtraOf(c *channelState, stream int32) bool {
	s := &r.streams.list[stream]
	if c.Pid != s.Pid || c.Device >= 0 && c.Device != s.Device || !c.runsStreams || c.counts.Slips == 0 {
		return false
	}
	bursts, known := r.bursts[stream], 0
	for i := range bursts {
		operations, isKnown := c.extra.in(bursts[i].Interval)
		if isKnown && operations < bursts[i].operations {
			return false
		}
		if isKnown {
			known++
		}
	}
	return known >= minBursts
}
