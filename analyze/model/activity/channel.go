package activity

// channelState numbers the operations of one channel.
type channelState struct {
	Channel
	clock   *Clock
	order   issueOrder
	numbers numbering
	moments moments
	// nearEarliest and nearLatest are the samples of the last numbers that wordOf looked up.
	nearEarliest, nearLatest int
	waits                    completions
	// least is the lower bound of the operations without a call so far.
	least int64
	idle  idleEvidence
	// anchor is the number of operations without a call at the last anchor.
	anchor   int64
	anchored bool
	anchorNs int64 // when waits set the last anchor, Unix ns
	// anchorCounter is the counter at the last anchor.
	anchorCounter int64
	opened        bool
	readNs        int64   // last time at which the progress word is known to have been read
	endNs         int64   // end of the channel or the recording; 0 before finish
	held          *Sample // the last sample. The next one shows whether it was torn.
	stale         int     // samples in a row whose counter was not above the last one
	counts        ChannelCounts
	reader        *reader
	streams       int // streams whose operations the channel runs
	// runsStreams reports that the channel runs operations of streams, and not only copies of a copy engine.
	runsStreams bool
	// showsEnds reports that the progress word belongs to the ends of operations: those of a copy engine.
	showsEnds bool
	words     wordEvidence
	extra     extraSpans
	marked    []markedEvent // since the last anchor
	// anchorBegun is the number of calls whose operations had begun at the last anchor.
	anchorBegun int64
	// isUncertain reports that the last sampled operation, without a call, may run until the next sample.
	isUncertain bool
	finals      int64 // operations whose numbers became final at anchors
	numbered    int64 // operations whose number is known
	ownSlips    int64 // slips outside of gaps, while operations had calls
	out         *results
	means       *meanTable // of the process; nil: there are none
	// What results collects: busy times, operations by index of set.keys, operations without an index, the start
	// of the first call, and the end of the last operation (Unix ns; 0: unknown).
	busy            *busyTimes
	filled          spans // times in which operations that fill the GPU may have run
	set             *equationSet
	operations      []int64
	unlisted        int64
	firstNs, lastNs int64
}

// staleNs is longer than any pause of a reader between its reads of the clock and of the progress
// word.
const staleNs = 50_000_000

func newChannelState(c Channel, clock *Clock, out *results) *channelState {
	return &channelState{
		Channel: c, clock: clock, out: out, means: out.means[c.Pid], least: -unbounded, busy: newBusyTimes(),
		filled: spans{mayGrow: true},
	}
}

// addSample adds a sample of the channel, in order of SeenNs.
func (c *channelState) addSample(s *Sample) {
	c.counts.Samples++
	c.readNs = s.SeenNs
	held := c.held
	if held == nil {
		next := *s
		c.held = &next
		return
	}
	if s.Counter == held.Counter {
		if s.GPUTimeNs != held.GPUTimeNs { // one of the two is torn
			c.counts.TornSamples++
			c.held = nil
		}
		return // the recorder repeats the last words at its end
	}
	if s.Counter < held.Counter {
		c.counts.Skipped++
		if c.stale++; c.stale > 2 && s.SeenNs-held.SeenNs > staleNs {
			*held = *s
			c.restart(s.SeenNs, s.Counter-c.order.startedBy(s.SeenNs))
			c.moments = c.moments[:0]
		}
		return
	}
	c.stale = 0
	if s.GPUTimeNs <= held.GPUTimeNs {
		// one of the two is torn: skip both
		c.counts.TornSamples++
		c.held = nil
		return
	}
	c.useSample(held)
	*held = *s
}

// beginOf returns when the operation of a sample began.
func (c *channelState) beginOf(s *Sample) Interval {
	begin := c.clock.Convert(s.GPUTimeNs)
	begin.HiNs = min(begin.HiNs, s.SeenNs)
	begin.LoNs = min(begin.LoNs, begin.HiNs)
	return begin
}

// open adds the first counter of the channel. The time of that counter is unknown.
func (c *channelState) open() {
	c.opened = true
	c.moments = append(c.moments, moment{counter: c.FirstCounter, seenNs: c.FromNs, begin: Interval{0, c.FromNs}})
	_, seen := c.waits.advance(0, c.FromNs)
	first := Sample{SeenNs: c.FromNs, Counter: c.FirstCounter}
	c.bound(&first, c.FirstCounter, c.FirstCounter-c.order.startedBy(c.FromNs), c.FirstCounter-seen)
}

