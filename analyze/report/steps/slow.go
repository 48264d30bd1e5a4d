package steps

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/stats"
)

// slowOperation is an operation that ran for much longer than others with the same kernel and grid.
type slowOperation struct {
	key                  gpuKey
	step                 int // index of the step that launched it
	stack                int32
	fromNs, toNs         int64 // Unix ns
	atLeastNs, typicalNs int64
	// next are operations whose typical durations must be subtracted from atLeastNs; the duration is estimated
	// then.
	next      [maxNext]gpuKey
	nextCount int
}

// quality returns the certainty of the duration.
func (w *slowOperation) quality() string {
	if w.nextCount > 0 {
		return qualityEstimated
	}
	return qualityBounded
}

// Certainties of durations. They are values of the column "gpu_quality".
const (
	qualityBounded   = "bounded"
	qualityEstimated = "estimated"
)

func (w *slowOperation) excessNs() int64 { return w.atLeastNs - w.typicalNs }

// isShorter orders operations by the lower bound of their duration.
func (w slowOperation) isShorter(o slowOperation) bool { return w.atLeastNs < o.atLeastNs }

// slowOperations has the slow operations of a kernel and grid, in order of time.
type slowOperations struct {
	list       []slowOperation
	longest    slowOperation
	operations int64 // all operations of the kernel and grid in steps
	steps      []int // that launched slow operations
}

// gpuOperations samples the durations of the operations of a kernel and grid.
type gpuOperations struct {
	operations, bounded int64
	upperNs             []int64         // random sample of upper bounds of durations, ns
	longest             []slowOperation // heap with the shortest first
}

const (
	sampledDurations  = 64
	longestOperations = 128
	maxGPUKeys        = 1 << 12
)

// durationsOf returns the durations of the operations of a kernel and grid; nil: there are too many kernels.
func (g *processGPU) durationsOf(key gpuKey) *gpuOperations {
	k := g.operations[key]
	if k == nil && len(g.operations) < maxGPUKeys {
		if g.operations == nil {
			g.operations = make(map[gpuKey]*gpuOperations)
		}
		k = new(gpuOperations)
		g.operations[key] = k
	}
	return k
}

// add adds the duration of an operation in a step.
func (k *gpuOperations) add(w *activity.Operation, step int) {
	k.operations++
	if w.DurationQuality < activity.Bounded {
		return
	}
	k.addUpper(w.Duration.HiNs)
	if len(k.longest) == longestOperations && w.Duration.LoNs <= k.longest[0].atLeastNs {
		return // most operations are none of the longest
	}
	k.addLongest(slowOperation{
		key: gpuKey{w.Call.Op, w.Call.Label}, step: step, stack: w.Call.Stack, fromNs: w.Start.LoNs, toNs: w.End.HiNs,
		atLeastNs: w.Duration.LoNs,
	})
}

// addLongest adds an operation to the longest.
func (k *gpuOperations) addLongest(slow slowOperation) {
	switch {
	case len(k.longest) < longestOperations:
		k.longest = stats.HeapPush(k.longest, slow, slowOperation.isShorter)
	case k.longest[0].isShorter(slow):
		k.longest[0] = slow
		stats.HeapFix(k.longest, slowOperation.isShorter)
	}
}

// addUpper adds an upper bound to the sample.
func (k *gpuOperations) addUpper(ns int64) {
	k.bounded++
	if len(k.upperNs) < sampledDurations {
		k.upperNs = append(k.upperNs, ns)
	} else if i := pick(k.bounded); i < sampledDurations {
		k.upperNs[i] = ns
	}
}

// pick returns a number below n that depends on n only, so that reports are reproducible.
func pick(n int64) int64 {
	return rand.New(rand.NewPCG(uint64(n), 3)).Int64N(n) //nolint:gosec // a sample needs no secret
}

// typicalNs returns an upper bound of the typical duration of operations: the smaller of the median upper
// bound, and the estimated mean plus two standard errors. Single slow operations raise the mean only.
func (k *gpuOperations) typicalNs(mean *activity.Duration) (int64, bool) {
	if len(k.upperNs) == 0 {
		return 0, false
	}
	slices.Sort(k.upperNs)
	typical := k.upperNs[len(k.upperNs)/2]
	if mean != nil && mean.IsEstimated {
		typical = min(typical, int64(mean.MeanNs+2*mean.ErrorNs))
	}
	return typical, true
}

// findSlowOperations selects the operations that ran for more than twice the typical duration. It leaves out
// kernels whose operations often differ: in more than a fifth of the steps, or in a tenth of the operations.
func (s *processScan) findSlowOperations(a *activity.Activity) {
	const factor, minExtraNs, stepShare, operationShare = 2, 5_000, 5, 10
	typical := make(map[gpuKey]int64)
	for key, k := range s.gpu.operations {
		if ns, ok := k.typicalNs(a.MeanOf(s.Pid, key.op, key.label)); ok {
			typical[key] = ns
		}
	}
	for key, typicalNs := range typical {
		k := s.gpu.operations[key]
		l := &slowOperations{operations: k.operations}
		for _, w := range k.longest {
			for _, next := range w.next[:w.nextCount] {
				w.atLeastNs -= cmp.Or(typical[next], w.atLeastNs) // without a typical duration nothing is known
			}
			if w.atLeastNs > max(factor*typicalNs, typicalNs+minExtraNs) {
				w.typicalNs = typicalNs
				l.list = append(l.list, w)
			}
		}
		slices.SortFunc(l.list, func(a, b slowOperation) int { return cmp.Compare(a.fromNs, b.fromNs) })
		for _, w := range l.list {
			if l.longest.isShorter(w) {
				l.longest = w
			}
			l.steps = append(l.steps, w.step)
		}
		slices.Sort(l.steps)
		l.steps = slices.Compact(l.steps)
		few := int64(len(l.steps))*stepShare <= s.full.count && int64(len(l.list))*operationShare <= k.operations
		if len(l.list) > 0 && few {
			s.gpu.slow = append(s.gpu.slow, l)
		}
	}
	slices.SortFunc(s.gpu.slow, func(a, b *slowOperations) int {
		return cmp.Or(
			cmp.Compare(b.longest.atLeastNs, a.longest.atLeastNs),
			cmp.Compare(a.longest.fromNs, b.longest.fromNs),
		)
	})
}

// assignSlowOperations gives slow operations to the outliers in which they ran.
func (s *processScan) assignSlowOperations() {
	for _, o := range s.outliers {
		step := &s.Steps[o.step]
		for _, l := range s.gpu.slow {
			for _, w := range l.list {
				if w.step == o.step || w.fromNs < step.EndNs && w.toNs > step.BeginNs && w.step < o.step {
					o.slow = append(o.slow, w)
				}
			}
		}
	}
}
