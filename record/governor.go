//go:build linux

package record

import "time"

// The governor bounds what a recording costs the program: measured once a second, and where
// it is too much, launches of kernels are recorded in full for some seconds only. First
// their stacks are sampled, then launches themselves. Memory calls, events of allocators,
// copies, waits and all other calls are always recorded.

// governorPolicy says how the governor goes about it.
type governorPolicy struct {
	// look is the time between two measurements; all else is in such times.
	look time.Duration
	// whole of every whole+spare looks is everything recorded.
	whole, spare int
	// patience is how many looks in a row too much, or little enough, is needed to change.
	patience, calm int
	// back is the share of the limit below which launches are recorded as before.
	back float64
}

var defaultGovernor = governorPolicy{look: time.Second, whole: 1, spare: 9, patience: 3, calm: 2, back: 0.7}

// governorStep is what is sampled.
type governorStep int

const (
	sampleNothing  governorStep = iota
	sampleStacks                // of launches
	sampleLaunches              // and their stacks
)

// load is what one look measured.
type load struct {
	// overheadPct is the share of its time that probes cost the thread that they cost
	// most, othersPct what of that is neither a launch nor can be sampled, allocatorPct
	// what of that is an allocator's event; of 100.
	overheadPct, othersPct, allocatorPct float64
	// hitNs is what one hit cost.
	hitNs float64
}

// governor decides from measurements what is sampled.
type governor struct {
	policy   governorPolicy
	limitPct float64
	most     governorStep // that is possible

	step        governorStep
	at          int // looks since the last change of step
	over, under int // looks in a row
	// wholePct and wholeNs are of the last look in which everything was recorded, bare is
	// the share of the cost of a hit that is left without stacks.
	wholePct, wholeNs, bare float64
	// stuck is set once the limit cannot be kept.
	stuck bool
}

func newGovernor(policy governorPolicy, limitPct float64, most governorStep) *governor {
	return &governor{policy: policy, limitPct: limitPct, most: most, bare: 1}
}

// isWhole reports whether everything is recorded until the next look. A step begins with
// the looks in which it samples.
func (g *governor) isWhole() bool {
	return g.step == sampleNothing || g.at%(g.policy.whole+g.policy.spare) >= g.policy.spare
}

// next takes the measurement of the time until now and decides about the time until the
// next look. It reports whether the limit turned out not to be kept, once.
func (g *governor) next(m load) (gaveUp bool) {
	whole, was := g.isWhole(), g.step
	g.at++
	if whole {
		g.wholePct, g.wholeNs = m.overheadPct, m.hitNs
	}
	switch {
	case whole && g.step != sampleNothing:
		g.relax(m)
	case g.average(m) > g.limitPct:
		gaveUp = g.tighten()
	default:
		g.over = 0
		if g.step == sampleStacks && g.wholeNs > 0 && m.hitNs > 0 {
			g.bare = min(1, m.hitNs/g.wholeNs)
		}
	}
	if g.step != was {
		g.at, g.over, g.under = 0, 0, 0
	}
	return gaveUp
}

// average is what the step costs over a whole period.
func (g *governor) average(m load) float64 {
	if g.step == sampleNothing {
		return m.overheadPct
	}
	whole, spare := float64(g.policy.whole), float64(g.policy.spare)
	return (whole*g.wholePct + spare*m.overheadPct) / (whole + spare)
}

// tighten notes a look with too much, and goes a step on after some of them.
func (g *governor) tighten() (gaveUp bool) {
	if g.over++; g.over < g.policy.patience {
		return false
	}
	if g.step < g.most {
		g.step++
		return false
	}
	gaveUp = !g.stuck
	g.stuck = true
	return gaveUp
}

// relax looks, where everything was recorded, whether the step before would be enough.
func (g *governor) relax(m load) {
	pct := m.overheadPct
	if g.step == sampleLaunches {
		pct *= g.bare
	}
	if pct >= g.policy.back*g.limitPct {
		g.under = 0
		return
	}
	if g.under++; g.under >= g.policy.calm {
		g.step--
	}
}
