//go:build linux

package overhead

import "time"

// Governor keeps the overhead of probes below a limit. It decides from measurements whether kernel
// launches and events of PyTorch's allocator are recorded all the time or in windows, and how much time a thread may
// spend on unwinding. All other calls, such as memory calls, copies and waits, are always recorded. It is not safe for
// concurrent use.
type Governor struct {
	policy   GovernorPolicy
	limitPct float64
	account  *Account

	sampleable Kinds // may be sampled
	sampled    Kinds // are recorded in windows only
	isPause    bool  // sampled kinds are not recorded now

	left    time.Duration // of the present window or pause
	debt    time.Duration // probe time above the aim
	relaxed int           // consecutive windows in which a sampled kind would fit
	quiet   time.Duration // for how long no call was made in the present pause
	// endedQuiet is true in a window that began because no calls were made. quietBlocked is the
	// number of windows before a pause may end early again.
	endedQuiet   bool
	quietBlocked int

	window, pause average // of the present or last window and pause
	// switchCost is the cost of the sampled kinds while their probes were attached and removed for that window, in
	// percent · s.
	switchCost    float64
	lastSwitching float64 // of the window before, s
	isFirst       bool    // the next window is the first one: so far, probes were only removed
	last          Measurement
	over          time.Duration // for how long the limit could not be kept
	reported      bool          // the limit cannot be kept, and the caller knows
}

// NewGovernor returns a Governor that keeps the overhead below limitPct percent. It starts without
// sampling, and may sample launches only.
func NewGovernor(policy GovernorPolicy, limitPct float64) *Governor {
	return &Governor{policy: policy, limitPct: limitPct, account: NewAccount(limitPct), sampleable: Launches}
}

// Account returns the overhead so far.
func (g *Governor) Account() *Account { return g.account }

// SetSampleable sets the kinds that may be sampled. Others are recorded all the time.
func (g *Governor) SetSampleable(kinds Kinds) { g.sampleable = kinds }

// Sampled returns the kinds that are recorded in windows only.
func (g *Governor) Sampled() Kinds { return g.sampled }

// NeedsEvents reports whether events of the allocator should be sampled, or are.
func (g *Governor) NeedsEvents() bool {
	if g.sampled.Has(AllocatorEvents) {
		return true
	}
	full := g.window.mean()
	return full.AllocatorPct > g.sampledPct() && full.ProbePct()+g.stacksPct() > g.aimPct()
}

// FullPct returns the overhead while all kinds are recorded, in percent, without unwinding.
func (g *Governor) FullPct() float64 { return g.window.mean().ProbePct() }

// Missing returns the kinds that are not recorded until the next measurement.
func (g *Governor) Missing() Kinds {
	if g.isPause {
		return g.sampled
	}
	return 0
}

// Next returns the time until the next measurement.
func (g *Governor) Next() time.Duration {
	switch {
	case g.sampled == 0 && g.account.Seconds == 0: // the cost of the first second is not known yet
		return g.policy.WindowTick
	case g.sampled == 0:
		return g.policy.Tick
	case g.isPause:
		return max(time.Millisecond, min(g.policy.Tick, g.left))
	}
	return max(time.Millisecond, min(g.policy.WindowTick, g.left))
}

// UnwindShare returns the share of its time that a thread may spend on unwinding, from 0 to 1.
func (g *Governor) UnwindShare() float64 {
	least := g.stacksPct() / 100
	if g.sampled != 0 || g.window.seconds == 0 {
		return least
	}
	return min(g.policy.MaxUnwinding, max(least, (g.aimPct()-g.last.ProbePct())/100))
}

// aimPct returns the overhead that the Governor aims at, in percent.
func (g *Governor) aimPct() float64 { return g.policy.Aim * g.limitPct }

// urgentStacks is how many times its ration a thread's unwinding may take: urgent stacks may be ahead of it.
const urgentStacks = 2

// stacksPct returns the overhead of unwinding that is always allowed, in percent. It is less if the calls that are
// never sampled leave little room in a second with a short window.
func (g *Governor) stacksPct() float64 {
	shortWindow := (g.policy.MinWindow.Seconds() + g.lastSwitching) * g.window.mean().KindsPct(g.sampled)
	room := g.policy.MostInSecond*g.limitPct - g.othersPct() - max(shortWindow, g.sampledPct())
	share := min(g.policy.StackShare*g.limitPct, room/urgentStacks)
	return max(g.policy.LeastStackShare*g.limitPct, share)
}

