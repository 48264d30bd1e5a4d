package steps

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/stats"
)

// slowWork is a work that ran for much longer than others with the same kernel and grid.
type slowWork struct {
	key                  gpuKey
	step                 int // index of the step that launched it
	stack                int32
	fromNs, toNs         int64 // Unix ns
	atLeastNs, typicalNs int64
	// next are works whose typical durations must be subtracted from atLeastNs; the duration is estimated
	// then.
	next      [maxNext]gpuKey
	nextCount int
}

// quality returns the certainty of the duration.
func (w *slowWork) quality() string {
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

func (w *slowWork) excessNs() int64 { return w.atLeastNs - w.typicalNs }

// isShorter orders works by the lower bound of their duration.
func (w slowWork) isShorter(o slowWork) bool { return w.atLeastNs < o.atLeastNs }

// slowWorks has the slow works of a kernel and grid, in order of time.
type slowWorks struct {
	list    []slowWork
	longest slowWork
	works   int64 // all works of the kernel and grid in steps
	steps   []int // that launched slow works
}

// gpuWorks samples the durations of the works of a kernel and grid.
type gpuWorks struct {
	works, bounded int64
	upperNs        []int64    // random sample of upper bounds of durations, ns
	longest        []slowWork // heap with the shortest first
}

const (
	sampledDurations = 64
	longestWorks     = 128
	maxGPUKeys       = 1 << 12
)

// durationsOf returns the durations of the works of a kernel and grid; nil: there are too many kernels.
func (g *processGPU) durationsOf(key gpuKey) *gpuWorks {
	k := g.works[key]
	if k == nil && len(g.works) < maxGPUKeys {
		if g.works == nil {
			g.works = make(map[gpuKey]*gpuWorks)
		}
		k = new(gpuWorks)
		g.works[key] = k
	}
	return k
}

// add adds the duration of a work in a step.
func (k *gpuWorks) add(w *activity.Work, step int) {
	k.works++
	if w.DurationQuality < activity.Bounded {
		return
	}
	k.addUpper(w.Duration.HiNs)
	if len(k.longest) == longestWorks && w.Duration.LoNs <= k.longest[0].atLeastNs {
		return // most works are none of the longest
	}
	k.addLongest(slowWork{
		key: gpuKey{w.Call.Op, w.Call.Label}, step: step, stack: w.Call.Stack, fromNs: w.Start.LoNs, toNs: w.End.HiNs,
		atLeastNs: w.Duration.LoNs,
	})
}

// addLongest adds a work to the longest.
func (k *gpuWorks) addLongest(slow slowWork) {
	switch {
	case len(k.longest) < longestWorks:
		k.longest = stats.HeapPush(k.longest, slow, slowWork.isShorter)
	case k.longest[0].isShorter(slow):
		k.longest[0] = slow
		stats.HeapFix(k.longest, slowWork.isShorter)
	}
}

// addUpper adds an upper bound to the sample.
func (k *gpuWorks) addUpper(ns int64) {
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

// typicalNs returns an upper bound of the typical duration of works: the smaller of the median upper
// bound, and the estimated mean plus two standard errors. Single slow works raise the mean only.
func (k *gpuWorks) typicalNs(mean *activity.Duration) (int64, bool) {
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

// findSlowWorks selects the works that ran for more than twice the typical duration. It leaves out
// kernels whose works often differ: in more than a fifth of the steps, or in a tenth of the works.
func (s *processScan) findSlowWorks(a *activity.Activity) {
	const factor, minExtraNs, stepShare, workShare = 2, 5_000, 5, 10
	typical := make(map[gpuKey]int64)
	for key, k := range s.gpu.works {
		if ns, ok := k.typicalNs(a.MeanOf(s.Pid, key.op, key.label)); ok {
			typical[key] = ns
		}
	}
	for key, typicalNs := range typical {
		k := s.gpu.works[key]
		l := &slowWorks{works: k.works}
		for _, w := range k.longest {
			for _, next := range w.next[:w.nextCount] {
				w.atLeastNs -= cmp.Or(typical[next], w.atLeastNs) // without a typical duration nothing is known
			}
			if w.atLeastNs > max(factor*typicalNs, typicalNs+minExtraNs) {
				w.typicalNs = typicalNs
				l.list = append(l.list, w)
			}
		}
		slices.SortFunc(l.list, func(a, b slowWork) int { return cmp.Compare(a.fromNs, b.fromNs) })
		for _, w := range l.list {
			if l.longest.isShorter(w) {
				l.longest = w
			}
			l.steps = append(l.steps, w.step)
		}
		slices.Sort(l.steps)
		l.steps = slices.Compact(l.steps)
		few := int64(len(l.steps))*stepShare <= s.full.count && int64(len(l.list))*workShare <= k.works
		if len(l.list) > 0 && few {
			s.gpu.slow = append(s.gpu.slow, l)
		}
	}
	slices.SortFunc(s.gpu.slow, func(a, b *slowWorks) int {
		return cmp.Or(
			cmp.Compare(b.longest.atLeastNs, a.longest.atLeastNs),
			cmp.Compare(a.longest.fromNs, b.longest.fromNs),
		)
	})
}

// assignSlowWorks gives slow works to the outliers in which they ran.
func (s *processScan) assignSlowWorks() {
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
