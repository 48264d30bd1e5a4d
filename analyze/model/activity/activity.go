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
// with channels and to fit the clocks, to try these pairs, and to number the works. Its memory
// grows with channels, streams, kernels and the length of the recording, but not with the number of
// calls.
func Compute(source Source, channels []Channel, opt Options) (*Result, error) {
	if opt.Window == (Window{}) {
		opt.Window = Window{0, UnknownNs}
	}
	survey := newSurvey(channels, opt.Gaps)
	if err := source(survey); err != nil {
		return nil, err
	}
	opt.EndNs = cmp.Or(opt.EndNs, survey.lastNs-staleNs)
	pairs := survey.pair()
	trial, err := numberWorks(source, survey, pairs, &opt, &results{trial: true})
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(pairs, func(_, channel int32) bool { return !trial.channels[channel].isPlausible() })
	out := newResults(&opt)
	r, err := numberWorks(source, survey, pairs, &opt, out)
	if err != nil {
		return nil, err
	}
	return out.result(r, survey, pairs), nil
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