// othersPct returns the overhead of the calls that are never sampled, in percent.
func (g *Governor) othersPct() float64 {
	if g.pause.seconds > 0 {
		return g.pause.mean().OthersPct
	}
	return g.window.mean().OthersPct
}

// sampledPct returns the overhead that sampled kinds may have at any rate, in percent.
func (g *Governor) sampledPct() float64 { return g.policy.SampledShare * g.limitPct }

// costPct returns the overhead of a measurement with unwinding. UnwindPct is of all threads, and the ration bounds that
// of the busiest one.
func (g *Governor) costPct(m *Measurement) float64 {
	return m.ProbePct() + min(m.UnwindPct, urgentStacks*100*g.UnwindShare())
}

// Decide takes the measurement of the time since the last one and decides about the next time. gaveUp is true in
// the first call in which the Governor finds that it cannot keep the limit.
func (g *Governor) Decide(m Measurement, d time.Duration) (gaveUp bool) {
	g.account.Add(g.costPct(&m), d.Seconds())
	g.last = m
	switch {
	case g.sampled == 0:
		g.window = average{}
		g.window.add(m, d.Seconds())
		g.watch(m, d)
	case g.isPause:
		g.decideInPause(m, d)
	default:
		g.decideInWindow(m, d)
	}
	g.sampled &= g.sampleable
	g.isPause = g.isPause && g.sampled != 0
	return g.noteExcess(&m, d)
}

// Switched takes the measurement of the time in which the probes of a window were attached or removed. Their hits are
// part of the window's cost.
func (g *Governor) Switched(m Measurement, d time.Duration) {
	g.account.Add(g.costPct(&m), d.Seconds())
	g.switchCost += m.KindsPct(g.sampled) * d.Seconds()
}

// switching returns how long a window can be for the cost of switching to it and from it, s.
func (g *Governor) switching() float64 {
	pct := g.window.mean().KindsPct(g.sampled)
	switch {
	case pct == 0:
		return 0
	case g.isFirst:
		return 2 * g.switchCost / pct
	}
	return g.switchCost / pct
}

// noteExcess reports whether the limit could not be kept for 3 s, once.
func (g *Governor) noteExcess(m *Measurement, d time.Duration) bool {
	full := g.window.mean()
	kept := (Launches | AllocatorEvents) &^ g.sampled
	base := m.OthersPct + m.KindsPct(kept)
	if g.reported || base+min(full.KindsPct(g.sampled), g.sampledPct()) <= g.limitPct {
		g.over = 0
		return false
	}
	g.over += d
	g.reported = g.over >= 3*time.Second
	return g.reported
}

// watch begins to sample when the overhead has been above the aim for too long.
func (g *Governor) watch(m Measurement, d time.Duration) {
	excessPct := m.ProbePct() + min(m.UnwindPct, g.stacksPct()) - g.aimPct()
	g.debt = max(0, g.debt+time.Duration(excessPct/100*float64(d)))
	if g.debt < g.policy.Debt {
		return
	}
	if g.sampled = g.choose(m, g.aimPct()); g.sampled != 0 {
		g.debt, g.switchCost, g.relaxed, g.isFirst = 0, 0, 0, true
		g.startPause()
	}
}

// choose returns the kinds that must be sampled for an overhead of aimPct, if they cost as measured.
func (g *Governor) choose(m Measurement, aimPct float64) (kinds Kinds) {
	room := aimPct - g.stacksPct() - m.OthersPct - m.KindsPct((Launches|AllocatorEvents)&^g.sampleable)
	if m.KindsPct(g.sampleable) <= room {
		return 0
	}
	kept := map[Kinds]float64{Launches: g.policy.KeptLaunches, AllocatorEvents: g.policy.KeptEvents}
	for _, kind := range g.sampleable.List() {
		if m.KindsPct(kind) > max(g.sampledPct(), kept[kind]*room) {
			kinds |= kind
		}
	}
	return kinds
}

// decideInWindow ends the window in time, or when the overhead of the last second leaves no room. A process that makes
// no calls gets a longer window.
func (g *Governor) decideInWindow(m Measurement, d time.Duration) {
	if g.endedQuiet && m.KindsPct(g.sampled) > 0 {
		g.endedQuiet, g.quietBlocked = false, g.policy.QuietErrors
	}
	g.window.add(m, d.Seconds())
	g.left -= d
	nextPct := g.window.mean().ProbePct() * (g.policy.WindowTick.Seconds() + g.lastSwitching)
	if g.left > 0 && g.account.LastSecondPct()+nextPct <= g.policy.MostInSecond*g.limitPct {
		return
	}
	if g.window.isQuiet() {
		g.window, g.left = average{}, g.policy.WindowTick
		return
	}
	g.endedQuiet = false
	g.quietBlocked = max(0, g.quietBlocked-1)
	if g.relax(); g.sampled != 0 {
		g.startPause()
	}
}

