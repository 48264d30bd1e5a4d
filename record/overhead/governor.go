//go:build linux

package overhead

import "time"

// GovernorPolicy sets the intervals and thresholds of a Governor.
type GovernorPolicy struct {
	// Tick is the time between two measurements.
	Tick time.Duration
	// Aim is the share of the limit that the Governor aims at, from 0 to 1.
	Aim float64
	// Debt is the probe time above the aim after which launches are sampled.
	Debt time.Duration
	// Window is the shortest time for which launches are recorded while they are sampled. A window
	// and the pause after it last between MinPeriod and MaxPeriod. At MaxPeriod, a window may be
	// shorter.
	Window, MinPeriod, MaxPeriod time.Duration
	// LaunchShare is the share of the limit that launches get even if other calls exceed the limit.
	LaunchShare float64
	// StackShare is the least share of the limit for unwinding. MaxUnwinding is the largest share
	// of its time that a thread may spend on unwinding.
	StackShare, MaxUnwinding float64
	// RelaxWindows is the number of consecutive windows below RelaxBelow after which launches are no
	// longer sampled. RelaxBelow is a share of the aim.
	RelaxWindows int
	RelaxBelow   float64
	// A pause ends after QuietTicks ticks without any call. If the launches had not stopped, the
	// pauses after the next QuietErrors windows do not end early.
	QuietTicks, QuietErrors int
}

// DefaultGovernorPolicy decides ten times a second. While sampling, it records launches for at
// least 250 ms in every 2 to 12 s.
var DefaultGovernorPolicy = GovernorPolicy{
	Tick:         100 * time.Millisecond,
	Aim:          0.8,
	Debt:         10 * time.Millisecond,
	Window:       250 * time.Millisecond,
	MinPeriod:    2 * time.Second,
	MaxPeriod:    12 * time.Second,
	LaunchShare:  0.1,
	StackShare:   0.2,
	MaxUnwinding: 0.2,
	RelaxWindows: 2,
	RelaxBelow:   0.7,
	QuietTicks:   2,
	QuietErrors:  10,
}

// Governor keeps the overhead of probes below a limit. It decides from measurements whether kernel
// launches are recorded, and how much time a thread may spend on unwinding. Memory calls, allocator
// events, copies, waits and all other calls are always recorded. It is not safe for concurrent use.
type Governor struct {
	policy   GovernorPolicy
	limitPct float64

	sampling  bool // launches are recorded in windows only
	recording bool // launches are recorded now
	ticksLeft int  // of the current window or pause

	debtPct  float64 // overhead above the aim, summed over ticks, in percent of a tick
	over     int     // consecutive ticks above the limit that sampling of launches cannot change
	relaxing int     // consecutive windows with low overhead
	quiet    int     // consecutive ticks of a pause without any call
	// endedQuiet is true in a window that began because no calls were made. quietBlocked is the
	// number of windows before a pause may end early again.
	endedQuiet   bool
	quietBlocked int

	window, pause average // of the current or last window and pause
	reported      bool    // the limit cannot be kept, and the caller knows
}

// NewGovernor returns a Governor that keeps the overhead below limitPct percent. It starts without
// sampling.
func NewGovernor(policy GovernorPolicy, limitPct float64) *Governor {
	return &Governor{policy: policy, limitPct: limitPct, recording: true}
}

// RecordsLaunches reports whether launches are recorded until the next measurement.
func (g *Governor) RecordsLaunches() bool { return g.recording }

// SamplesLaunches reports whether launches are recorded in windows only.
func (g *Governor) SamplesLaunches() bool { return g.sampling }

// UnwindShare returns the share of its time that a thread may spend on unwinding, from 0 to 1.
func (g *Governor) UnwindShare() float64 {
	least := g.policy.StackShare * g.limitPct / 100
	if g.sampling || g.window.ticks == 0 {
		return least
	}
	return min(g.policy.MaxUnwinding, max(least, (g.aimPct()-g.window.last.OverheadPct)/100))
}

// aimPct returns the overhead that the Governor aims at, in percent.
func (g *Governor) aimPct() float64 { return g.policy.Aim * g.limitPct }

// stacksPct returns the overhead of unwinding that is always allowed, in percent.
func (g *Governor) stacksPct() float64 { return g.policy.StackShare * g.limitPct }

// Decide takes the measurement of the last tick and decides about the next tick. gaveUp is true in
// the first call in which the Governor finds that it cannot keep the limit.
func (g *Governor) Decide(m Measurement) (gaveUp bool) {
	switch {
	case !g.sampling:
		g.window = average{}
		g.window.add(m)
		g.watch(m)
	case g.recording:
		g.decideInWindow(m)
	default:
		g.decideInPause(m)
	}
	if g.reported || m.OthersPct+g.sampledLaunchPct() <= g.limitPct {
		g.over = 0
		return false
	}
	g.over++
	g.reported = time.Duration(g.over)*g.policy.Tick >= 3*time.Second
	return g.reported
}

