package activity

import "slices"

// Streams that share a channel add up to its steps. The survey notes calls and counters in windows of
// time. The steps of a channel in all windows are a sum over streams, each with the weight 0 or 1. Least
// squares gives the weights. They are not exact, because operations end some windows after their calls. So
// the calls of the chosen streams must also add up to all steps of the channel.

const (
	firstWindowNs    = 5_000_000 // length of a window; it doubles as often as the list is full
	maxWindows       = 1024
	maxWindowStreams = 256
	minSharedCalls   = 100 // calls of a stream whose weights are computed
	windowSweeps     = 200 // sweeps of coordinate descent
	// leastWeight is the least weight of a stream on its channel. Its weights on other channels are at most
	// otherWeights of it.
	leastWeight, otherWeights = 0.25, 0.7
)

// windowScales are the numbers of windows that are compared as one.
var windowScales = [...]int{1, 4, 16}

// callWindow has the calls of streams and the counters of channels at the end of a window.
type callWindow struct {
	atNs             int64
	issued, counters []int64 // by stream number; in the order of survey.numbers
}

// callWindows is a list of windows of equal length.
type callWindows struct {
	list   []callWindow
	spanNs int64
}

// noteWindow ends a window at ns if it is over.
func (sv *survey) noteWindow(ns int64) {
	w := &sv.windows
	if n := len(w.list); n > 0 && ns-w.list[n-1].atNs < w.spanNs {
		return
	}
	if len(w.list) >= maxWindows {
		for i := range maxWindows / 2 {
			w.list[i] = w.list[2*i]
		}
		w.list = w.list[:maxWindows/2]
		w.spanNs *= 2
	}
	c := callWindow{
		atNs:     ns,
		issued:   make([]int64, min(len(sv.streams.list), maxWindowStreams)),
		counters: make([]int64, len(sv.numbers)),
	}
	for i := range c.issued {
		if q := sv.queues[int32(i)]; q != nil {
			c.issued[i] = q.issued
		}
	}
	for i, number := range sv.numbers {
		c.counters[i] = sv.channels[number].last.Counter
	}
	w.list = append(w.list, c)
}

// issuedBy returns the calls of a stream at the end of the window.
func (c *callWindow) issuedBy(stream int32) int64 {
	if int(stream) >= len(c.issued) {
		return 0
	}
	return c.issued[stream]
}

// leastSquares is the problem of one channel: the weights of streams whose calls add up to its steps.
type leastSquares struct {
	products [][]float64 // of the calls of two streams
	steps    []float64   // products of the calls of a stream and the steps
	weights  []float64   // from 0 to 1
}

// sharesOf returns the weights of streams on the channel at an index of survey.numbers. It compares scale
// windows as one.
func (m *matcher) sharesOf(index int, streams []int32, scale int) []float64 {
	c := m.channels[m.numbers[index]]
	l := leastSquares{steps: make([]float64, len(streams)), weights: make([]float64, len(streams))}
	for range streams {
		l.products = append(l.products, make([]float64, len(streams)))
	}
	var paired []int32
	for stream, channel := range m.pairs {
		if channel == c.Number && stream < maxWindowStreams {
			paired = append(paired, stream)
		}
	}
	calls := make([]float64, len(streams))
	for i := scale; i < len(m.windows.list); i += scale {
		a, b := &m.windows.list[i-scale], &m.windows.list[i]
		if a.atNs < c.FromNs || b.atNs > c.ToNs || m.inGap(a.atNs-gapSlackNs, b.atNs) {
			continue
		}
		steps := b.counters[index] - a.counters[index]
		for _, stream := range paired {
			steps -= b.issuedBy(stream) - a.issuedBy(stream)
		}
		for k, stream := range streams {
			calls[k] = float64(b.issuedBy(stream) - a.issuedBy(stream))
		}
		l.add(calls, float64(steps))
	}
	l.solve()
	return l.weights
}

func (l *leastSquares) add(calls []float64, steps float64) {
	for i, x := range calls {
		if x == 0 {
			continue
		}
		l.steps[i] += x * steps
		for j, y := range calls {
			l.products[i][j] += x * y
		}
	}
}

// solve finds the weights by coordinate descent.
func (l *leastSquares) solve() {
	for range windowSweeps {
		for i := range l.weights {
			if l.products[i][i] == 0 {
				continue
			}
			rest := l.steps[i]
			for j, w := range l.weights {
				if j != i {
					rest -= l.products[i][j] * w
				}
			}
			l.weights[i] = max(0, min(1, rest/l.products[i][i]))
		}
	}
}

// matchShares pairs the streams whose weights show their channel, if their calls explain its steps.
func (m *matcher) matchShares(streams []int32) {
	for _, scale := range windowScales {
		for pid, open := range m.openStreams(streams) {
			open = slices.DeleteFunc(open, func(stream int32) bool {
				return stream >= maxWindowStreams || m.queues[stream].outside < minSharedCalls
			})
			if len(open) > 0 {
				m.assignShares(m.weighShares(pid, open, scale))
			}
		}
	}
}

// weighShares returns the streams that have a clear channel by their weights, by channel.
func (m *matcher) weighShares(pid int32, streams []int32, scale int) map[int32][]int32 {
	best, second := make([]float64, len(streams)), make([]float64, len(streams))
	channels := make([]int32, len(streams))
	for index, number := range m.numbers {
		if c := m.channels[number]; c.Pid != pid || !c.sampled || m.isExplained(number, 0) {
			continue
		}
		for k, weight := range m.sharesOf(index, streams, scale) {
			if p := m.votes[votePair{streams[k], number}]; p == nil || !p.canRun() {
				continue
			}
			if weight > best[k] {
				best[k], second[k], channels[k] = weight, best[k], number
			} else {
				second[k] = max(second[k], weight)
			}
		}
	}
	byChannel := make(map[int32][]int32)
	for k, stream := range streams {
		if best[k] >= leastWeight && second[k] <= otherWeights*best[k] {
			byChannel[channels[k]] = append(byChannel[channels[k]], stream)
		}
	}
	return byChannel
}

// assignShares pairs the streams of each channel whose steps they explain.
func (m *matcher) assignShares(byChannel map[int32][]int32) {
	for channel, list := range byChannel {
		calls := int64(0)
		for _, stream := range list {
			calls += m.callsOn(stream, channel)
		}
		if len(list) < 2 || !m.isExplained(channel, calls) {
			continue // other tests find streams with a channel of their own
		}
		for _, stream := range list {
			m.assign(stream, channel)
		}
	}
}
