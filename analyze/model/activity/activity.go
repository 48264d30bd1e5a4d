package activity

import (
	"cmp"
	"maps"
	"slices"
)

// Options are options of Compute.
type Options struct {
	// OnOperation, if not nil, is called for each operation with a channel. Operations of a channel come in the order
	// of their calls. The pointer is valid until OnOperation returns.
	OnOperation func(*Operation)
	// OnUntimed, if not nil, is called for spans of time in which operations of a stream without a channel may have
	// run. HiNs is UnknownNs if no wait of the host ends the span.
	OnUntimed func(pid, device int32, span Interval)
	// Gaps are the times in which calls were lost, or launches were not recorded, in order of time.
	Gaps []Window
	// EndNs is when the recorder read all progress words for the last time, Unix ns. 0 takes a time
	// shortly before the last sample.
	EndNs int64
	// Window limits counts and busy times to operations whose call starts in it. The zero value is the whole
	// recording. OnOperation is called for all operations.
	Window Window
	// untilNs is when the replay stops, Unix ns; 0: at the end.
	untilNs int64
	// keepsOperations makes a log of all operations, so that eachOperation needs no replay.
	keepsOperations bool
}

// Compute computes the activity of a recording. It replays the source twice: to pair streams with
// channels and to fit the clocks, and to number the operations. It pairs them once more if launches of a graph
// add several operations, and numbers them once more if a pair proves to be wrong, and for OnOperation. It tries
// what the calls leave open, see assumption and pairByExtra. Its memory grows with channels, streams, kernels and the
// length of the recording, but not with the number of calls.
func Compute(source Source, channels []Channel, opt Options) (*Result, error) {
	best, err := findBest(source, channels, opt)
	if err != nil {
		return nil, err
	}
	result := best.result()
	if opt.OnOperation != nil {
		err = best.eachOperation(nil, opt.OnOperation, opt.OnUntimed)
	}
	return result, err
}

// attempt numbers the operations under one assumption.
type attempt struct {
	source     Source
	opt        Options
	survey     *survey
	pairs      map[int32]int32
	out        *results
	reader     *reader       // after the replay that filled out
	log        *operationLog // of that replay; nil without Options.keepsOperations
	operations int64         // numbered operations of plausible channels, without slips if all launches are recorded
	// conflicts counts how often calls and counters disagreed, also on channels without a pair. slips counts the slips
	// that no gap explains. A wrong assumption may number as many operations: where launches are not recorded, copies
	// that ran elsewhere hide them.
	conflicts, slips int64
	assumed          assumption
	hidden           map[int32]*spans // set by hide
	// unknownTiming and unknownPlace report that the calls leave this open, and likelyTiming that some of the events of
	// unknown timing probably have timing.
	unknownTiming, unknownPlace, likelyTiming bool
}

// try pairs streams with channels, drops the pairs that prove to be wrong, and numbers the operations.
func try(source Source, channels []Channel, opt Options, assumed assumption) (*attempt, error) {
	a := &attempt{survey: newSurvey(channels, opt.Gaps), opt: opt, assumed: assumed}
	a.source = a.filter(source)
	if err := a.source(a.survey); err != nil {
		return nil, err
	}
	if operations := a.survey.operationsOfGraphs(); len(operations) > 0 {
		a.survey = newSurvey(channels, opt.Gaps)
		a.survey.operations = operations
		if err := a.source(a.survey); err != nil {
			return nil, err
		}
	}
	opt.EndNs = cmp.Or(opt.EndNs, a.survey.lastNs-staleNs)
	a.opt, a.pairs = opt, a.survey.pair()
	return a, a.judge()
}

// withTimedEvents returns an attempt with the same pairs, in which some events have timing.
func (a *attempt) withTimedEvents(source Source, timed map[handleKey]bool) (*attempt, error) {
	b := &attempt{
		survey:       a.survey,
		opt:          a.opt,
		pairs:        maps.Clone(a.pairs),
		unknownPlace: a.unknownPlace,
		likelyTiming: a.likelyTiming,
		assumed:      assumption{timedEvents: timed, place: a.assumed.place},
	}
	b.source = b.filter(source)
	return b, b.judge()
}

// filter returns the source under the assumption.
func (a *attempt) filter(source Source) Source {
	return func(to Consumer) error {
		return source(&assumptionFilter{Consumer: to, attempt: a, untilNs: a.opt.untilNs})
	}
}

// judge numbers the operations, counts them, and drops the pairs that prove to be wrong.
func (a *attempt) judge() error {
	if err := a.number(); err != nil {
		return err
	}
	for _, c := range a.reader.channels {
		a.conflicts += c.counts.Conflicts
		a.slips += c.ownSlips
		switch {
		case !c.isPlausible():
		case len(a.opt.Gaps) == 0: // other operations without a call contradict the assumption
			a.operations += c.finals - c.counts.Extra
		default: // operations without a call may be launches, with which final numbers are only bounds
			a.operations += c.numbered
		}
	}
	before, wrong := len(a.pairs), a.reader.contradicted()
	maps.DeleteFunc(a.pairs, func(_, channel int32) bool {
		return wrong[channel] || !a.reader.channels[channel].isPlausible()
	})
	if len(a.pairs) < before {
		return a.number()
	}
	return nil
}

// number replays the source and collects the operations.
func (a *attempt) number() (err error) {
	a.out = newResults(&a.opt)
	opt := a.opt
	a.closeLog()
	if opt.keepsOperations {
		a.log = newOperationLog()
		a.out.log, opt.OnUntimed = a.log, a.log.addSpan
	}
	if a.reader, err = a.numberOperations(&opt, a.out); err == nil && a.log != nil {
		a.log.finish()
	}
	return err
}

