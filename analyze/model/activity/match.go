package activity

import (
	"cmp"
	"maps"
	"slices"
)

// matcher pairs streams with channels by their votes.
type matcher struct {
	*survey
	pairs      map[int32]int32
	calls      map[int32]int64 // calls of all streams of a channel
	candidates map[int32][]votePair
}

// fits reports whether the channel may be the only one of the stream.
func (v *vote) fits() bool { return v.proofs >= 2 && v.changes*4 <= v.marks }

// canRun reports whether the channel may run the operations of the stream, alone or with others.
func (v *vote) canRun() bool { return v.marks > 0 && v.fewer*10 <= v.marks }

// pair returns the channel of each stream that has one. It first pairs streams with a channel of
// their own: counter minus calls is constant for this channel, and varies for all others. Then it
// pairs streams whose calls add up to the steps of a channel, alone or together with other streams.
// Streams that share channels follow from the steps in short windows.
func (sv *survey) pair() map[int32]int32 {
	for _, c := range sv.channels {
		if c.ToNs < UnknownNs {
			sv.resolve(c, unbounded, 0, UnknownNs) // its last operations may have no sample
		} else {
			sv.resolve(c, c.last.Counter+1, UnknownNs, UnknownNs)
		}
	}
	m := matcher{
		survey:     sv,
		pairs:      make(map[int32]int32),
		calls:      make(map[int32]int64),
		candidates: sv.findCandidates(),
	}
	streams := slices.Sorted(maps.Keys(m.candidates))
	for _, stream := range streams {
		if c, p := m.leader(
			stream,
			func(p *vote) int64 { return p.changes },
		); p != nil && p.fits() &&
			!m.isTooSmall(stream, c) {
			m.assign(stream, c)
		}
	}
	m.matchTotals(streams)
	m.matchShares(streams)
	for _, list := range m.openStreams(streams) {
		m.matchTogether(list)
	}
	m.matchShared(streams)
	m.matchUncertain(streams)
	return m.pairs
}

// findCandidates returns the pairs of each stream with channels that lived as long as the stream. The number of marks
// says nothing: channels with fewer samples have fewer.
func (sv *survey) findCandidates() map[int32][]votePair {
	longest := make(map[int32]int64)
	for pair, p := range sv.votes {
		longest[pair.stream] = max(longest[pair.stream], p.spanNs())
	}
	candidates := make(map[int32][]votePair)
	for pair, p := range sv.votes {
		if p.marks > 0 && p.spanNs() >= longest[pair.stream]/5*4 {
			candidates[pair.stream] = append(candidates[pair.stream], pair)
		}
	}
	for _, list := range candidates {
		slices.SortFunc(list, func(a, b votePair) int { return cmp.Compare(a.channel, b.channel) })
	}
	return candidates
}

func (m *matcher) assign(stream, channel int32) {
	m.pairs[stream] = channel
	m.calls[channel] += m.callsOn(stream, channel)
}

// isTooSmall reports whether a stream has too few calls to tell channels apart, or a channel moved far
// more than the few calls of a stream explain. The difference to few calls may be constant by chance.
func (m *matcher) isTooSmall(stream, channel int32) bool {
	const few, least = 500, 20
	calls := m.callsOn(stream, channel)
	return calls < least || calls < few && m.channels[channel].outside > 2*calls+few/10
}

// callsOn returns the calls of a stream since the first sample of a channel, outside of gaps.
func (m *matcher) callsOn(stream, channel int32) int64 {
	return m.queues[stream].outside - m.channels[channel].outsideAt[stream]
}

// leader returns the candidate with the fewest faults, if all others have many more. It skips channels
// whose steps equal the calls of their streams already.
func (m *matcher) leader(stream int32, faults func(*vote) int64) (channel int32, best *vote) {
	second := int64(-1)
	for _, pair := range m.candidates[stream] {
		if m.calls[pair.channel] > 0 && m.isExplained(pair.channel, 0) {
			continue
		}
		p := m.votes[pair]
		switch {
		case best == nil:
			channel, best = pair.channel, p
		case faults(p) < faults(best):
			channel, best, second = pair.channel, p, faults(best)
		case second < 0 || faults(p) < second:
			second = faults(p)
		}
	}
	if best == nil || second >= 0 && second < 3*faults(best)+2 {
		return 0, nil
	}
	return channel, best
}

// isExplained reports whether the steps of a channel equal the calls of its streams plus more
// calls.
func (m *matcher) isExplained(channel int32, more int64) bool {
	calls := m.calls[channel] + more
	off := m.channels[channel].outside - calls
	return max(off, -off) <= 8+calls/50
}

// matchTotals pairs streams with the only channel whose steps add up to the calls of the stream and
// of the streams that are paired already.
func (m *matcher) matchTotals(streams []int32) {
	m.matchOnly(streams, func(pair votePair) bool {
		return !m.isExplained(pair.channel, 0) && m.isExplained(pair.channel, m.callsOn(pair.stream, pair.channel))
	})
}

