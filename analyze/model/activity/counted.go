package activity

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// CountedLaunch is a launch that took place, though its row may be missing: the calls of NCCL are always recorded, and
// tell how often it launches. Times are Unix ns. It was launched after StartNs, and before later calls of its thread that
// begin after ReturnNs.
type CountedLaunch struct {
	StartNs, ReturnNs int64
	Stream            int64 // handle, no default stream
	Pid               int32
}

// CountedStart is when the GPU began a launch, Unix ns on the clock of the recording. The zero value is unknown.
type CountedStart struct {
	// Interval contains the start. It is as wide as the residual of the clock, if the progress word was read while the
	// launch was the last one that had begun.
	Interval
	// LikelyNs is the most probable start. If the word was not read, the launch began shortly before the next one.
	LikelyNs int64
}

// StartsOfCounted returns when the GPU began each of some launches. It knows the starts on streams that run only these
// launches and have a channel of their own, also while no launch was recorded.
//
// On such a stream, the counter of the channel is the number of the launch plus an offset. Two facts bound the offset: no
// launch begins before its call, and all launches before the end of a wait have begun. Launches are in any order. It
// returns errors of reading the recording.
func StartsOfCounted(t *timeline.Timeline, launches []CountedLaunch) ([]CountedStart, error) {
	starts := make([]CountedStart, len(launches))
	if len(launches) == 0 || len(t.Facts.Channels) == 0 {
		return starts, nil
	}
	read, labels, err := newReplay(t, 0)
	if err != nil {
		return nil, err
	}
	r := newCountedReader(launches, recordedChannels(t))
	r.isCounted = labels.isNetwork
	if err := read(r); err != nil {
		return nil, err
	}
	for _, s := range r.streams {
		r.setStarts(s, starts)
	}
	return starts, nil
}

// countedReader collects what bounds the offsets between launches and counters.
type countedReader struct {
	launches []CountedLaunch
	streams  []*countedStream
	byHandle map[handleKey]*countedStream
	ofPid    map[int32][]*countedStream
	// after has the positions that the next operation of a stream follows, by the key of the stream.
	after    map[streamKey]position
	events   map[handleKey]position // of the latest record of an event
	channels map[int32]*countedChannel
	// isCounted reports whether a launch with a label is one of the launches.
	isCounted func(label int32) bool
}

// position has the number of launches of each counted stream of a process, in the order of countedReader.ofPid.
type position []int64

// countedStream is a stream with its launches.
type countedStream struct {
	pid      int32
	place    int     // in countedReader.ofPid
	launches []int32 // ordered by StartNs
	returned int64   // launches that had returned before the current call
	proofs   []countedProof
	others   int  // recorded kernels and copies that are no launches
	isBroken bool // the handle names several streams
}

// countedProof says that at a time some launches have begun, because they were done.
type countedProof struct{ ns, done int64 }

// countedChannel has the samples of a channel.
type countedChannel struct {
	pid     int32
	most    int // samples from which on it is the channel of no counted stream
	isCut   bool
	clock   clockPoints
	samples []countedSample
	delays  []int64 // from the start to the sample, ns on both clocks
}

// countedSample says that operation counter began at a time of the GPU's clock.
type countedSample struct{ counter, gpuNs int64 }

func newCountedReader(launches []CountedLaunch, channels []Channel) *countedReader {
	r := &countedReader{
		launches: launches, byHandle: make(map[handleKey]*countedStream), ofPid: make(map[int32][]*countedStream),
		after: make(map[streamKey]position), events: make(map[handleKey]position),
		channels: make(map[int32]*countedChannel),
	}
	most := make(map[int32]int)
	for i := range launches {
		l := &launches[i]
		key := handleKey{l.Pid, l.Stream}
		s := r.byHandle[key]
		if s == nil {
			s = &countedStream{pid: l.Pid, place: len(r.ofPid[l.Pid])}
			r.byHandle[key], r.streams = s, append(r.streams, s)
			r.ofPid[l.Pid] = append(r.ofPid[l.Pid], s)
		}
		s.launches = append(s.launches, int32(i))
		most[l.Pid] = max(most[l.Pid], len(s.launches))
	}
	for _, s := range r.streams {
		slices.SortStableFunc(
			s.launches,
			func(a, b int32) int { return cmp.Compare(launches[a].StartNs, launches[b].StartNs) },
		)
	}
	const more = 1000 // samples: a channel may count some operations that are no launches
	for _, c := range channels {
		if n := most[c.Pid]; n > 0 {
			r.channels[c.Number] = &countedChannel{pid: c.Pid, most: 2*n + more}
		}
	}
	return r
}