// closeLog frees the log.
func (a *attempt) closeLog() {
	if a.log != nil {
		a.log.close()
		a.log = nil
	}
}

// isConsistent reports whether nearly all operations have their number, and counters and calls always agreed.
func (a *attempt) isConsistent() bool {
	for _, c := range a.reader.channels {
		if c.counts.Slips+c.counts.Conflicts > 0 && c.finals > 0 {
			return false
		}
	}
	return a.operations*10 >= a.reader.calls*9
}

// missing returns the number of operations without a number. Both assumptions number about as many operations, but
// the wrong one has more operations to number, or more that no call explains. Where launches are not recorded, most
// operations have no number under any assumption, so only those with one count.
func (a *attempt) missing() int64 {
	if len(a.opt.Gaps) > 0 {
		return -a.operations
	}
	return a.reader.calls - a.operations
}

// orBetter returns the better one of two attempts. The other one must not be used any more.
func (a *attempt) orBetter(b *attempt) *attempt {
	better, worse := a, b
	if b.isBetterThan(a) {
		better, worse = b, a
	}
	worse.closeLog()
	return better
}

// isBetterThan compares two assumptions. If both number about as many operations, the one is better under which calls
// and counters clearly disagree less, else the one with fewer conflicts.
func (a *attempt) isBetterThan(b *attempt) bool {
	more := b.missing() - a.missing()
	if about := a.reader.calls / 5; max(more, -more) <= about {
		own, other := a.conflicts+a.slips, b.conflicts+b.slips
		switch {
		case isClearlyLess(own, other):
			return true
		case isClearlyLess(other, own):
			return false
		case a.conflicts != b.conflicts:
			return a.conflicts < b.conflicts
		}
	}
	return more > 0
}

// isClearlyLess reports whether a number of disagreements is less than half of another one, apart from a few: torn
// samples cause some under any assumption.
func isClearlyLess(a, b int64) bool {
	const few = 4
	return 2*a+few < b
}

// result returns the result of the last replay.
func (a *attempt) result() *Result { return a.out.result(a.reader, a.survey, a.pairs) }

// eachOperation calls yield for all operations, with Operation.Mean from means. It reads the log, or replays the source
// if the log is not complete.
func (a *attempt) eachOperation(
	means map[durationKey]*Duration, yield func(*Operation), untimed func(pid, device int32, span Interval),
) error {
	if a.log != nil && a.log.err == nil {
		return newOperationReader(a.log, meanTables(means), yield, untimed).readAll()
	}
	opt := a.opt
	opt.OnUntimed = untimed
	_, err := a.numberOperations(&opt, &results{onOperation: yield, means: meanTables(means)})
	return err
}

// assumptionFilter decides what calls leave open.
type assumptionFilter struct {
	Consumer
	attempt *attempt
	call    Call  // memory of AddCall
	untilNs int64 // rows after it are left out, Unix ns; 0: none are
	isDone  bool  // such a row was left out
}

// isPast reports whether a row at ns is left out.
func (f *assumptionFilter) isPast(ns int64) bool {
	if f.untilNs == 0 || ns <= f.untilNs {
		return false
	}
	f.isDone = true
	return true
}

// AddSample passes a sample on.
func (f *assumptionFilter) AddSample(s *Sample) {
	if !f.isPast(s.SeenNs) {
		f.Consumer.AddSample(s)
	}
}

// AddCall passes a call on.
func (f *assumptionFilter) AddCall(c *Call) {
	if f.isPast(c.StartNs) {
		return
	}
	a := f.attempt
	switch {
	case c.Op == OpRecordEvent && c.AnyTiming:
		if !a.unknownTiming { // later replays only read
			a.unknownTiming = true
		}
		if c.LikelyTiming && !a.likelyTiming {
			a.likelyTiming = true
		}
		if !a.assumed.isTimed(c) {
			f.call = *c
			f.call.Op = OpMarkEvent
			c = &f.call
		}
	case c.Op == OpCopyToDevice && c.Place == AnyPlace:
		if !a.unknownPlace {
			a.unknownPlace = true
		}
		f.call = *c
		f.call.Place = a.assumed.place
		c = &f.call
	}
	f.Consumer.AddCall(c)
}

// numberOperations replays the source with the pairs of streams and channels.
func (a *attempt) numberOperations(opt *Options, out *results) (*reader, error) {
	states := a.survey.channelStates(a.pairs, out)
	paired := make(map[int32]*channelState)
	for stream, channel := range a.pairs {
		c := states[channel]
		paired[stream] = c
		if a.survey.streams.list[stream].Copies == 0 {
			c.runsStreams = true
		}
	}
	for _, c := range states {
		c.showsEnds = !c.runsStreams
	}
	r := newReader(states, paired, opt.Gaps)
	r.onUntimed, r.operations, r.hidden, r.hasOpenPlaces = opt.OnUntimed, a.survey.operations, a.hidden, a.unknownPlace
	if err := a.source(r); err != nil {
		return nil, err
	}
	for _, stream := range slices.Sorted(maps.Keys(r.order)) {
		r.endUntimed(r.order[stream], UnknownNs)
	}
	channels := r.sortedChannels()
	for _, c := range channels {
		endNs := opt.EndNs
		if c.ToNs < UnknownNs {
			endNs = c.ToNs - staleNs // later counters may not have been read
		}
		c.useLast(endNs)
		r.applyProofs()
	}
	for _, c := range channels {
		c.finish()
	}
	r.finishChains()
	return r, nil
}

// sortedChannels returns the channels by process and number.
func (r *reader) sortedChannels() []*channelState {
	return slices.SortedFunc(maps.Values(r.channels), func(a, b *channelState) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Number, b.Number))
	})
}
