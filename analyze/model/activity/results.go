package activity

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Result is the activity of a recording.
type Result struct {
	Streams   []StreamActivity
	Channels  []ChannelActivity // by process and number
	Devices   []DeviceActivity  // by process and device
	Durations []Duration        // by process, the largest total first
	Labels    []Label           // by Call.Label; only from OfRecording
	Launches  []Launches        // of operations with a channel whose call starts in the window
	// UnpairedOperations counts the operations of streams that have no channel.
	UnpairedOperations int64
}

// StreamActivity has the operations and the busy time of one stream.
type StreamActivity struct {
	Stream
	OperationCounts
	Channel int32    // 0: the stream has no pair
	Busy    Interval // bounds of the busy time of operations with a call, ns
}

// ChannelActivity has the operations and the busy time of one channel.
type ChannelActivity struct {
	Channel
	ChannelCounts
	// Streams are the streams whose operations the channel runs, as indices of Result.Streams. Without any,
	// the channel has no pair, and no other field is set.
	Streams []int32
	// Busy bounds the time in which recorded operations of these streams ran, and after FromNs also those without a
	// call, ns.
	Busy            Interval
	FirstNs, LastNs int64 // first call and last end, Unix ns; 0: unknown
	ClockResidualNs int64
	// EstimatedNs is the sum of the estimated durations of the recorded operations, and ErrorNs its
	// standard error. Unestimated operations have no estimate.
	EstimatedNs, ErrorNs float64
	LongestNs            float64 // longest estimated mean duration
	Unestimated          int64
	// Complete reports that all calls of the channel were recorded.
	Complete bool
}

// BusyTime returns the tightest bounds of the busy time, in ns: those of the samples, and two standard
// errors around the estimate if all calls were recorded. Operations without a call may take as long as the
// longest kind of operation. Operations of several streams may run at the same time, so their sum bounds the time
// only from above.
func (a *ChannelActivity) BusyTime() Interval {
	busy := a.Busy
	if !a.Complete {
		return busy
	}
	if low := int64(a.EstimatedNs - 2*a.ErrorNs); len(a.Streams) == 1 {
		busy.LoNs = max(busy.LoNs, min(low, busy.HiNs))
	}
	if a.Unestimated == 0 {
		high := int64(a.EstimatedNs + 2*a.ErrorNs + float64(a.Extra)*a.LongestNs)
		busy.HiNs = min(busy.HiNs, max(high, busy.LoNs))
	}
	return busy
}

// BusyTimeOf returns the tightest bounds of the busy time of a device, in ns: those of the samples, of the
// busiest channel, and of the sum over the channels.
func (r *Result) BusyTimeOf(d *DeviceActivity) Interval {
	busy, sum := d.Busy, int64(0)
	for i := range r.Channels {
		c := &r.Channels[i]
		if c.Pid != d.Pid || c.Device != d.Device {
			continue
		}
		of := c.BusyTime()
		busy.LoNs = max(busy.LoNs, of.LoNs)
		sum += of.HiNs
	}
	busy.HiNs = max(busy.LoNs, min(busy.HiNs, sum))
	return busy
}

// DeviceActivity is the busy time of all channels of a process on a device.
type DeviceActivity struct {
	Pid, Device     int32
	Busy            Interval // bounds of the time in which any channel was busy, ns
	FirstNs, LastNs int64    // first call and last end, Unix ns; 0: unknown
}

// results collects the operations of all channels.
type results struct {
	onOperation func(*Operation)     // if it is set, it is called, and nothing is collected
	means       map[int32]*meanTable // of Operation.Mean, by process
	log         *operationLog        // of all operations; nil: there is none
	random      *rand.Rand
	equations   map[int32]*equationSet // by process
	streams     []streamResult
	window      Window // limits counts and times
	launches    launchCounts
}

// streamResult has the operations of a stream, on all its channels.
type streamResult struct {
	counts OperationCounts
	busy   *busyTimes
}

