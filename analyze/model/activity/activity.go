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
	// Gaps are the times in which calls were lost, or launches were not recorded, in order of time.
	Gaps []Window
	// EndNs is when the recorder read all progress words for the last time, Unix ns. 0 takes a time
	// shortly before the last sample.
	EndNs int64
	// Window limits counts and busy times to works whose call starts in it. The zero value is the whole
	// recording. OnWork is called for all works.
	Window Window
}

// Compute computes the activity of a recording. It replays the source three times: to pair streams
// with channels and to fit the clocks, to try these pairs, and to number the works. If it is unknown
// whether events have timing, it tries both, and replays the source up to five times. Its memory
// grows with channels, streams, kernels and the length of the recording, but not with the number of
// calls.
func Compute(source Source, channels []Channel, opt Options) (*Result, error) {
	best, err := findPairs(source, channels, opt)
	if err != nil {
		return nil, err
	}
	return best.compute()
}

// findPairs pairs streams with channels.
func findPairs(source Source, channels []Channel, opt Options) (*attempt, error) {
	if opt.Window == (Window{}) {
		opt.Window = Window{0, UnknownNs}
	}
	best, err := try(source, channels, opt, false)
	if err != nil {
		return nil, err
	}
	if best.unknownTiming && !best.isPerfect() {
		timed, err := try(source, channels, opt, true)
		if err != nil {
			return nil, err
		}
		if timed.works > best.works {
			best = timed
		}
	}
	return best, nil
}

// attempt pairs streams with channels under one assumption about events of unknown timing.
type attempt struct {
	source Source
	opt    Options
	survey *survey
	pairs  map[int32]int32
	works  int64 // numbered works of plausible channels, without slips
	calls  int64 // calls that add works
	// unknownTiming reports that there were records of events of unknown timing.
	unknownTiming bool
}

// compute numbers the works and returns the result.
func (a *attempt) compute() (*Result, error) {
	out := newResults(&a.opt)
	r, err := numberWorks(a.source, a.survey, a.pairs, &a.opt, out)
	if err != nil {
		return nil, err
	}
	return out.result(r, a.survey, a.pairs), nil
}

// isPerfect reports whether every work has its number.
func (a *attempt) isPerfect() bool { return a.works == a.calls }

// try pairs streams with channels. It drops the pairs that prove to be wrong.
func try(source Source, channels []Channel, opt Options, timed bool) (*attempt, error) {
	a := &attempt{survey: newSurvey(channels, opt.Gaps)}
	a.source = func(to Consumer) error { return source(&timingFilter{Consumer: to, timed: timed, attempt: a}) }
	if err := a.source(a.survey); err != nil {
		return nil, err
	}
	opt.EndNs = cmp.Or(opt.EndNs, a.survey.lastNs-staleNs)
	a.opt, a.pairs = opt, a.survey.pair()
	out := &results{trial: true}
	trial, err := numberWorks(a.source, a.survey, a.pairs, &opt, out)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(a.pairs, func(_, channel int32) bool { return !trial.channels[channel].isPlausible() })
	for _, c := range trial.channels {
		if c.isPlausible() {
			a.works += c.finals - c.counts.Extra
		}
	}
	a.calls = trial.calls
	return a, nil
}

// timingFilter decides whether records of events of unknown timing are works.
type timingFilter struct {
	Consumer
	timed   bool
	attempt *attempt
	mark    Call // memory of AddCall
}

// AddCall passes a call on.
func (f *timingFilter) AddCall(c *Call) {
	if c.Op == OpRecordEvent && c.AnyTiming {
		if !f.attempt.unknownTiming { // later replays only read
			f.attempt.unknownTiming = true
		}
		if !f.timed {
			f.mark = *c
			f.mark.Op = OpMarkEvent
			c = &f.mark
		}
	}
	f.Consumer.AddCall(c)
}

// numberWorks replays the source with pairs of streams and channels.
func numberWorks(
	source Source, survey *survey, pairs map[int32]int32, opt *Options, out *results,
) (*reader, error) {
	states := survey.channelStates(pairs, out)
	paired := make(map[int32]*channelState)
	for stream, channel := range pairs {
		paired[stream] = states[channel]
	}
	r := newReader(states, paired, opt.Gaps)
	if err := source(r); err != nil {
		return nil, err
	}
	for _, c := range r.sortedChannels() {
		endNs := opt.EndNs
		if c.ToNs < UnknownNs {
			endNs = c.ToNs - staleNs // later counters may not have been read
		}
		c.finish(endNs)
	}
	return r, nil
}

// sortedChannels returns the channels by process and number.
func (r *reader) sortedChannels() []*channelState {
	return slices.SortedFunc(maps.Values(r.channels), func(a, b *channelState) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Number, b.Number))
	})
}
