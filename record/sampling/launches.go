//go:build linux

package sampling

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// NoteOverhead is the name of notes about the overhead of probes and the sampling that limits it.
const NoteOverhead = "overhead"

// overheadLimiter applies the decisions of the governor to the probes, and notes them in the
// recording.
type overheadLimiter struct {
	*Sampler
	stop     <-chan struct{}
	policy   overhead.GovernorPolicy
	limitPct float64
	governor *overhead.Governor
	price    overhead.Price
	pace     overhead.Pace
	part     recordedPart // the current window or pause
	hits     *hitMeter

	canDetach   bool      // launch probes can be removed; otherwise only stacks are left out
	canMeasure  bool      // run times of BPF programs can be read
	stats       io.Closer // open while the kernel measures run times
	ticks       int
	unwindNs    int64   // time spent on unwinding until the current tick
	unwindShare float64 // share of time for unwinding that is in effect
	isOff       bool    // launches, or their stacks, are left out now
	warned      bool    // the user knows that launches are sampled
}

// recordedPart sums the probe hits of a window or a pause.
type recordedPart struct{ seconds, launches, others float64 }

// LimitOverhead keeps the probe overhead of the busiest thread below limitPct percent of its time,
// if possible, until stop is closed.
func (s *Sampler) LimitOverhead(policy overhead.GovernorPolicy, limitPct float64, stop <-chan struct{}) {
	g := overheadLimiter{
		Sampler: s, stop: stop, policy: policy, limitPct: limitPct,
		governor:  overhead.NewGovernor(policy, limitPct),
		canDetach: s.Probes.How == privilege.AttachMulti,
	}
	if err := g.prepareMeasuring(); err != nil {
		g.warnAndNote(0, "gpurec cannot measure the overhead of probes, so --max-overhead has no effect: "+err.Error())
		return
	}
	defer g.stopMeasuring()
	g.hits = newHitMeter(s.Probes)
	for g.beginTick(); !clock.Sleep(stop, policy.Tick); g.beginTick() {
		m := g.endTick()
		if g.governor.Decide(m) {
			g.warnAndNote(g.governor.AveragePct(), g.explainExceededLimit(m))
		}
		if err := g.applyDecision(m); err != nil {
			g.warnAndNote(m.OverheadPct, "sampling of launches stopped: "+err.Error())
			return
		}
	}
}

// prepareMeasuring measures the duration of a probe's exception and checks what can be sampled.
func (l *overheadLimiter) prepareMeasuring() error {
	exceptionNs, err := l.Probes.MeasureExceptionNs()
	if err != nil {
		return err
	}
	l.price = overhead.NewPrice(exceptionNs)
	if !l.canDetach {
		l.warnAndNote(0, "--max-overhead samples only stacks of launches. Launches cannot be sampled with "+
			"--attach perf, or before Linux 6.6")
	}
	stats, err := probe.EnableRunTimeStats()
	if err != nil {
		l.warnAndNote(0, fmt.Sprintf("--max-overhead assumes that a BPF program takes %d ns. Run times cannot be "+
			"measured: %v", overhead.AssumedProgramNs, err))
		return nil
	}
	l.canMeasure = true
	return stats.Close()
}

// isMeasured reports whether run times of BPF programs are measured in a tick: in the first three,
// once a second in the first five seconds, and then every ten seconds. Measuring costs about 40 ns
// per run, and turning it on changes kernel code.
func isMeasured(tick int) bool {
	return tick < firstMeasuredTicks || tick%10 == 0 && tick <= 50 || tick%100 == 0
}

const firstMeasuredTicks = 3

// beginTick starts the measurement of a tick.
func (l *overheadLimiter) beginTick() {
	l.hits.measure()
	l.unwindNs = l.Probes.UnwindingNs()
	if l.canMeasure && isMeasured(l.ticks) {
		if l.stats == nil {
			l.stats, _ = probe.EnableRunTimeStats() // without stats the price stays as it is
		}
		ns, runs := l.Probes.ReadRunTimes()
		l.price.Skip(ns, runs, l.unwindNs)
	}
	l.ticks++
}

// endTick returns the measurement of the tick.
func (l *overheadLimiter) endTick() overhead.Measurement {
	rates, seconds := l.hits.measure()
	unwindNs := l.Probes.UnwindingNs()
	if l.stats != nil {
		ns, runs := l.Probes.ReadRunTimes()
		l.price.Measure(ns, runs, unwindNs)
		if l.ticks >= firstMeasuredTicks {
			l.stopMeasuring()
		}
	}
	l.part.seconds += seconds
	l.part.launches += rates.PaceLaunches * seconds
	l.part.others += rates.PaceOthers * seconds
	unwindPct := 100 * float64(unwindNs-l.unwindNs) / 1e9 / seconds
	return overhead.ComputeMeasurement(rates, l.price.HitNs(), unwindPct)
}