func newResults(opt *Options) *results {
	return &results{
		window: opt.Window, random: rand.New(rand.NewPCG(1, 2)),
		equations: make(map[int32]*equationSet),
	}
}

func (r *results) equationsOf(pid int32) *equationSet {
	if r.equations[pid] == nil {
		r.equations[pid] = new(equationSet)
	}
	return r.equations[pid]
}

// collects reports whether operations are collected for the result.
func (r *results) collects() bool { return r.onOperation == nil }

// addOperation adds an operation whose times are final.
func (r *results) addOperation(c *channelState, w *Operation) {
	if !r.collects() {
		r.onOperation(w)
		return
	}
	busy := w.busyInterval(c.endNs).clip(r.window)
	certain := w.certainInterval().clip(r.window)
	c.busy.add(certain, busy)
	r.noteFilled(c, w)
	if w.Call.StartNs < r.window.FromNs || w.Call.StartNs > r.window.ToNs {
		return
	}
	if int(w.Stream) >= len(r.streams) {
		r.streams = append(r.streams, make([]streamResult, int(w.Stream)+1-len(r.streams))...)
	}
	s := &r.streams[w.Stream]
	if s.busy == nil {
		s.busy = newBusyTimes()
	}
	s.counts.count(w)
	c.counts.count(w)
	s.busy.add(certain, busy)
	r.countOperation(c, w)
	r.launches.add(w)
	if c.firstNs == 0 {
		c.firstNs = w.Call.StartNs
	}
	if w.EndQuality >= Bounded {
		c.lastNs = max(c.lastNs, w.End.HiNs)
	}
}

// countOperation counts an operation for the total of its label.
func (r *results) countOperation(c *channelState, w *Operation) {
	i := r.labelOf(c, w)
	if i < 0 {
		c.unlisted++
		return
	}
	c.set.operations[i]++
	if int(i) >= len(c.operations) {
		c.operations = append(c.operations, make([]int64, int(i)+1-len(c.operations))...)
	}
	c.operations[i]++
	if w.handOverNs > 0 {
		c.set.addSingle(i, w.handOverNs, spanStart{c, w.StartNs()}, r.random)
	}
	if w.toCopyNs > 0 {
		if k := c.set.labelOf(w.copyLabel); k >= 0 {
			c.set.addLoose([]term{{i, 1}, {k, 1}}, w.toCopyNs+2*gapMeanNs, spanStart{c, w.StartNs()}, r.random)
		}
	}
	if ns := w.copyNs(); ns > 0 {
		c.set.addLoose([]term{{i, 1}}, ns+gapMeanNs, spanStart{}, r.random)
	}
	if w.StartQuality == Measured && w.EndQuality >= Bounded ||
		(w.isCopy() || w.Call.StartsEarly) && w.EndQuality == Measured {
		c.set.addLimit(i, w.Duration.HiNs, r.random)
	}
}

// labelOf returns the index of the label of an operation, or -1.
func (r *results) labelOf(c *channelState, w *Operation) int32 {
	if c.set == nil {
		c.set = r.equationsOf(c.Pid)
	}
	return c.set.labelOf(labelKey{w.Call.Op, w.Call.Label})
}

// addUncertain adds the times up to a counter in which the channel may have run operations without a call.
// Such an operation ends before the next operation begins.
func (r *results) addUncertain(c *channelState, counter int64) {
	if !r.collects() {
		return
	}
	for i := 1; i < len(c.moments) && c.moments[i].counter <= counter; i++ {
		a, b := &c.moments[i-1], &c.moments[i]
		busy := Interval{a.begin.LoNs, b.begin.HiNs}
		if a.gpuNs == 0 {
			busy.LoNs = a.seenNs
		}
		c.busy.possible.add(busy.clip(r.window))
		if c.runsStreams {
			c.filled.add(busy)
		}
		c.isUncertain = i == len(c.moments)-1
	}
}

