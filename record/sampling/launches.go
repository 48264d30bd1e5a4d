//go:build linux

package sampling

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

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
	stop                   <-chan struct{}
	policy                 overhead.GovernorPolicy
	limitPct               float64
	governor               *overhead.Governor
	meter                  overhead.HitMeter
	stacksOff, launchesOff bool
	warnedStep             overhead.SamplingStep // highest step that the user was warned about
}

// LimitOverhead keeps the probe overhead of the busiest thread below limitPct percent of its time,
// if possible, until stop is closed.
func (s *Sampler) LimitOverhead(policy overhead.GovernorPolicy, limitPct float64, stop <-chan struct{}) {
	most := overhead.StepSampleLaunches
	if s.Probes.How != privilege.AttachMulti {
		most = overhead.StepSampleStacks
	}
	g := overheadLimiter{
		Sampler:  s,
		stop:     stop,
		policy:   policy,
		limitPct: limitPct,
		governor: overhead.NewGovernor(policy, limitPct, most),
	}
	if err := g.prepareMeasuring(); err != nil {
		g.warnAndNote(0, "the overhead of probes cannot be measured, so --max-overhead has no effect: "+err.Error())
		return
	}
	for g.resetMeters(); !clock.Sleep(stop, policy.Interval); {
		rates, ok := s.Recorder.BusiestThreadRates(stop)
		if !ok {
			return
		}
		m := overhead.ComputeMeasurement(rates, g.meter.MeasureHitNs(s.Probes.ReadRunTimes()))
		if g.governor.DecideNextInterval(m) {
			g.warnAndNote(g.governor.AverageOverheadPct(m), g.explainExceededLimit(m))
		}
		if g.governor.Step > g.warnedStep {
			g.warnedStep = g.governor.Step
			g.warnAndNote(m.OverheadPct, g.describeStep(m))
		}
		if err := g.applyStep(m.OverheadPct); err != nil {
			g.warnAndNote(m.OverheadPct, "sampling of launches stopped: "+err.Error())
			return
		}
	}
}

// prepareMeasuring measures the duration of a probe's exception and checks what can be sampled.
func (g *overheadLimiter) prepareMeasuring() (err error) {
	if g.meter.ExceptionNs, err = g.Probes.MeasureExceptionNs(); err != nil {
		return err
	}
	if g.governor.MaxStep < overhead.StepSampleLaunches {
		g.warnAndNote(0, "--max-overhead samples only stacks of launches. Launches cannot be sampled with "+
			"--attach perf, or before Linux 6.6")
	}
	stats, err := probe.EnableRunTimeStats()
	if err != nil {
		g.warnAndNote(0, "--max-overhead counts only the exceptions of probes. Run times of BPF programs cannot be "+
			"measured: "+err.Error())
		return nil
	}
	return stats.Close()
}

// resetMeters starts a new measurement of rates and run times.
func (g *overheadLimiter) resetMeters() {
	g.Recorder.BusiestThreadRates(g.stop)
	g.meter.MeasureHitNs(g.Probes.ReadRunTimes())
}

// applyStep switches recording of launches and stacks as the governor decided. pct is the overhead
// in percent.
func (g *overheadLimiter) applyStep(pct float64) error {
	whole, step := g.governor.RecordsAll(), g.governor.Step
	g.launchesSampled.Store(step == overhead.StepSampleLaunches)
	stacksOff, launchesOff := !whole, !whole && step == overhead.StepSampleLaunches
	if stacksOff == g.stacksOff && launchesOff == g.launchesOff {
		return nil
	}
	if stacksOff != g.stacksOff {
		if err := g.Probes.SkipLaunchStacks(stacksOff); err != nil {
			return err
		}
		g.stacksOff = stacksOff
		g.noteSamplingSwitch(format.SampledStacks, !stacksOff, clock.ReadNs(unix.CLOCK_MONOTONIC), pct)
	}
	if launchesOff != g.launchesOff {
		if err := g.switchLaunchProbes(launchesOff, pct); err != nil {
			return err
		}
	}
	g.resetMeters()
	return nil
}

// switchLaunchProbes removes the probes of launches if off is true, and attaches them otherwise.
func (g *overheadLimiter) switchLaunchProbes(off bool, pct float64) error {
	p := g.Probes
	if !off {
		from, err := p.AttachLaunches()
		if err != nil {
			return err
		}
		g.launchesOff = false
		g.noteSamplingSwitch(format.SampledCalls, true, from, pct)
		clock.Sleep(g.stop, probe.LaunchSwitchDelay)
		return nil
	}
	until, err := p.IgnoreLaunches()
	if err != nil {
		return err
	}
	g.launchesOff = true
	g.noteSamplingSwitch(format.SampledCalls, false, until, pct)
	return p.DetachLaunches(g.stop)
}

// noteSamplingSwitch notes the time from which a part of the calls is recorded, or not recorded.
func (g *overheadLimiter) noteSamplingSwitch(what string, recorded bool, monotonicNs int64, pct float64) {
	text, err := json.Marshal(
		format.Sampling{
			Class:          format.SampledLaunch,
			What:           what,
			Recorded:       recorded,
			OverheadPct:    math.Round(10*pct) / 10,
			MaxOverheadPct: g.limitPct,
		},
	)
	if err != nil {
		return // plain values always encode
	}
	g.Recorder.Send([]format.Row{
		{
			Kind:    format.KindNote,
			Name:    format.NoteSampling,
			StartNs: g.Clock.UnixNs(uint64(monotonicNs)),
			Device:  -1,
			Message: string(text),
		},
	})
}

// warnAndNote warns the user and notes the text in the recording.
func (g *overheadLimiter) warnAndNote(pct float64, text string) {
	g.Warn(text)
	g.writeNote(NoteOverhead, pct, text)
}

// formatFullShare returns the share of time in which everything is recorded, as text.
func (g *overheadLimiter) formatFullShare() string {
	p := g.policy
	return fmt.Sprintf(
		"%v in %v",
		time.Duration(p.FullIntervals)*p.Interval,
		time.Duration(p.FullIntervals+p.SampledIntervals)*p.Interval,
	)
}

// describeStep describes which launches and stacks are sampled at the current step.
func (g *overheadLimiter) describeStep(m overhead.Measurement) string {
	what := "stacks of kernel launches are recorded"
	if g.governor.Step == overhead.StepSampleLaunches {
		what = "kernel launches are recorded"
	}
	return fmt.Sprintf("probes take about %.1f %% of the busiest thread's time. Until that falls, %s for only %s "+
		"(--max-overhead %g%%)",
		m.OverheadPct, what, g.formatFullShare(), g.limitPct)
}

// explainExceededLimit explains why the overhead cannot be kept below --max-overhead.
func (g *overheadLimiter) explainExceededLimit(m overhead.Measurement) string {
	text := fmt.Sprintf("probes still take about %.1f %% of the busiest thread's time, more than --max-overhead "+
		"%g%%: calls that are never sampled take about %.1f %%",
		g.governor.AverageOverheadPct(m), g.limitPct, m.OthersPct)
	if m.AllocatorPct > m.OthersPct/4 {
		text += fmt.Sprintf(
			", of which events of PyTorch's allocator %.1f %% (--allocator=light or off)",
			m.AllocatorPct,
		)
	}
	return text
}