// stopMeasuring makes the kernel stop measuring run times.
func (l *overheadLimiter) stopMeasuring() {
	if l.stats != nil {
		_ = l.stats.Close() // on an error, the kernel measures until the recorder exits
		l.stats = nil
	}
}

// applyDecision changes what the probes record, as the governor decided.
func (l *overheadLimiter) applyDecision(m overhead.Measurement) error {
	if share := l.governor.UnwindShare(); share != l.unwindShare {
		if err := l.Probes.RationUnwinding(share); err != nil {
			return err
		}
		l.unwindShare = share
	}
	isOff := !l.governor.RecordsLaunches()
	l.launchesSampled.Store(l.governor.SamplesLaunches())
	if isOff == l.isOff {
		return nil
	}
	l.isOff = isOff
	l.endPart(isOff)
	if isOff && !l.warned {
		l.warned = true
		l.warnAndNote(m.OverheadPct, l.describeSampling(m))
	}
	if l.canDetach {
		return l.switchLaunchProbes(isOff, m.OverheadPct)
	}
	l.noteSamplingSwitch(format.SampledStacks, !isOff, clock.ReadNs(unix.CLOCK_MONOTONIC), m.OverheadPct)
	return l.Probes.SkipLaunchStacks(isOff)
}

// endPart ends a window, or else a pause, and corrects the price of a probe hit.
func (l *overheadLimiter) endPart(wasWindow bool) {
	p := l.part
	l.part = recordedPart{}
	if wasWindow {
		l.windowLaunchRate.Store(int64(p.launches / max(1e-3, p.seconds)))
		l.pace.AddWindow(p.seconds, p.launches, p.others)
		return
	}
	if l.canDetach {
		l.pace.AddPause(p.seconds, p.others)
	}
	if ns, ok := l.pace.HitNs(); ok {
		l.price.Correct(ns)
	}
}

// switchLaunchProbes removes the probes of launches if off is true, and attaches them otherwise.
func (l *overheadLimiter) switchLaunchProbes(off bool, pct float64) error {
	p := l.Probes
	if !off {
		from, err := p.AttachLaunches()
		if err != nil {
			return err
		}
		l.noteSamplingSwitch(format.SampledCalls, true, from, pct)
		clock.Sleep(l.stop, probe.LaunchSwitchDelay)
		return nil
	}
	until, err := p.IgnoreLaunches()
	if err != nil {
		return err
	}
	l.noteSamplingSwitch(format.SampledCalls, false, until, pct)
	return p.DetachLaunches(l.stop)
}

// noteSamplingSwitch notes the time from which a part of the calls is recorded, or not recorded.
func (l *overheadLimiter) noteSamplingSwitch(what string, recorded bool, monotonicNs int64, pct float64) {
	text, err := json.Marshal(
		format.Sampling{
			Class:          format.SampledLaunch,
			What:           what,
			Recorded:       recorded,
			OverheadPct:    math.Round(10*pct) / 10,
			MaxOverheadPct: l.limitPct,
		},
	)
	if err != nil {
		return // plain values always encode
	}
	l.Recorder.Send([]format.Row{
		{
			Kind:    format.KindNote,
			Name:    format.NoteSampling,
			StartNs: l.Clock.UnixNs(uint64(monotonicNs)),
			Device:  -1,
			Message: string(text),
		},
	})
}

// warnAndNote warns the user and notes the text in the recording.
func (l *overheadLimiter) warnAndNote(pct float64, text string) {
	l.Warn(text)
	l.writeNote(NoteOverhead, pct, text)
}

// describeSampling returns the warning that launches, or their stacks, are sampled from now on.
func (l *overheadLimiter) describeSampling(m overhead.Measurement) string {
	what := "kernel launches are"
	if !l.canDetach {
		what = "stacks of kernel launches are"
	}
	return fmt.Sprintf(
		"probes take about %.1f %% of the busiest thread's time, so %s recorded for about %.0f %% of the "+
			"time (--max-overhead %g%%; off records all)",
		m.OverheadPct,
		what,
		100*l.governor.WindowShare(),
		l.limitPct,
	)
}

// explainExceededLimit explains why the overhead cannot be kept below --max-overhead.
func (l *overheadLimiter) explainExceededLimit(m overhead.Measurement) string {
	text := fmt.Sprintf("probes still take about %.1f %% of the busiest thread's time, more than --max-overhead "+
		"%g%%: calls that are never sampled take about %.1f %%",
		l.governor.AveragePct(), l.limitPct, m.OthersPct)
	if m.AllocatorPct > m.OthersPct/4 {
		text += fmt.Sprintf(
			"; events of PyTorch's allocator alone take %.1f %% (--allocator=light or off)",
			m.AllocatorPct,
		)
	}
	return text
}