// AddSample keeps a sample of a channel that may run counted launches.
func (r *countedReader) AddSample(s *Sample) {
	c := r.channels[s.Channel]
	if c == nil || c.isCut {
		return
	}
	if n := len(c.samples); n > 0 && (s.Counter <= c.samples[n-1].counter || s.GPUTimeNs <= c.samples[n-1].gpuNs) {
		return
	}
	if len(c.samples) >= c.most {
		c.isCut, c.samples, c.delays = true, nil, nil
		return
	}
	c.clock.add(s.GPUTimeNs, s.SeenNs-s.GPUTimeNs)
	c.samples = append(c.samples, countedSample{s.Counter, s.GPUTimeNs})
	c.delays = append(c.delays, s.SeenNs-s.GPUTimeNs)
}

// AddCall follows the order that events and waits prove.
func (r *countedReader) AddCall(c *Call) {
	if len(r.ofPid[c.Pid]) == 0 {
		return
	}
	if c.Op.IsOperation() && c.Op != OpRecordEvent && !r.isCounted(c.Label) {
		if s := r.byHandle[handleKey{c.Pid, c.Stream}]; s != nil {
			s.others++
		}
	}
	switch {
	case c.Op == OpRecordEvent || c.Op == OpMarkEvent:
		key := handleKey{c.Pid, c.Event}
		r.events[key] = r.positionOf(c, r.events[key])
	case c.Op == OpHoldStream && c.Hold == HoldEvent:
		if e, ok := r.events[handleKey{c.Pid, c.Event}]; ok {
			key := streamKeyOf(c)
			r.after[key] = joinPositions(r.after[key], e)
		}
	case c.Op == OpWaitEvent:
		r.prove(c, r.events[handleKey{c.Pid, c.Event}])
	case c.Op == OpWaitStream || c.Waits:
		r.prove(c, r.positionOf(c, nil))
	case c.Op == OpWaitContext:
		var all position
		for _, s := range r.ofPid[c.Pid] {
			all = append(all, r.countReturned(s, c.StartNs))
		}
		r.prove(c, all)
	case c.Op == OpEndStream:
		if s := r.byHandle[handleKey{c.Pid, c.Stream}]; s != nil &&
			r.countReturned(s, c.StartNs) < int64(len(s.launches)) {
			s.isBroken = true
		}
	}
}

// streamKeyOf identifies the stream of a call. A later stream with the same handle has the same key: it follows more than
// it must, so its proofs may contradict launches, but never by chance agree with them.
func streamKeyOf(c *Call) streamKey {
	key := streamKey{handle: c.Stream, pid: c.Pid}
	if c.Stream == LegacyStream || c.Stream == PerThreadStream {
		key.context = c.Context
	}
	if c.Stream == PerThreadStream {
		key.tid = c.Tid
	}
	return key
}

// positionOf returns the launches that the stream of a call follows, in memory that it may use again.
func (r *countedReader) positionOf(c *Call, memory position) position {
	p := append(memory[:0], r.after[streamKeyOf(c)]...)
	if s := r.byHandle[handleKey{c.Pid, c.Stream}]; s != nil {
		for len(p) <= s.place {
			p = append(p, 0)
		}
		p[s.place] = max(p[s.place], r.countReturned(s, c.StartNs))
	}
	return p
}

