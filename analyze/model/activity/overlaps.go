package activity

import (
	"math"
	"sort"
)

// Kernels of several streams share the GPU. If those of one stream fill it, the operations of others are taken from
// their queues, but wait, and their durations contain that wait. So durations from times in which another channel may
// have run such kernels are compared with durations from the other times. If they differ, they are unknown.

const (
	// maxSmallBlocks is the number of blocks up to which a kernel leaves room for others. GPUs of data
	// centers have 40 to 148 multiprocessors, which run several blocks of most kernels. Collectives
	// have up to 32 blocks.
	maxSmallBlocks = 64
	// maxStretch is how many times longer than the shortest operation of its label an operation with an unknown end
	// may run.
	maxStretch = 2
	// fewShared is the share of operations of a label up to which such times are left out.
	fewShared = 0.2
	// sharedTolerance is the share of a duration up to which times agree. Two errors of gaps agree, too.
	sharedTolerance = 0.1
	// overlapShare is the share of a time that may overlap with other channels: 1 of so many parts.
	overlapShare = 50
)

// fillsGPU reports whether operations of other streams may wait for an operation while it runs.
func (c *Call) fillsGPU() bool {
	switch c.Op {
	case OpKernel:
		return c.Blocks == 0 || c.Blocks > maxSmallBlocks
	case OpGraph:
		return true
	}
	return false
}

// spanStart is the channel and the start of a time, in Unix ns. Without a channel, the time overlaps with nothing.
type spanStart struct {
	channel *channelState
	fromNs  int64
}

// overlaps has the channels of a process that ran kernels which fill the GPU.
type overlaps struct{ channels []*channelState }

// noteFilled notes the time in which an operation may have filled the GPU.
func (r *results) noteFilled(c *channelState, w *Operation) {
	if !c.runsStreams || !w.Call.fillsGPU() || w.StartQuality < Bounded {
		return
	}
	untilNs := int64(0)
	if i := r.labelOf(c, w); i >= 0 {
		untilNs = w.Start.HiNs + maxStretch*c.set.limits[i].leastNs
	}
	if w.EndQuality >= Bounded && (w.EndQuality == Measured || w.End.HiNs < untilNs) {
		untilNs = w.End.HiNs
	}
	c.filled.add(Interval{w.Start.LoNs, untilNs})
}

// newOverlaps returns the overlaps between the channels of a process.
func newOverlaps(channels []*channelState, pid int32) *overlaps {
	o := new(overlaps)
	for _, c := range channels {
		if c.Pid == pid && len(c.filled.list) > 0 {
			c.filled.join()
			o.channels = append(o.channels, c)
		}
	}
	return o
}

// isAlone reports whether no other channel of the same device filled the GPU in more than a small part of a time.
func (o *overlaps) isAlone(from spanStart, ns int64) bool {
	for _, c := range o.channels {
		if from.channel == nil || c == from.channel || c.Device != from.channel.Device {
			continue
		}
		if c.filled.within(Interval{from.fromNs, from.fromNs + ns})*overlapShare > ns {
			return false
		}
	}
	return true
}

// splitShared splits the equations by whether another channel filled the GPU.
func (e *equationSet) splitShared(o *overlaps) (alone, shared []equation) {
	for i := range e.list {
		if eq := &e.list[i]; len(o.channels) == 0 || o.isAlone(eq.from, int64(eq.sumNs)) {
			alone = append(alone, *eq)
		} else {
			shared = append(shared, *eq)
		}
	}
	return alone, shared
}

// sharedTimes are the times of a label in which another channel filled the GPU.
type sharedTimes struct {
	own, all        float64 // operations of the label in these and in all times
	ofAll           float64 // operations of all labels in these times
	sumNs, expectNs float64 // sum of these times, and what the durations from the other times add up to
}

// excessNs returns by how much an operation took longer than durations from the other times say.
func (s *sharedTimes) excessNs() float64 {
	return math.Abs(s.sumNs-s.expectNs) / max(1, s.ofAll)
}

// compareShared compares the times in which another channel filled the GPU with the durations of the other times, own.
func (e *equationSet) compareShared(alone, shared []equation, own []Duration) []sharedTimes {
	list := make([]sharedTimes, len(e.keys))
	for i := range alone {
		for _, t := range alone[i].terms {
			list[t.label].all += float64(t.count)
		}
	}
	for i := range shared {
		expectNs := 0.0
		for _, t := range shared[i].terms {
			expectNs += float64(t.count) * own[t.label].MeanNs
		}
		for _, t := range shared[i].terms {
			s := &list[t.label]
			s.own, s.all = s.own+float64(t.count), s.all+float64(t.count)
			s.ofAll += float64(shared[i].operations)
			s.sumNs, s.expectNs = s.sumNs+shared[i].valueOf(), s.expectNs+expectNs
		}
	}
	return list
}

// applyShared uses the times in which another channel filled the GPU. own is the duration from all other times. If
// these times are not longer than own says, d remains. If few operations ran in these times, own may be used, whichever
// has the smaller error. Otherwise the duration is unknown. All operations of a stream are assumed to wait equally long
// for other streams.
func (d *Duration) applyShared(own *Duration, s *sharedTimes) {
	all, few, share := *d, *own, s.own/max(1, s.all)
	all.ErrorNs += s.excessNs()
	few.ErrorNs += share * few.MeanNs
	agrees := own.IsEstimated && !own.IsLimited && s.excessNs() <= max(sharedTolerance*d.MeanNs, 2*gapErrorNs)
	switch {
	case agrees && (share > fewShared || all.ErrorNs < few.ErrorNs):
		*d = all
	case share <= fewShared:
		*d = few
	default:
		d.IsShared, d.IsEstimated, d.IsLimited, d.MeanNs, d.ErrorNs = true, false, false, 0, 0
	}
}

// within returns the time of the set in an interval, in ns. The set must be joined.
func (s *spans) within(i Interval) (ns int64) {
	at := sort.Search(len(s.list), func(k int) bool { return s.list[k].HiNs > i.LoNs })
	for ; at < len(s.list) && s.list[at].LoNs < i.HiNs; at++ {
		ns += min(s.list[at].HiNs, i.HiNs) - max(s.list[at].LoNs, i.LoNs)
	}
	return ns
}
