//go:build linux

package overhead

import "time"

// The governor measures the overhead of probes once a second. Above a limit, it first samples the
// stacks of kernel launches, then the launches: both are recorded for some seconds only. Memory
// calls, allocator events, copies, waits and all other calls are always recorded.

// GovernorPolicy sets the intervals and thresholds of a Governor.
type GovernorPolicy struct {
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

// DefaultGovernorPolicy measures every second. While sampling, it records everything for one second
// in ten.
var DefaultGovernorPolicy = GovernorPolicy{
	Interval:         time.Second,
	FullIntervals:    1,
	SampledIntervals: 9,
	TightenAfter:     3,
	RelaxAfter:       2,
	RelaxBelow:       0.7,
}

// SamplingStep is the extent of sampling. A greater SamplingStep samples more.
type SamplingStep int

const (
	StepSampleNothing  SamplingStep = iota // record everything
	StepSampleStacks                       // sample stacks of launches
	StepSampleLaunches                     // sample launches and their stacks
)

// Measurement is the overhead of probes in one interval of a Governor.
type Measurement struct {
	// OverheadPct is the share of time that the busiest thread spends in probes, in percent.
	// OthersPct is the part of OverheadPct that cannot be sampled. AllocatorPct is the part of
	// OthersPct for allocator events.
	OverheadPct, OthersPct, AllocatorPct float64
	// hitNs is the duration of one probe hit in ns.
	hitNs float64
}

// Governor decides from measurements what is sampled. It is not safe for concurrent use.
type Governor struct {
	policy   GovernorPolicy
	limitPct float64
	MaxStep  SamplingStep // greatest possible Step

	Step        SamplingStep
	at          int // intervals since the last change of Step
	over, under int // consecutive intervals above and below the limit
	// fullPct and fullNs are the overhead and the duration of a hit in the last full interval.
	// bareShare is the duration of a probe hit without a stack, as a share of one with a stack.
	fullPct, fullNs, bareShare float64
	// stuck is true after the governor has found that it cannot keep the overhead below the limit.
	stuck bool
}

// NewGovernor returns a Governor that keeps the overhead below limitPct percent. It starts without
// sampling and uses no Step above most.
func NewGovernor(policy GovernorPolicy, limitPct float64, most SamplingStep) *Governor {
	return &Governor{policy: policy, limitPct: limitPct, MaxStep: most, bareShare: 1}
}

// RecordsAll reports whether everything is recorded in the current interval. A Step starts with its
// sampled intervals.
func (g *Governor) RecordsAll() bool {
	return g.Step == StepSampleNothing ||
		g.at%(g.policy.FullIntervals+g.policy.SampledIntervals) >= g.policy.SampledIntervals
}

// DecideNextInterval takes the measurement of the last interval and decides about the next one.
// gaveUp is true once: when the Governor finds that it cannot keep the limit.
func (g *Governor) DecideNextInterval(m Measurement) (gaveUp bool) {
	full, was := g.RecordsAll(), g.Step
	g.at++
	if full {
		g.fullPct, g.fullNs = m.OverheadPct, m.hitNs
	}
	switch {
	case full && g.Step != StepSampleNothing:
		g.relaxSampling(m)
	case g.AverageOverheadPct(m) > g.limitPct:
		gaveUp = g.tightenSampling()
	default:
		g.over = 0
		if g.Step == StepSampleStacks && g.fullNs > 0 && m.hitNs > 0 {
			g.bareShare = min(1, m.hitNs/g.fullNs)
		}
	}
	if g.Step != was {
		g.at, g.over, g.under = 0, 0, 0
	}
	return gaveUp
}

// AverageOverheadPct returns the average overhead of full and sampled intervals in percent.
func (g *Governor) AverageOverheadPct(m Measurement) float64 {
	if g.Step == StepSampleNothing {
		return m.OverheadPct
	}
	full, sampled := float64(g.policy.FullIntervals), float64(g.policy.SampledIntervals)
	return (full*g.fullPct + sampled*m.OverheadPct) / (full + sampled)
}

// tightenSampling counts an interval with more overhead than the limit. After TightenAfter such
// intervals it increases Step, so that more is sampled.
func (g *Governor) tightenSampling() (gaveUp bool) {
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

// relaxSampling counts a full interval whose overhead is clearly below the limit. After RelaxAfter
// such intervals it lowers Step, so that less is sampled.
func (g *Governor) relaxSampling(m Measurement) {
	pct := m.OverheadPct
	if g.Step == StepSampleLaunches {
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