// matchOnly pairs the streams without a channel that have only one fitting channel, if no other stream has the same.
func (m *matcher) matchOnly(streams []int32, fits func(votePair) bool) {
	wanted := make(map[int32][]int32) // streams by channel
	for _, stream := range streams {
		if _, ok := m.pairs[stream]; ok {
			continue
		}
		var fitting []int32
		for _, pair := range m.candidates[stream] {
			if m.votes[pair].canRun() && !m.isTooSmall(stream, pair.channel) && fits(pair) {
				fitting = append(fitting, pair.channel)
			}
		}
		if len(fitting) == 1 {
			wanted[fitting[0]] = append(wanted[fitting[0]], stream)
		}
	}
	for channel, list := range wanted {
		if len(list) == 1 {
			m.assign(list[0], channel)
		}
	}
}

// matchShared pairs the other streams with the channel that moves at least by their calls. In the end,
// it drops the pairs of channels whose steps remain unexplained.
func (m *matcher) matchShared(streams []int32) {
	shared := make(map[int32]bool)
	for _, stream := range streams {
		if _, ok := m.pairs[stream]; ok {
			continue
		}
		if c, p := m.leader(stream, func(p *vote) int64 { return p.fewer }); p != nil && p.canRun() && p.marks > 2 &&
			!m.isTooSmall(stream, c) {
			m.assign(stream, c)
			shared[c] = true
		}
	}
	m.matchTotals(streams)
	for channel := range shared {
		off := m.channels[channel].outside - m.calls[channel]
		if m.calls[channel] < 100 || max(off, -off) > 20+m.calls[channel]/10 {
			maps.DeleteFunc(m.pairs, func(_, of int32) bool { return of == channel })
			m.calls[channel] = 0
		}
	}
}

// matchUncertain pairs the other streams with events of unknown timing. Their calls need not follow the steps of a
// channel, but the only channel without a stream whose steps lie between the calls without these events and all calls
// may be theirs. If it is not, calls and counter disagree.
func (m *matcher) matchUncertain(streams []int32) {
	m.matchOnly(streams, func(pair votePair) bool {
		calls, uncertain := m.callsOn(pair.stream, pair.channel), m.queues[pair.stream].uncertain
		return uncertain > 0 && m.calls[pair.channel] == 0 && m.hasRoom(pair.channel, calls) &&
			m.channels[pair.channel].outside <= calls+uncertain
	})
}

// maxTogether bounds the streams of a process that are matched together.
const maxTogether = 10

// openStreams returns the streams without a channel, by process, those with the most calls first.
func (m *matcher) openStreams(streams []int32) map[int32][]int32 {
	open := make(map[int32][]int32)
	for _, stream := range streams {
		if _, ok := m.pairs[stream]; !ok {
			pid := m.survey.streams.list[stream].Pid
			open[pid] = append(open[pid], stream)
		}
	}
	for _, list := range open {
		slices.SortStableFunc(list, func(a, b int32) int {
			return cmp.Compare(m.queues[b].outside, m.queues[a].outside)
		})
	}
	return open
}

// matchTogether tries all ways to give each stream a channel that moves at least by its calls. It pairs
// the streams if the steps of all channels add up much better in one way than in all others.
func (m *matcher) matchTogether(streams []int32) {
	if len(streams) > maxTogether {
		return
	}
	s := jointSearch{matcher: m, streams: streams, more: make(map[int32]int64), best: unbounded, second: unbounded}
	s.chosen = make([]int32, len(streams))
	s.try(0)
	const lead = 20
	if s.best < unbounded && s.second > 3*s.best+lead {
		for i, stream := range streams {
			m.assign(stream, s.found[i])
		}
	}
}

// jointSearch tries to give each of some streams a channel.
type jointSearch struct {
	*matcher
	streams       []int32
	more          map[int32]int64 // calls of the chosen streams by channel
	chosen, found []int32         // channels by index of streams
	best, second  int64           // unexplained steps of the two best ways
}

func (s *jointSearch) try(i int) {
	if i == len(s.streams) {
		s.compare()
		return
	}
	for _, pair := range s.candidates[s.streams[i]] {
		calls := s.callsOn(pair.stream, pair.channel)
		if !s.votes[pair].canRun() || s.isTooSmall(pair.stream, pair.channel) ||
			!s.hasRoom(pair.channel, s.more[pair.channel]+calls) {
			continue
		}
		s.chosen[i] = pair.channel
		s.more[pair.channel] += calls
		s.try(i + 1)
		s.more[pair.channel] -= calls
	}
}

// compare keeps the choice if fewer steps are unexplained than before.
func (s *jointSearch) compare() {
	unexplained := int64(0)
	for channel, calls := range s.more {
		if calls == 0 {
			continue
		}
		if !s.isExplained(channel, calls) {
			return
		}
		off := s.channels[channel].outside - s.calls[channel] - calls
		unexplained += max(off, -off)
	}
	if unexplained < s.best {
		s.second, s.best = s.best, unexplained
		s.found = slices.Clone(s.chosen)
	} else {
		s.second = min(s.second, unexplained)
	}
}

// hasRoom reports whether the steps of a channel may contain some more calls.
func (m *matcher) hasRoom(channel int32, more int64) bool {
	calls := m.calls[channel] + more
	return m.channels[channel].outside >= calls-8-calls/50
}
