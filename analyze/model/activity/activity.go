package activity

import (
	"cmp"
	"maps"
	"slices"
)

// Options are options of Compute.
type Options struct {
	// OnWork, if not nil, is called for each work with a channel. Works of a channel come in the order
	// of their calls. The pointer is valid until OnWork returns.
	OnWork func(*Work)
	// OnUntimed, if not nil, is called for spans of time in which works of a stream without a channel may have
	// run. HiNs is UnknownNs if no wait of the host ends the span.
	OnUntimed func(pid, device int32, span Interval)
	// Gaps are the times in which calls were lost, or launches were not recorded, in order of time.
	Gaps []Window
	// EndNs is when the recorder read all progress words for the last time, Unix ns. 0 takes a time
	// shortly before the last sample.
	EndNs int64
	// Window limits counts and busy times to works whose call starts in it. The zero value is the whole
	// recording. OnWork is called for all works.
	Window Window
	// untilNs is when the replay stops, Unix ns; 0: at the end.
	untilNs int64
	// keepsWorks makes a log of all works, so that eachWork needs no replay.
	keepsWorks bool
}

// Compute computes the activity of a recording. It replays the source twice: to pair streams with
// channels and to fit the clocks, and to number the works. It pairs them once more if launches of a graph
// add several works, and numbers them once more if a pair proves to be wrong, and for OnWork. It tries
// what the calls leave open, see assumption and pairByExtra. Its memory grows with channels, streams, kernels and the
// length of the recording, but not with the number of calls.
func Compute(source Source, channels []Channel, opt Options) (*Result, error) {
	best, err := findBest(source, channels, opt)
	if err != nil {
		return nil, err
	}
	result := best.result()
	if opt.OnWork != nil {
		err = best.eachWork(nil, opt.OnWork, opt.OnUntimed)
	}
	return result, err
}

// attempt numbers the works under one assumption.
type attempt struct {
	source Source
	opt    Options
	survey *survey
	pairs  map[int32]int32
	out    *results
	reader *reader  // after the replay that filled out
	log    *workLog // of that replay; nil without Options.keepsWorks
	works  int64    // numbered works of plausible channels, without slips if all launches are recorded
	// conflicts counts how often calls and counters disagreed, also on channels without a pair. slips counts the slips
	// that no gap explains. A wrong assumption may number as many works: where launches are not recorded, copies that
	// ran elsewhere hide them.
	conflicts, slips int64
	assumed          assumption
	hidden           map[int32]*spans // set by hide
	// unknownTiming and unknownPlace report that the calls leave this open, and likelyTiming that some of the events of
	// unknown timing probably have timing.
	unknownTiming, unknownPlace, likelyTiming bool
}

// try pairs streams with channels, drops the pairs that prove to be wrong, and numbers the works.
func try(source Source, channels []Channel, opt Options, assumed assumption) (*attempt, error) {
	a := &attempt{survey: newSurvey(channels, opt.Gaps), opt: opt, assumed: assumed}
	a.source = a.filter(source)
	if err := a.source(a.survey); err != nil {
		return nil, err
	}
	if works := a.survey.worksOfGraphs(); len(works) > 0 {
		a.survey = newSurvey(channels, opt.Gaps)
		a.survey.works = works
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

// judge numbers the works, counts them, and drops the pairs that prove to be wrong.
func (a *attempt) judge() error {
	if err := a.number(); err != nil {
		return err
	}
	for _, c := range a.reader.channels {
		a.conflicts += c.counts.Conflicts
		a.slips += c.ownSlips
		switch {
		case !c.isPlausible():
		case len(a.opt.Gaps) == 0: // other works without a call contradict the assumption
			a.works += c.finals - c.counts.Extra
		default: // works without a call may be launches, with which final numbers are only bounds
			a.works += c.numbered
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

// number replays the source and collects the works.
func (a *attempt) number() (err error) {
	a.out = newResults(&a.opt)
	opt := a.opt
	a.closeLog()
	if opt.keepsWorks {
		a.log = newWorkLog()
		a.out.log, opt.OnUntimed = a.log, a.log.addSpan
	}
	if a.reader, err = a.numberWorks(&opt, a.out); err == nil && a.log != nil {
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

// isConsistent reports whether nearly all works have their number, and counters and calls always agreed.
func (a *attempt) isConsistent() bool {
	for _, c := range a.reader.channels {
		if c.counts.Slips+c.counts.Conflicts > 0 && c.finals > 0 {
			return false
		}
	}
	return a.works*10 >= a.reader.calls*9
}

// missing returns the number of works without a number. Both assumptions number about as many works, but
// the wrong one has more works to number, or more that no call explains. Where launches are not recorded, most works
// have no number under any assumption, so only those with one count.
func (a *attempt) missing() int64 {
	if len(a.opt.Gaps) > 0 {
		return -a.works
	}
	return a.reader.calls - a.works
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

// isBetterThan compares two assumptions. If both number about as many works, the one is better under which calls and
// counters clearly disagree less, else the one with fewer conflicts.
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

// eachWork calls yield for all works, with Work.Mean from means. It reads the log, or replays the source if the log is
// not complete.
func (a *attempt) eachWork(
	means map[durationKey]*Duration, yield func(*Work), untimed func(pid, device int32, span Interval),
) error {
	if a.log != nil && a.log.err == nil {
		return newWorkReader(a.log, meanTables(means), yield, untimed).readAll()
	}
	opt := a.opt
	opt.OnUntimed = untimed
	_, err := a.numberWorks(&opt, &results{onWork: yield, means: meanTables(means)})
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

// numberWorks replays the source with the pairs of streams and channels.
func (a *attempt) numberWorks(opt *Options, out *results) (*reader, error) {
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
	r.onUntimed, r.works, r.hidden, r.hasOpenPlaces = opt.OnUntimed, a.survey.works, a.hidden, a.unknownPlace
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