// result returns all results.
func (r *results) result(from *reader, survey *survey, pairs map[int32]int32) *Result {
	channels := from.sortedChannels()
	result := &Result{
		Streams:            r.streamActivity(from.streams.list, pairs),
		Durations:          r.durations(channels),
		UnpairedOperations: from.unpaired,
		Launches:           r.launches.list,
	}
	durations := result.durationsByKey()
	for _, c := range channels {
		a := r.channelActivity(c, durations)
		a.Complete = survey.isComplete(c)
		for _, stream := range slices.Sorted(maps.Keys(pairs)) {
			if pairs[stream] == c.Number {
				a.Streams = append(a.Streams, stream)
			}
		}
		result.Channels = append(result.Channels, a)
	}
	result.Devices = r.deviceActivity(channels)
	return result
}

// durationsByKey returns the estimated durations.
func (r *Result) durationsByKey() map[durationKey]*Duration {
	durations := make(map[durationKey]*Duration)
	for i := range r.Durations {
		if d := &r.Durations[i]; d.IsEstimated {
			durations[durationKey{d.Pid, labelKey{d.Op, d.Label}}] = d
		}
	}
	return durations
}

// durations estimates the durations of all processes.
func (r *results) durations(channels []*channelState) (list []Duration) {
	for _, pid := range slices.Sorted(maps.Keys(r.equations)) {
		list = append(list, r.equations[pid].solve(pid, newOverlaps(channels, pid))...)
	}
	return list
}

// channelActivity returns the result of a channel.
func (r *results) channelActivity(c *channelState, durations map[durationKey]*Duration) ChannelActivity {
	a := ChannelActivity{
		Channel: c.Channel, ChannelCounts: c.counts, Busy: c.busy.bounds(), FirstNs: c.firstNs, LastNs: c.lastNs,
		Unestimated: c.unlisted,
	}
	if c.clock != nil {
		a.ClockResidualNs = c.clock.ResidualNs()
	}
	for i, n := range c.operations {
		if n == 0 {
			continue
		}
		d := durations[durationKey{c.Pid, c.set.keys[i]}]
		if d == nil || !d.IsEstimated {
			a.Unestimated += n
			continue
		}
		a.EstimatedNs += float64(n) * d.MeanNs
		a.LongestNs = max(a.LongestNs, d.MeanNs)
		a.ErrorNs += float64(n) * d.ErrorNs // errors of one recording are not independent
	}
	return a
}

type durationKey struct {
	pid int32
	labelKey
}

// deviceActivity returns the busy times of the devices of each process.
func (r *results) deviceActivity(channels []*channelState) (list []DeviceActivity) {
	type key struct{ pid, device int32 }
	busy := make(map[key]*busyTimes)
	ends := make(map[key]*DeviceActivity)
	for _, c := range channels {
		k := key{c.Pid, c.Device}
		if c.busy.isEmpty() {
			continue
		}
		if busy[k] == nil {
			busy[k] = newBusyTimes()
			ends[k] = &DeviceActivity{Pid: c.Pid, Device: c.Device, FirstNs: c.firstNs}
		}
		busy[k].addTimes(c.busy)
		if c.firstNs != 0 && (ends[k].FirstNs == 0 || c.firstNs < ends[k].FirstNs) {
			ends[k].FirstNs = c.firstNs
		}
		ends[k].LastNs = max(ends[k].LastNs, c.lastNs)
	}
	for k, d := range ends {
		d.Busy = busy[k].bounds()
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b DeviceActivity) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}

// streamActivity returns the operations of all streams.
func (r *results) streamActivity(streams []Stream, pairs map[int32]int32) []StreamActivity {
	list := make([]StreamActivity, len(streams))
	for i := range list {
		a := &list[i]
		a.Stream, a.Channel = streams[i], pairs[int32(i)]
		if i < len(r.streams) && r.streams[i].busy != nil {
			a.OperationCounts, a.Busy = r.streams[i].counts, r.streams[i].busy.bounds()
		}
	}
	return list
}