// countReturned returns the launches of a stream that returned up to a time. Times never decrease.
func (r *countedReader) countReturned(s *countedStream, ns int64) int64 {
	for s.returned < int64(len(s.launches)) && r.launches[s.launches[s.returned]].ReturnNs <= ns {
		s.returned++
	}
	return s.returned
}

// joinPositions returns the later of two positions on each stream, in the memory of the first.
func joinPositions(into, other position) position {
	for i, n := range other {
		if i == len(into) {
			into = append(into, 0)
		}
		into[i] = max(into[i], n)
	}
	return into
}

// prove notes that the launches up to a position are done when a call returns.
func (r *countedReader) prove(c *Call, p position) {
	if c.EndNs == UnknownNs {
		return
	}
	for i, n := range p {
		if n > 0 {
			s := r.ofPid[c.Pid][i]
			s.proofs = append(s.proofs, countedProof{c.EndNs, n})
		}
	}
}

// timedSample is a sample on the clock of the recording.
type timedSample struct {
	Interval
	counter int64
}

// leastOthers is the number of launches for each other operation, below which a stream runs other work.
const leastOthers = 20

// setStarts sets the starts of the launches of a stream, if exactly one channel can run them.
func (r *countedReader) setStarts(s *countedStream, starts []CountedStart) {
	if s.isBroken || s.others*leastOthers > len(s.launches) {
		return
	}
	slices.SortFunc(s.proofs, func(a, b countedProof) int { return cmp.Compare(a.ns, b.ns) })
	var samples []timedSample
	var parts []countedPart
	var found *countedChannel
	for _, c := range r.channels {
		if c.pid != s.pid || c.isCut {
			continue
		}
		list := c.timedSamples()
		if p := r.partsOf(s, list); len(p) > 0 {
			if found != nil {
				return
			}
			samples, found, parts = list, c, p
		}
	}
	for _, p := range parts {
		for i := p.from; i < p.to; i++ {
			if n := samples[i].counter - p.high; n > 0 && n <= int64(len(s.launches)) {
				starts[s.launches[n-1]] = CountedStart{samples[i].Interval, samples[i].MiddleNs()}
			}
		}
	}
	if found != nil {
		r.estimateStarts(s, found.usualDelay(), starts)
	}
}

// leastCounted is the number of samples below which a channel is not compared with launches.
const leastCounted = 32

// timedSamples returns the samples on the clock of the recording, nil if they are too few.
func (c *countedChannel) timedSamples() []timedSample {
	if len(c.samples) < leastCounted {
		return nil
	}
	clock, list := newClock(c.clock.list), make([]timedSample, len(c.samples))
	for i, s := range c.samples {
		list[i] = timedSample{clock.Convert(s.gpuNs), s.counter}
	}
	return list
}

// usualDelay returns how much later a sample is than the earliest ones, ns, for 19 of 20 samples.
func (c *countedChannel) usualDelay() int64 {
	sorted := slices.Sorted(slices.Values(c.delays))
	return sorted[len(sorted)*19/20] - sorted[0]
}

// leastAtBound is the share of the proofs that the bound of an offset must meet, if the launches do not confirm it.
const leastAtBound = 0.6

// shortestOf returns the time from one operation to the next that one of 20 is below, ns. An operation lasts at most as
// long.
func shortestOf(samples []timedSample) int64 {
	var list []int64
	for i := 1; i < len(samples); i++ {
		if samples[i].counter == samples[i-1].counter+1 {
			list = append(list, samples[i].LoNs-samples[i-1].HiNs)
		}
	}
	if len(list) == 0 {
		return math.MaxInt64
	}
	slices.Sort(list)
	return list[len(list)/20]
}

// countedPart is a span of samples in which the counter less the number of the launch is one offset, which is at least low
// and at most high.
type countedPart struct {
	from, to  int // samples; to is the first one after the last proof that bounds the offset by high
	low, high int64
	// isConfirmed reports that low was high before to. Later, other operations may have raised low.
	isConfirmed bool
	proofs      int // with the samples before and after them
	// sinceNs has, for each of them that bounds the offset by high, the time since the last operation began, ns.
	sinceNs []int64
}

