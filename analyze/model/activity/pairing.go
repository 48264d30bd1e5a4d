package activity

// votePair is a stream and a channel that may run its operations.
type votePair struct{ stream, channel int32 }

// vote counts how well the counter of a channel fits the calls of a stream. The difference is the
// counter minus the calls that are done: the operations of the channel that are no calls of the stream.
// It stays the same for the only stream of a channel.
type vote struct {
	marked      bool
	fromNs      int64 // the first mark
	atNs, done  int64 // the last mark
	least, most int64 // bounds of the difference in all marks since it changed
	lowest      int64 // lower bound in all marks
	calls       int64 // calls between marks
	marks       int64 // marks after the first one of a span without gaps
	changes     int64 // marks at which the difference had changed
	proofs      int64 // marks with many calls at which it had not changed
	fewer       int64 // marks at which the counter had risen by less than the calls
}

// resolve bounds the counters of the marks of a channel, and counts votes. The next sampled operation
// has the number counter, and ended between startNs and endNs.
func (sv *survey) resolve(c *surveyChannel, counter, startNs, endNs int64) {
	for i := range c.marks {
		m := &c.marks[i]
		pair := votePair{m.queue.stream, c.Number}
		p := sv.votes[pair]
		if p == nil {
			p = new(vote)
			sv.votes[pair] = p
		}
		high := counter
		if endNs <= m.atNs {
			m.low = counter
		} else if startNs > m.atNs {
			high = max(high-1, m.low)
		}
		if m.calls != nil && m.low == high {
			sv.learnGraphs(pair, high, m.atNs, m.calls)
		}
		sv.vote(p, m, high)
	}
	c.marks = c.marks[:0]
}

// spanNs returns the time between the first and the last mark.
func (v *vote) spanNs() int64 { return v.atNs - v.fromNs }

// vote compares the calls that are done with the counter, which was at most high.
func (sv *survey) vote(p *vote, m *mark, high int64) {
	least, most := m.low-m.issued, high-m.done
	if !p.marked {
		p.fromNs = m.atNs
	}
	if !p.marked || sv.inGap(p.atNs-gapSlackNs, m.atNs) {
		p.least, p.most, p.lowest = least, most, least
	} else {
		calls := m.done - p.done
		p.marks++
		p.calls += calls
		if most < p.lowest {
			p.fewer++
			p.lowest = least
		}
		p.lowest = max(p.lowest, least)
		p.least, p.most = max(p.least, least), min(p.most, most)
		if p.least > p.most {
			p.least, p.most = least, most
			p.changes++
		} else if calls > 2*(most-least) {
			p.proofs++
		}
	}
	p.marked, p.atNs, p.done = true, m.atNs, m.done
}

// nameDevices sets the device of each channel: that of its streams, or the only device that the process
// used.
func (sv *survey) nameDevices(pairs map[int32]int32) {
	only := make(map[int32]int32) // by process; -1: several devices, or an unknown one
	for i := range sv.streams.list {
		s := &sv.streams.list[i]
		if device, ok := only[s.Pid]; ok && device != s.Device {
			only[s.Pid] = -1
		} else {
			only[s.Pid] = max(s.Device, -1)
		}
	}
	for _, c := range sv.channels {
		if device, ok := only[c.Pid]; ok && c.Device < 0 {
			c.Device = device
		}
	}
	for stream, channel := range pairs {
		sv.channels[channel].Device = sv.streams.list[stream].Device
	}
}

// channelStates returns the channels with their clocks. Channels of one GPU in a process share a
// clock.
func (sv *survey) channelStates(pairs map[int32]int32, out *results) map[int32]*channelState {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.nameDevices(pairs)
	type key struct{ pid, device, channel int32 }
	keyOf := func(c *surveyChannel) key {
		if c.Device < 0 {
			return key{c.Pid, c.Device, c.Number}
		}
		return key{c.Pid, c.Device, 0}
	}
	points := make(map[key][]clockPoint)
	for _, c := range sv.channels {
		points[keyOf(c)] = append(points[keyOf(c)], c.clock.list...)
	}
	clocks := make(map[key]*Clock)
	for k, p := range points {
		clocks[k] = newClock(p)
	}
	states := make(map[int32]*channelState)
	for number, c := range sv.channels {
		states[number] = newChannelState(c.Channel, clocks[keyOf(c)], out)
	}
	return states
}
