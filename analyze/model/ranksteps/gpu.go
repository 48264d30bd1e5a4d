package ranksteps

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// leastTimed is the number of steps with the GPU times of all collectives, below which ranks are compared by host
// times.
const leastTimed = 48

// maxIntervals bounds the operations that are kept for a rank, while its recording is read.
const maxIntervals = 1 << 23

// interval is a span of time in Unix ns.
type interval struct{ fromNs, toNs int64 }

// networkKernel is a kernel of a collective.
type networkKernel struct {
	interval
	step      int
	operation int // index in rank.operations, -1 if it is not one operation
}

// gpuRank collects the operations of a rank.
type gpuRank struct {
	*rank
	kernels   []networkKernel
	busy      []interval // other kernels and copies
	unknown   int64      // kernels of collectives without a known start or end
	isCut     bool       // there were more than maxIntervals operations
	owner     []int32    // by operation: number of operations in its group
	hasKernel []bool     // by step: it has a kernel of a collective
	isMissing []bool     // by step: such a kernel has no time
	pending   map[int32]pendingKernel
	means     map[gpuKey]gpuMean
}

// pendingKernel is the last kernel of a channel.
type pendingKernel struct {
	interval // 0: unknown
	op       activity.Op
	label    int32
	step     int
	ns       int64 // estimate of its length; 0: unknown
}

// gpuKey identifies equal operations of a rank.
type gpuKey struct {
	op    activity.Op
	label int32
}

// gpuMean is the mean length of equal operations.
type gpuMean struct{ sum, n float64 }

// addGPUTimes adds the times of the GPU to the steps of the processes.
func addGPUTimes(t *timeline.Timeline, w query.Window, byPid map[int32]*rank) error {
	ranks := make(map[int32]*gpuRank)
	for pid, k := range byPid {
		if len(k.steps) > 0 {
			k.out.GPUMissing = "the recording has no GPU times (record --gpu-time auto)"
			ranks[pid] = &gpuRank{
				rank:      k,
				owner:     groupSizes(k),
				hasKernel: make([]bool, len(k.steps)), isMissing: make([]bool, len(k.steps)),
				pending: make(map[int32]pendingKernel),
				means:   make(map[gpuKey]gpuMean),
			}
		}
	}
	if len(t.Facts.Channels) == 0 || len(ranks) == 0 {
		return nil
	}
	for _, k := range ranks {
		for i := range k.steps {
			from, to := k.starts[i], k.starts[i+1]
			k.steps[i].coveredNs = to - from - t.UnrecordedLaunchNs(from, to)
		}
	}
	a, err := activity.Of(t, w)
	if err != nil {
		return err
	}
	isNetwork := make([]bool, len(a.Labels))
	for i := range a.Labels {
		isNetwork[i] = activity.IsNetworkKernel(a.Labels[i].Kernel)
	}
	err = a.EachOperation(func(operation *activity.Operation) {
		if k := ranks[operation.Call.Pid]; k != nil {
			k.addGPUOperation(operation, operation.Call.Label >= 0 && isNetwork[operation.Call.Label])
		}
	})
	for _, k := range ranks {
		k.finish()
	}
	return err
}

// groupSizes returns, for each operation of a rank, the number of operations in its group.
func groupSizes(k *rank) []int32 {
	type group struct {
		tid    int32
		number int64
	}
	counts := make(map[group]int32)
	for i := range k.operations {
		if o := &k.operations[i]; o.Group != 0 {
			counts[group{o.Tid, o.Group}]++
		}
	}
	list := make([]int32, len(k.operations))
	for i := range k.operations {
		o := &k.operations[i]
		list[i] = 1
		if o.Group != 0 {
			list[i] = counts[group{o.Tid, o.Group}]
		}
	}
	return list
}

// addGPUOperation adds an operation of the GPU. Operations of a channel come in order, so the start of the next one bounds
// the end. It is the end if that operation waited for nothing else.
func (g *gpuRank) addGPUOperation(w *activity.Operation, isNetwork bool) {
	if last, ok := g.pending[w.Channel]; ok {
		if w.Hold == nil && w.Call.StartNs <= last.fromNs && w.StartQuality >= activity.Estimated &&
			w.StartNs() > last.fromNs {
			last.toNs = w.StartNs()
		}
		g.addKernel(&last)
		delete(g.pending, w.Channel)
	}
	step := g.stepAt(w.Call.StartNs)
	if step < 0 {
		return
	}
	if len(g.busy)+len(g.kernels) >= maxIntervals {
		g.isCut = true
		return
	}
	hasEnd := w.StartQuality != activity.Unknown && w.EndQuality != activity.Unknown
	if isNetwork {
		if !hasEnd || w.StartQuality < activity.Bounded || w.EndQuality < activity.Bounded {
			g.unknown++
			g.isMissing[step] = true
			return
		}
		// Its length varies with the waits, so a mean says nothing. The next operation or a wait bounds its end.
		span := interval{w.StartNs(), w.End.HiNs}
		g.kernels = append(g.kernels, networkKernel{span, step, g.operationOf(w.Call.StartNs, w.Call.Tid)})
		g.hasKernel[step] = true
		return
	}
	p := pendingKernel{op: w.Call.Op, label: w.Call.Label, step: step}
	if w.StartQuality != activity.Unknown {
		p.fromNs = w.StartNs()
	}
	switch {
	case w.DurationQuality == activity.Measured:
		p.ns = w.Duration.MiddleNs()
	case w.Mean != nil:
		p.ns = int64(w.Mean.MeanNs)
	case hasEnd:
		p.ns = w.EndNs() - w.StartNs()
	}
	if w.Call.Op == activity.OpKernel || w.Call.Op == activity.OpGraph || w.Call.Op == activity.OpFill {
		g.pending[w.Channel] = p
		return
	}
	g.addKernel(&p)
}