// useSample adds a sample that is not torn.
func (c *channelState) useSample(s *Sample) {
	if !c.opened {
		c.open()
	}
	begin := c.beginOf(s)
	least := s.Counter - c.order.startedBy(begin.HiNs)
	if n := len(c.moments); n > 0 && c.moments[n-1].counter >= s.Counter {
		c.counts.Skipped++
		return
	}
	c.moments = append(c.moments, moment{s.Counter, s.GPUTimeNs, s.SeenNs, begin})
	before, seen := c.waits.advance(begin.LoNs-c.lateNs(), s.SeenNs-c.lateNs())
	c.closeUncertain()
	if n := len(c.moments); n > 1 {
		if least <= c.least {
			previous := c.moments[n-2]
			if counter, ok := c.proveIdle(s, begin, &previous); ok {
				c.counts.IdleAnchors++
				c.numbers.limit(counter, c.least)
				c.reachAnchor(counter)
			}
		}
		c.boundByWaits(s, s.Counter-1, c.least, s.Counter-1-before)
	}
	c.boundByWaits(s, s.Counter, least, s.Counter-seen)
	if len(c.order.pending.items) > maxPendingCalls || len(c.moments) > maxPendingSamples {
		c.giveUp(len(c.order.pending.items) / 2)
	}
}

// boundByWaits adds bounds whose upper bound follows from waits.
func (c *channelState) boundByWaits(s *Sample, counter, least, most int64) {
	anchors := c.counts.Anchors
	c.bound(s, counter, least, most)
	if c.counts.Anchors > anchors {
		c.anchorNs = s.SeenNs
	}
}

// bound adds bounds of the operations without a call among the first operations of the channel.
func (c *channelState) bound(s *Sample, counter, least, most int64) {
	c.least = max(c.least, least)
	if most < c.least {
		c.counts.Conflicts++
		c.restart(s.SeenNs, s.Counter-c.order.startedBy(s.SeenNs))
		return
	}
	c.numbers.add(counter, c.least, most)
	if most == c.least {
		c.reachAnchor(counter)
	}
}

// restart discards the bounds, because calls and counter disagree. The numbers of the operations so far
// stay unknown.
func (c *channelState) restart(seenNs, least int64) {
	for i := range c.order.pending.items {
		if p := &c.order.pending.items[i]; p.call.StartNs <= seenNs {
			p.unsure = true
		}
	}
	c.out.addUncertain(c, unbounded)
	c.numbers.list = c.numbers.list[:0]
	c.moments = append(c.moments[:0], c.moments[max(0, len(c.moments)-1):]...)
	c.least, c.anchored = least, false
}

// closeUncertain adds the time between the last two samples, if an operation without a call may have run in it.
func (c *channelState) closeUncertain() {
	n := len(c.moments)
	if c.isUncertain && n > 1 && c.out.collects() {
		busy := Interval{c.moments[n-2].begin.LoNs, c.moments[n-1].begin.HiNs}
		c.busy.possible.add(busy.clip(c.out.window))
	}
	c.isUncertain = false
}

// reachAnchor makes the numbers of all operations up to counter final.
func (c *channelState) reachAnchor(counter int64) {
	c.counts.Anchors++
	c.noteExtra(counter)
	c.noteTimings(counter - c.least)
	c.numbers.close()
	steady := c.anchored && c.anchor == c.least
	if c.anchored && c.least > c.anchor {
		c.noteSlip()
	}
	if steady {
		c.out.addEquations(c, counter)
	}
	done := counter - c.least
	n := 0
	for n < len(c.order.pending.items) && c.order.pending.items[n].last <= done {
		n++
	}
	c.finals += int64(n)
	c.emit(n, true)
	for i := range c.order.pending.items {
		p := &c.order.pending.items[i]
		if p.first > done {
			break
		}
		if p.earliest == 0 && !p.unsure {
			p.earliest = c.numbers.earliest(p.first)
			begin, _ := c.moments.beginOf(p.earliest)
			p.earliestBeginNs = begin.LoNs
		}
	}
	if !steady {
		c.out.addUncertain(c, counter)
	}
	c.numbers.startAt(counter, c.least)
	c.moments = c.moments.keepFrom(counter)
	c.waits.dropOld(done)
	c.anchor, c.anchorCounter, c.anchored = c.least, counter, true
}

