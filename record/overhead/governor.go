//go:build linux

package overhead

import "time"

// The governor bounds what a recording costs the program: measured once a second, and where
// it is too much, launches of kernels are recorded in full for some seconds only. First
// their stacks are sampled, then launches themselves. Memory calls, events of allocators,
// copies, waits and all other calls are always recorded.

// Policy sets the pace of a Governor.
type Policy struct {
	// Look is the time between two measurements; all else is in such times.
	Interval time.Duration
	// Whole of every Whole+Spare looks record everything.
	FullIntervals, SampledIntervals int
	// Patience is the number of looks in a row above the limit after which more is sampled, Calm
	// that of looks below it after which less is.
	TightenAfter, RelaxAfter int
	// Back is the share of the limit, from 0 to 1, below which less is sampled.
	RelaxBelow float64
}

// DefaultPolicy looks every second and records launches in full for one second in ten.
var DefaultPolicy = Policy{Interval: time.Second, FullIntervals: 1, SampledIntervals: 9, TightenAfter: 3, RelaxAfter: 2, RelaxBelow: 0.7}

// Step says what is sampled.
type Step int

const (
	SampleNothing  Step = iota
	SampleStacks        // of launches
	SampleLaunches      // and their stacks
)

// Load is the measurement of one look.
type Load struct {
	// OverheadPct is the share of its time, in percent, that the busiest thread spends in
	// probes. OthersPct is the part of it that cannot be sampled, AllocatorPct the part of that
	// for events of an allocator.
	OverheadPct, OthersPct, AllocatorPct float64
	// hitNs is what one hit cost.
	hitNs float64
}

// Governor decides from measurements what is sampled. It is not safe for concurrent use.
type Governor struct {
	policy   Policy
	limitPct float64
	MaxStep  Step // that is possible

	Step        Step
	at          int // looks since the last change of step
	over, under int // looks in a row
	// wholePct and wholeNs are of the last look in which everything was recorded, bare is
	// the share of the cost of a hit that is left without stacks.
	wholePct, wholeNs, bare float64
	// stuck is set once the limit cannot be kept.
	stuck bool
}

// NewGovernor returns a Governor that keeps the overhead below limitPct percent. It begins with
// sampling nothing and goes no further than most.
func NewGovernor(policy Policy, limitPct float64, most Step) *Governor {
	return &Governor{policy: policy, limitPct: limitPct, MaxStep: most, bare: 1}
}

// RecordsAll reports whether everything is recorded until the next look. A step begins with the looks
// in which it samples.
func (g *Governor) RecordsAll() bool {
	return g.Step == SampleNothing || g.at%(g.policy.FullIntervals+g.policy.SampledIntervals) >= g.policy.SampledIntervals
}

// Next takes the measurement of the time since the last look and decides on the time until the
// next one. It returns true once: when it turns out that the limit cannot be kept.
func (g *Governor) Next(m Load) (gaveUp bool) {
	whole, was := g.RecordsAll(), g.Step
	g.at++
	if whole {
		g.wholePct, g.wholeNs = m.OverheadPct, m.hitNs
	}
	switch {
	case whole && g.Step != SampleNothing:
		g.relax(m)
	case g.Average(m) > g.limitPct:
		gaveUp = g.tighten()
	default:
		g.over = 0
		if g.Step == SampleStacks && g.wholeNs > 0 && m.hitNs > 0 {
			g.bare = min(1, m.hitNs/g.wholeNs)
		}
	}
	if g.Step != was {
		g.at, g.over, g.under = 0, 0, 0
	}
	return gaveUp
}

// Average returns the overhead over a whole period of the step, in percent.
func (g *Governor) Average(m Load) float64 {
	if g.Step == SampleNothing {
		return m.OverheadPct
	}
	whole, spare := float64(g.policy.FullIntervals), float64(g.policy.SampledIntervals)
	return (whole*g.wholePct + spare*m.OverheadPct) / (whole + spare)
}

// tighten notes a look with too much, and goes a step on after some of them.
func (g *Governor) tighten() (gaveUp bool) {
	if g.over++; g.over < g.policy.TightenAfter {
		return false
	}
	if g.Step < g.MaxStep {
		g.Step++
		return false
	}
	gaveUp = !g.stuck
	g.stuck = true
	return gaveUp
}

// relax looks, where everything was recorded, whether the step before would be enough.
func (g *Governor) relax(m Load) {
	pct := m.OverheadPct
	if g.Step == SampleLaunches {
		pct *= g.bare
	}
	if pct >= g.policy.RelaxBelow*g.limitPct {
		g.under = 0
		return
	}
	if g.under++; g.under >= g.policy.RelaxAfter {
		g.Step--
	}
}
