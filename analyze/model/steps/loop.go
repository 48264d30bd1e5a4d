package steps

import (
	"cmp"
	"slices"
)

// A loop repeats a few launches many times in each step, such as an update of each weight. Its iterations are
// no steps.
const (
	// maxLoopLaunches is the most launches in an iteration of a loop. The optimizers of PyTorch update a weight
	// with 3 to 15 launches. Small training steps have 20.
	maxLoopLaunches = 16
	// minLoopIterations is the least number of iterations in a step. Logging every ten steps makes no loop.
	minLoopIterations = 20
	// mostSegments and fewSegments are shares of segments that count as all and as none of them.
	mostSegments, fewSegments = 0.8, 0.2
)

// LoopReason is the evidence that a repetition is a loop inside of a step.
type LoopReason uint8

// Values of LoopReason.
const (
	LoopUpdates       LoopReason = iota + 1 // every launch of the loop updates weights
	LoopIsInterrupted                       // other launches separate a few series of iterations
)

// Loop is a repetition inside of steps. Its process has too few recorded steps to find their period.
type Loop struct {
	Iterations int     // complete iterations that the search has read
	Launches   float64 // launches, copies and fills of an iteration, on average
	Site       string  // call site or kernel of a launch of the loop
	Reason     LoopReason
}

// canBeLoop reports whether a unit is small enough for an iteration of a loop inside of a step. A replay of a
// graph is a step, and so is an iteration that waits for the GPU.
func (u *unit) canBeLoop() bool {
	return u.segments > 0 && u.perUnit <= maxLoopLaunches && u.touchesHost <= mostSegments && u.graphs <= fewSegments
}

// isLoopOf reports whether a unit is a loop inside of a larger one. Functions that update weights are
// better evidence of a step than the number of launches; names of kernels are not.
func (seq *sequence) isLoopOf(inner, outer *unit) bool {
	return inner.canBeLoop() && (inner.mixes <= mostSegments || !seq.stacksOptimize) &&
		inner.segments >= minLoopIterations*outer.segments
}

// explain returns why a repetition is a loop inside of a step, or 0 if it may be the step.
func (p *process) explain(c *candidate) LoopReason {
	u := c.unit
	switch {
	case !u.canBeLoop() || u.mixes > mostSegments:
		return 0
	case u.optimizes > mostSegments && u.mixes < fewSegments:
		return LoopUpdates
	case p.isInterrupted(c):
		return LoopIsInterrupted
	}
	return 0
}

// isInterrupted reports whether a few series of other launches separate many iterations of a loop: fewer
// than it takes to find their period.
func (p *process) isInterrupted(c *candidate) bool {
	perUnit := max(1, int(c.unit.perUnit))
	series, inside, outside := 0, 0, 0
	for i := range p.elements {
		e := &p.elements[i]
		switch {
		case e.isBroken:
			inside, outside = 0, 0
		case e.isWait():
			continue
		}
		if s := c.alphabet.symbolOf(e); s == noSymbol || c.unit.modal[s] == 0 {
			if inside >= minLoopIterations*perUnit {
				outside++
			}
			continue
		}
		if outside >= perUnit {
			series++
			inside = 0
		}
		inside, outside = inside+1, 0
	}
	return series > 0 && series < minSegments
}

// loopOf describes a loop.
func (r *Result) loopOf(from *process, c *candidate, reason LoopReason) *Loop {
	l := &Loop{Iterations: c.unit.segments, Launches: c.unit.perUnit, Reason: reason}
	for i := range from.elements {
		if e := &from.elements[i]; c.alphabet.symbolOf(e) == c.unit.anchor && !e.isWait() {
			l.Site = r.SiteOf(&Call{Stack: e.stack, Label: e.label})
			break
		}
	}
	return l
}

// touch is a wait or a copy from or to the host. These calls are recorded also where launches are not.
type touch struct {
	startNs int64
	element int32 // index in process.elements
	lost    int32 // losses of calls before it
}

// maxTouches bounds the touches of a process that the search reads.
const maxTouches = 1 << 18

// touchKey is a place where a program touches the host. stack is anyStack for all places that call a function.
type touchKey struct{ name, label, stack int32 }

const anyStack = -1

// matches reports whether an element is at the place.
func (k *touchKey) matches(e *element) bool {
	return e.touchesHost && e.name == k.name && e.label == k.label && (k.stack == anyStack || k.stack == e.stack)
}

// searchTouches returns the period between waits at one place, or between copies from or to the host, if it
// has many iterations of a loop. It returns nil if no such period is regular.
func (p *process) searchTouches(loop *candidate) *candidate {
	const maxKeys = 64
	counts := make(map[touchKey]int)
	for i := range p.touches {
		e := &p.elements[p.touches[i].element]
		if e.tid == p.mainTid {
			counts[touchKey{e.name, e.label, anyStack}]++
			counts[touchKey{e.name, e.label, e.stack}]++
		}
	}
	keys := make([]touchKey, 0, len(counts))
	for k, n := range counts {
		if n >= minSegments {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b touchKey) int { // waits first, then the most frequent
		return cmp.Or(cmp.Compare(min(a.label, 0), min(b.label, 0)), cmp.Compare(counts[b], counts[a]),
			cmp.Compare(a.stack, b.stack), cmp.Compare(a.name, b.name), cmp.Compare(a.label, b.label))
	})
	for _, k := range keys[:min(len(keys), maxKeys)] {
		if minNs := p.periodOf(&k, loop.unit); minNs > 0 {
			a := &alphabet{kind: byTouches, stacks: p.stacks, mainTid: p.mainTid, touch: k}
			return &candidate{alphabet: a, unit: loop.unit, rule: rule{symbol: 1, ends: true, minNs: minNs}}
		}
	}
	return nil
}

// periodOf returns the least duration of a period that ends at a place, in ns. It returns 0 if the periods are
// not regular, or if none has many iterations of a loop. A fourth of the period with the most launches is
// the least: waits that follow sooner are of the same period.
func (p *process) periodOf(k *touchKey, loop *unit) (minNs int64) {
	const regular, tolerance = 0.7, 4 // share of periods, and part of the median by which they may differ
	var at []touch
	for _, t := range p.touches {
		if e := &p.elements[t.element]; e.tid == p.mainTid && k.matches(e) {
			at = append(at, t)
		}
	}
	most, longest := int32(0), int64(0)
	for i := 1; i < len(at); i++ {
		if n := at[i].element - at[i-1].element; n > most {
			most, longest = n, at[i].startNs-at[i-1].startNs
		}
	}
	if float64(most) < minLoopIterations*loop.perUnit {
		return 0
	}
	minNs = max(1, longest/4)
	var periods []int64
	last := at[0]
	for _, t := range at[1:] {
		ns := t.startNs - last.startNs
		if ns >= minNs && t.lost == last.lost {
			periods = append(periods, ns)
		}
		if ns >= minNs {
			last = t
		}
	}
	if len(periods) < minSegments {
		return 0
	}
	slices.Sort(periods)
	median, near := periods[len(periods)/2], 0
	for _, ns := range periods {
		if max(ns-median, median-ns) <= median/tolerance {
			near++
		}
	}
	if float64(near) < regular*float64(len(periods)) {
		return 0
	}
	return minNs
}