// isKnown reports whether the offset of a part is high: most proofs are as tight as that, and launches confirm it, or the
// last launch that the proofs prove began long enough before. Otherwise high may be too high by one: the next launch begins
// as soon as that launch ends. shortestNs is the length of short operations.
func (p *countedPart) isKnown(shortestNs int64) bool {
	slices.Sort(p.sinceNs)
	n := len(p.sinceNs)
	return n > 0 && float64(n) >= leastAtBound*float64(p.proofs) && (p.isConfirmed || p.sinceNs[n/2] >= shortestNs)
}

// addProof adds a proof between samples i-1 and i. bound is its bound of the offset.
func (p *countedPart) addProof(i int, bound, sinceNs int64, isTight bool) {
	if bound < p.high {
		p.high, p.sinceNs = bound, p.sinceNs[:0]
	}
	if bound == p.high {
		p.to, p.isConfirmed = i, p.low == bound
	}
	if isTight {
		p.proofs++
		if bound == p.high {
			p.sinceNs = append(p.sinceNs, sinceNs)
		}
	}
}

// partsOf returns the parts of the samples of a channel with a known offset. It returns none if the channel does not run
// the launches of the stream, or runs many other operations. NCCL itself adds a few, which begin a new part.
func (r *countedReader) partsOf(s *countedStream, samples []timedSample) (known []countedPart) {
	if len(samples) == 0 {
		return nil
	}
	begun := func(ns int64) int64 { // launches that may have begun
		return int64(sort.Search(len(s.launches), func(i int) bool { return r.launches[s.launches[i]].StartNs > ns }))
	}
	first, last := &samples[0], &samples[len(samples)-1]
	launched, moved := begun(last.HiNs)-begun(first.HiNs), last.counter-first.counter
	most := 8 + launched/50 // other operations
	if max(moved-launched, launched-moved) > most {
		return nil
	}
	parts, part, shortestNs := int64(0), countedPart{low: math.MinInt64, high: math.MaxInt64}, shortestOf(samples)
	end := func(next int) {
		if parts++; part.isKnown(shortestNs) {
			known = append(known, part)
		}
		part = countedPart{from: next, low: math.MinInt64, high: math.MaxInt64}
	}
	proofs := s.proofs
	for i := range samples {
		for ; len(proofs) > 0 && proofs[0].ns < samples[i].LoNs; proofs = proofs[1:] {
			if i == 0 {
				continue
			}
			bound := samples[i].counter - 1 - proofs[0].done // a launch that is done began before this sample
			if bound < part.low {
				end(i)
			}
			isTight := samples[i].counter == samples[i-1].counter+1
			part.addProof(i, bound, proofs[0].ns-samples[i-1].HiNs, isTight)
		}
		low := samples[i].counter - begun(samples[i].HiNs)
		if low > part.high {
			end(i)
		}
		part.low = max(part.low, low)
	}
	if end(len(samples)); parts > most {
		return nil
	}
	return known
}

// mostUnread is the number of launches in a row whose starts are estimated if no sample shows them. With more, the
// progress word was not read for a while.
const mostUnread = 8

// estimateStarts bounds the starts of launches that no sample shows: they began after the launch before, and before the next
// one. That was usually at most one read before, which takes readNs.
func (r *countedReader) estimateStarts(s *countedStream, readNs int64, starts []CountedStart) {
	last := -1 // launch with a sample
	for i, launch := range s.launches {
		next := starts[launch]
		if next == (CountedStart{}) {
			continue
		}
		for k := last + 1; last >= 0 && i-last <= mostUnread+1 && k < i; k++ {
			missing := s.launches[k]
			within := Interval{max(starts[s.launches[last]].LoNs, r.launches[missing].StartNs), next.HiNs}
			within.LoNs = min(within.LoNs, within.HiNs)
			starts[missing] = CountedStart{within, max(within.MiddleNs(), next.LoNs-readNs/2)}
		}
		last = i
	}
}