// noteSlip counts operations without a call since the last anchor.
func (c *channelState) noteSlip() {
	c.counts.Slips++
	c.counts.Extra += c.least - c.anchor
	if c.finals > 0 && !c.isInGapSinceAnchor() {
		c.ownSlips++
	}
}

// isInGapSinceAnchor reports whether a gap overlaps the time since the last anchor.
func (c *channelState) isInGapSinceAnchor() bool {
	return overlapsGap(c.reader.gaps, c.moments[0].seenNs-gapSlackNs, c.readNs)
}

// emit passes the first n pending calls to the results. Without final, only the lower bounds of
// their numbers hold.
func (c *channelState) emit(n int, final bool) {
	from := 0
	for i := range c.order.pending.items[:n] {
		p := &c.order.pending.items[i]
		next := c.reader.chainOf(p.stream).newOperation()
		*next = chainOperation{
			Operation:    Operation{Call: p.call, Channel: c.Number, Stream: p.stream, Hold: p.hold},
			number:       p.number,
			channel:      c,
			part:         p.part,
			parts:        p.parts,
			followsKnown: p.followsKnown,
			inOrder:      p.inOrder,
		}
		w := &next.Operation
		w.Mean = c.means.of(labelKey{p.call.Op, p.call.Label})
		if !p.unsure && c.clock != nil {
			latest := c.numbers.latest(p.last)
			if !final {
				latest = unbounded
			}
			c.setTimes(w, p, latest, c.waits.doneBy(p.stream, p.last, &from))
		}
		if w.Number != 0 {
			c.numbered++
		}
		if next.isAssumed = p.call.AnyTiming && w.Number == 0; next.isAssumed {
			w.StartQuality = Unknown
		}
		c.reader.noteProofs(p, w)
		if p.after.number != 0 && w.StartQuality >= Bounded {
			c.reader.chainOf(p.after.stream).endBy(p.after.number, w.Start.HiNs)
		}
		c.reader.chainOf(p.stream).add(next)
	}
	c.order.drop(n)
}

// giveUp passes the first n pending calls to the results without final numbers. No wait anchors
// them.
func (c *channelState) giveUp(n int) {
	if n == 0 {
		c.out.addUncertain(c, unbounded)
		c.moments = c.moments[max(0, len(c.moments)-1):]
		c.numbers.list = c.numbers.list[max(0, len(c.numbers.list)-1):]
		return
	}
	c.numbers.close()
	counter := c.numbers.latest(c.order.pending.items[n-1].last)
	if counter == unbounded {
		counter = c.numbers.earliest(c.order.pending.items[n-1].last)
	}
	c.out.addUncertain(c, counter)
	c.emit(n, false)
	c.moments = c.moments.keepFrom(counter)
	for len(c.numbers.list) > 1 && c.numbers.list[1].counter <= counter {
		c.numbers.list = c.numbers.list[1:]
	}
	c.anchored = false
}

// useLast adds the bounds at the end of the channel. The recorder read the progress word for the last time at endNs
// or later; 0 means that this time is unknown.
func (c *channelState) useLast(endNs int64) {
	endNs = max(endNs, c.readNs)
	if c.held != nil && c.clock != nil {
		c.useSample(c.held)
		c.held = nil
	}
	if n := len(c.moments); n > 0 && endNs > 0 {
		counter := c.moments[n-1].counter
		_, seen := c.waits.advance(0, endNs)
		c.bound(&Sample{SeenNs: endNs, Counter: counter}, counter, c.least, counter-seen)
	}
	c.endNs = endNs
}

// finish passes all calls to the results, after useLast.
func (c *channelState) finish() {
	c.giveUp(len(c.order.pending.items))
	c.out.addUncertain(c, unbounded)
	if c.isUncertain && c.out.collects() {
		last := Interval{c.moments[len(c.moments)-1].begin.LoNs, c.endNs}
		c.busy.possible.add(last.clip(c.out.window))
	}
}