// addKernel adds a kernel or a copy to its step. If its length is unknown, it is the mean of equal operations before.
func (g *gpuRank) addKernel(p *pendingKernel) {
	key := gpuKey{p.op, p.label}
	if p.toNs > 0 {
		p.ns = p.toNs - p.fromNs
	}
	m := g.means[key]
	if p.ns > 0 {
		m.sum, m.n = m.sum+float64(p.ns), m.n+1
		g.means[key] = m
	} else if m.n > 0 {
		p.ns = int64(m.sum / m.n)
	}
	if p.fromNs > 0 && p.ns > 0 {
		g.busy = append(g.busy, interval{p.fromNs, p.fromNs + p.ns})
	}
	s := &g.steps[p.step]
	switch p.op {
	case activity.OpKernel, activity.OpGraph, activity.OpFill:
		s.kernelNs += max(0, p.ns)
		s.kernels++
	case activity.OpCopyToDevice, activity.OpCopyToHost, activity.OpCopyOnDevice:
		s.copyNs += max(0, p.ns)
	}
}

// operationOf returns the operation that launched a kernel: the last one of the thread before the launch. It
// returns -1 if several operations share the launch.
func (g *gpuRank) operationOf(launchNs int64, tid int32) int {
	const maxOthers = 64 // operations of other threads
	after := sort.Search(len(g.operations), func(i int) bool { return g.operations[i].StartNs > launchNs })
	for i := after - 1; i >= max(0, after-maxOthers); i-- {
		if g.operations[i].Tid == tid {
			if g.owner[i] > 1 {
				return -1
			}
			return i
		}
	}
	return -1
}

// finish divides the time of the kernels of collectives over steps and operations.
func (g *gpuRank) finish() {
	for _, channel := range slices.Sorted(maps.Keys(g.pending)) {
		last := g.pending[channel]
		g.addKernel(&last)
	}
	timed := 0
	g.timed = make([]bool, len(g.steps))
	for i := range g.timed {
		if g.timed[i] = g.hasKernel[i] && !g.isMissing[i]; g.timed[i] {
			timed++
		}
	}
	g.out.Timed = int64(len(g.kernels))
	switch {
	case g.isCut:
		g.out.GPUMissing = "the recording has too many operations of the GPU"
		return
	case timed < leastTimed:
		g.out.GPUMissing = fmt.Sprintf("only %d of %d steps have the GPU times of all collectives", timed, len(g.steps))
		return
	}
	g.out.GPUMissing, g.hasGPU = "", true
	g.busy = joinIntervals(g.busy)
	slices.SortFunc(g.kernels, func(a, b networkKernel) int { return cmp.Compare(a.fromNs, b.fromNs) })
	covered, at := int64(0), 0
	places := make(map[*operationSum]stepPlace)
	for i := range g.kernels {
		n := &g.kernels[i]
		exposed := int64(0)
		if from := max(n.fromNs, covered); from < n.toNs {
			for at > 0 && g.busy[at-1].toNs > from {
				at--
			}
			exposed, at = freeTime(g.busy, interval{from, n.toNs}, at)
			covered = n.toNs
		}
		g.steps[n.step].collectiveNs += exposed
		if n.operation >= 0 && g.sums[n.operation] != nil {
			sum := g.sums[n.operation]
			p := places[sum].next(n.step)
			places[sum] = p
			sum.addKernel(g.operations[n.operation].Sequence, p.place, n.fromNs, n.toNs-n.fromNs, exposed)
		}
	}
	g.sumTimed()
}

// sumTimed sums up the steps whose collectives all have times.
func (g *gpuRank) sumTimed() {
	for i, timed := range g.timed {
		if ns := g.starts[i+1] - g.starts[i]; timed {
			g.out.TimedNs += ns
			g.out.ExposedNs += min(ns, g.steps[i].collectiveNs)
		}
	}
}

// stepPlace is the place of an operation among the equal ones of its step.
type stepPlace struct{ step, place int }

// next returns the place of the operation that follows in a step.
func (p stepPlace) next(step int) stepPlace {
	if p.step != step+1 { // 0 is no step
		return stepPlace{step + 1, 0}
	}
	return stepPlace{p.step, p.place + 1}
}

// joinIntervals sorts intervals, and joins those that touch.
func joinIntervals(list []interval) []interval {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.fromNs, b.fromNs) })
	joined := list[:0]
	for _, n := range list {
		if last := len(joined) - 1; last >= 0 && n.fromNs <= joined[last].toNs {
			joined[last].toNs = max(joined[last].toNs, n.toNs)
			continue
		}
		joined = append(joined, n)
	}
	return joined
}

// freeTime returns the time of a span that no interval covers. The search begins at an index, and returns where the
// next one can begin.
func freeTime(busy []interval, span interval, at int) (ns int64, next int) {
	for at < len(busy) && busy[at].toNs <= span.fromNs {
		at++
	}
	ns, next = span.toNs-span.fromNs, at
	for ; at < len(busy) && busy[at].fromNs < span.toNs; at++ {
		ns -= min(span.toNs, busy[at].toNs) - max(span.fromNs, busy[at].fromNs)
	}
	return ns, next
}