// sampledLaunchPct returns the overhead of launches if they are sampled as little as possible.
func (g *Governor) sampledLaunchPct() float64 {
	return min(g.window.mean().LaunchPct, g.policy.LaunchShare*g.limitPct)
}

// watch begins to sample when the overhead has been above the aim for too long.
func (g *Governor) watch(m Measurement) {
	costPct := m.OverheadPct + min(m.UnwindPct, g.stacksPct())
	g.debtPct = max(0, g.debtPct+costPct-g.aimPct())
	if g.debtPct*float64(g.policy.Tick)/100 < float64(g.policy.Debt) ||
		m.LaunchPct < g.policy.LaunchShare*g.limitPct {
		return
	}
	g.sampling, g.debtPct = true, 0
	g.startPause()
}

// decideInWindow ends the window in time. A process that makes no calls gets a longer window.
func (g *Governor) decideInWindow(m Measurement) {
	if g.endedQuiet && m.LaunchPct > 0 {
		g.endedQuiet, g.quietBlocked = false, g.policy.QuietErrors
	}
	g.window.add(m)
	if g.ticksLeft--; g.ticksLeft > 0 {
		return
	}
	if g.window.isQuiet() {
		g.window, g.ticksLeft = average{}, 1
		return
	}
	g.endedQuiet = false
	g.quietBlocked = max(0, g.quietBlocked-1)
	if g.window.mean().OverheadPct+g.stacksPct() < g.policy.RelaxBelow*g.aimPct() {
		g.relaxing++
	} else {
		g.relaxing = 0
	}
	if g.relaxing >= g.policy.RelaxWindows {
		g.sampling, g.relaxing = false, 0
		return
	}
	g.startPause()
}

// decideInPause ends the pause in time, or when the process makes no calls any more.
func (g *Governor) decideInPause(m Measurement) {
	g.pause.add(m)
	g.ticksLeft--
	if m.IsQuiet {
		g.quiet++
	} else {
		g.quiet = 0
	}
	stopped := g.quiet >= g.policy.QuietTicks && g.quietBlocked == 0
	if g.ticksLeft > 0 && !stopped {
		return
	}
	g.endedQuiet = stopped
	window, _ := g.schedule()
	g.recording, g.window, g.ticksLeft = true, average{}, g.ticks(window)
}

// startPause begins a time without launches.
func (g *Governor) startPause() {
	_, pause := g.schedule()
	g.recording, g.pause, g.quiet, g.ticksLeft = false, average{}, 0, g.ticks(pause)
}

// ticks returns a duration in ticks, at least 1.
func (g *Governor) ticks(d time.Duration) int { return max(1, int((d+g.policy.Tick/2)/g.policy.Tick)) }

// schedule returns the lengths of the next window and pause. Their ratio makes the average overhead
// the aim.
func (g *Governor) schedule() (window, pause time.Duration) {
	full := g.window.mean()
	launchPct, pausePct := full.LaunchPct, 0.0
	if g.pause.ticks > 0 {
		pausePct = g.pause.mean().LaunchPct // perf uprobes stay in place
	}
	allowedPct := max(g.aimPct()-full.OthersPct-g.stacksPct(), g.policy.LaunchShare*g.limitPct)
	share := 1.0
	if launchPct > pausePct {
		share = min(1, max(0, allowedPct-pausePct)/(launchPct-pausePct))
	}
	period := float64(g.policy.MaxPeriod)
	if share > 0 {
		period = min(period, max(float64(g.policy.MinPeriod), float64(g.policy.Window)/share))
	}
	window = max(g.policy.Tick, time.Duration(share*period))
	return window, max(g.policy.Tick, time.Duration(period)-window)
}

// average is the mean of the measurements of some ticks.
type average struct {
	ticks int
	sum   Measurement
	last  Measurement
}

// add adds the measurement of one tick.
func (a *average) add(m Measurement) {
	a.ticks++
	a.last = m
	a.sum.OverheadPct += m.OverheadPct
	a.sum.LaunchPct += m.LaunchPct
	a.sum.OthersPct += m.OthersPct
	a.sum.AllocatorPct += m.AllocatorPct
}

// isQuiet reports whether no call was made.
func (a *average) isQuiet() bool { return a.sum.OverheadPct == 0 }

// mean returns the mean overhead.
func (a *average) mean() Measurement {
	n := float64(max(1, a.ticks))
	return Measurement{
		OverheadPct: a.sum.OverheadPct / n, LaunchPct: a.sum.LaunchPct / n,
		OthersPct: a.sum.OthersPct / n, AllocatorPct: a.sum.AllocatorPct / n,
	}
}

// WindowShare returns the share of time for which launches are recorded while they are sampled, from
// 0 to 1.
func (g *Governor) WindowShare() float64 {
	window, pause := g.schedule()
	return float64(window) / float64(window+pause)
}

// AveragePct returns the mean overhead of windows and pauses without unwinding, in percent.
func (g *Governor) AveragePct() float64 {
	full := g.window.mean()
	if !g.sampling {
		return full.OverheadPct
	}
	share := g.WindowShare()
	return full.OthersPct + share*full.LaunchPct + (1-share)*g.pause.mean().LaunchPct
}