// relax changes the kinds that are sampled after a window: more at once, fewer after some windows.
func (g *Governor) relax() {
	full := g.window.mean()
	needed := g.choose(full, g.policy.RelaxBelow*g.aimPct())
	g.sampled |= g.choose(full, g.aimPct())
	if g.sampled&^needed == 0 {
		g.relaxed = 0
		return
	}
	if g.relaxed++; g.relaxed >= g.policy.RelaxWindows {
		g.sampled, g.relaxed = g.sampled&needed, 0
	}
}

// decideInPause ends the pause in time, or when the process makes no calls any more.
func (g *Governor) decideInPause(m Measurement, d time.Duration) {
	g.pause.add(m, d.Seconds())
	g.left -= d
	g.extendSampling(m)
	if g.quiet += d; !m.IsQuiet {
		g.quiet = 0
	}
	stopped := g.quiet >= g.policy.QuietTime && g.quietBlocked == 0
	if g.left > 0 && !stopped {
		return
	}
	g.endedQuiet = stopped
	window, _ := g.schedule()
	g.lastSwitching = g.switching()
	window -= time.Duration(g.lastSwitching * float64(time.Second))
	g.isFirst, g.isPause, g.left = false, false, max(g.policy.MinWindow, window)
	g.window, g.switchCost = average{}, 0
}

// extendSampling samples more kinds in a pause, if those that are still recorded cost too much.
func (g *Governor) extendSampling(m Measurement) {
	full := g.window.mean()
	if !g.sampled.Has(AllocatorEvents) {
		full.AllocatorPct = max(full.AllocatorPct, m.AllocatorPct)
	}
	if !g.sampled.Has(Launches) {
		full.LaunchPct = max(full.LaunchPct, m.LaunchPct)
	}
	if more := g.choose(full, g.aimPct()) &^ g.sampled; more != 0 {
		g.sampled |= more
		g.window, g.pause = average{}, average{} // in the pause so far, these kinds were recorded
		g.window.add(full, g.policy.WindowTick.Seconds())
		g.relaxed = 0
		g.startPause()
	}
}

// startPause begins a time without the sampled kinds.
func (g *Governor) startPause() {
	_, pause := g.schedule()
	g.isPause, g.pause, g.quiet, g.left = true, average{}, 0, pause
}

// schedule returns the lengths of the next window, with what its switches cost, and pause. Their ratio makes the average overhead
// the aim. No second exceeds its share of the limit.
func (g *Governor) schedule() (window, pause time.Duration) {
	full := g.window.mean()
	sampledPct, pausePct := full.KindsPct(g.sampled), 0.0
	if g.pause.seconds > 0 {
		m := g.pause.mean()
		pausePct = m.KindsPct(g.sampled) // perf uprobes stay in place
	}
	basePct := full.ProbePct() - sampledPct + g.stacksPct()
	share, second := 1.0, 1.0 // second: of the most expensive second, the part that may be a window
	if sampledPct > pausePct {
		ratio := func(aimPct float64) float64 {
			allowed := max(aimPct-basePct, g.sampledPct())
			return min(1, max(0, allowed-pausePct)/(sampledPct-pausePct))
		}
		share, second = ratio(g.aimPct()), ratio(g.policy.MostInSecond*g.limitPct)
	}
	period := g.policy.MaxPeriod.Seconds()
	if share > 0 {
		period = min(period, max(g.policy.MinPeriod.Seconds(), g.policy.Window.Seconds()/share))
	}
	length := max(g.policy.MinWindow.Seconds(), min(second, share*period))
	if share > 0 {
		period = min(period, max(g.policy.MinPeriod.Seconds(), length/share))
	}
	toDuration := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return toDuration(length), max(g.policy.WindowTick, toDuration(period-length))
}

// WindowShare returns the share of time for which sampled kinds are recorded, from 0 to 1.
func (g *Governor) WindowShare() float64 {
	window, pause := g.schedule()
	return float64(window) / float64(window+pause)
}

// AveragePct returns the mean overhead of windows and pauses without unwinding, in percent.
func (g *Governor) AveragePct() float64 {
	full := g.window.mean()
	if g.sampled == 0 {
		return full.ProbePct()
	}
	share, paused := g.WindowShare(), g.pause.mean()
	return full.ProbePct() - (1-share)*(full.KindsPct(g.sampled)-paused.KindsPct(g.sampled))
}
