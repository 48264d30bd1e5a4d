//go:build linux

package overhead

import "time"

// The governor measures the overhead of probes once a second. Above a limit, it first samples the
// stacks of kernel launches, then the launches: both are recorded for some seconds only. Memory
// calls, allocator events, copies, waits and all other calls are always recorded.

// Policy sets the intervals and thresholds of a Governor.
type Policy struct {
	// Interval is the time between two measurements. It is the unit of the following fields.
	Interval time.Duration
	// While sampling, everything is recorded for FullIntervals, then launches are sampled for
	// SampledIntervals.
	FullIntervals, SampledIntervals int
	// TightenAfter is the number of consecutive intervals above the limit after which the Governor
	// samples more. RelaxAfter is the number of full intervals below RelaxBelow after which it
	// samples less.
	TightenAfter, RelaxAfter int
	// RelaxBelow is a share of the limit, from 0 to 1.
	RelaxBelow float64
}

// DefaultPolicy measures every second. While sampling, it records everything for one second in ten.
var DefaultPolicy = Policy{
	Interval:         time.Second,
	FullIntervals:    1,
	SampledIntervals: 9,
	TightenAfter:     3,
	RelaxAfter:       2,
	RelaxBelow:       0.7,
}

// Step is the extent of sampling. A greater Step samples more.
type Step int

const (
	SampleNothing  Step = iota // record everything
	SampleStacks               // sample stacks of launches
	SampleLaunches             // sample launches and their stacks
)

// Load is the overhead in one interval.
type Load struct {
	// OverheadPct is the share of time that the busiest thread spends in probes, in percent.
	// OthersPct is the part of OverheadPct that cannot be sampled. AllocatorPct is the part of
	// OthersPct for allocator events.
	OverheadPct, OthersPct, AllocatorPct float64
	// hitNs is the duration of one probe hit in ns.
	hitNs float64
}

// Governor decides from measurements what is sampled. It is not safe for concurrent use.
type Governor struct {
	policy   Policy
	limitPct float64
	MaxStep  Step // greatest possible Step

	Step        Step
	at          int // intervals since the last change of Step
	over, under int // consecutive intervals above and below the limit
	// fullPct and fullNs are the overhead and the duration of a hit in the last full interval.
	// bare is the duration of a hit without a stack, as a share of one with a stack.
	fullPct, fullNs, bareShare float64
	// stuck is true after the governor has found that it cannot keep the limit.
	stuck bool
}

// NewGovernor returns a Governor that keeps the overhead below limitPct percent. It starts without
// sampling and uses no Step above most.
func NewGovernor(policy Policy, limitPct float64, most Step) *Governor {
	return &Governor{policy: policy, limitPct: limitPct, MaxStep: most, bareShare: 1}
}

// RecordsAll reports whether everything is recorded in the current interval. A Step starts with its
// sampled intervals.
func (g *Governor) RecordsAll() bool {
	return g.Step == SampleNothing ||
		g.at%(g.policy.FullIntervals+g.policy.SampledIntervals) >= g.policy.SampledIntervals
}

// Next takes the measurement of the last interval and decides about the next one. gaveUp is true
// once: when the Governor finds that it cannot keep the limit.
func (g *Governor) Next(m Load) (gaveUp bool) {
	full, was := g.RecordsAll(), g.Step
	g.at++
	if full {
		g.fullPct, g.fullNs = m.OverheadPct, m.hitNs
	}
	switch {
	case full && g.Step != SampleNothing:
		g.relax(m)
	case g.Average(m) > g.limitPct:
		gaveUp = g.tighten()
	default:
		g.over = 0
		if g.Step == SampleStacks && g.fullNs > 0 && m.hitNs > 0 {
			g.bareShare = min(1, m.hitNs/g.fullNs)
		}
	}
	if g.Step != was {
		g.at, g.over, g.under = 0, 0, 0
	}
	return gaveUp
}

// Average returns the average overhead of full and sampled intervals in percent.
func (g *Governor) Average(m Load) float64 {
	if g.Step == SampleNothing {
		return m.OverheadPct
	}
	full, sampled := float64(g.policy.FullIntervals), float64(g.policy.SampledIntervals)
	return (full*g.fullPct + sampled*m.OverheadPct) / (full + sampled)
}

// tighten counts an interval above the limit. After TightenAfter intervals it increases Step.
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

// relax checks in a full interval whether the lower Step would suffice.
func (g *Governor) relax(m Load) {
	pct := m.OverheadPct
	if g.Step == SampleLaunches {
		pct *= g.bareShare
	}
	if pct >= g.policy.RelaxBelow*g.limitPct {
		g.under = 0
		return
	}
	if g.under++; g.under >= g.policy.RelaxAfter {
		g.Step--
	}
}
