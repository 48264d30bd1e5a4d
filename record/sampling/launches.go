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

// NoteOverhead is the name of notes on the cost of probes and what is sampled for it.
const NoteOverhead = "overhead"

// limiter does what the governor decides, and writes it down.
type limiter struct {
	*Sampler
	stop                   <-chan struct{}
	policy                 overhead.Policy
	limitPct               float64
	governor               *overhead.Governor
	meter                  overhead.Meter
	stacksOff, launchesOff bool
	warnedStep             overhead.Step // the furthest step that the user was told of
}

// LimitOverhead keeps what probes cost the busiest thread below limitPct percent of its time, as far
// as that goes.
func (s *Sampler) LimitOverhead(policy overhead.Policy, limitPct float64, stop <-chan struct{}) {
	most := overhead.SampleLaunches
	if s.Probes.How != privilege.AttachMulti {
		most = overhead.SampleStacks
	}
	g := limiter{
		Sampler:  s,
		stop:     stop,
		policy:   policy,
		limitPct: limitPct,
		governor: overhead.NewGovernor(policy, limitPct, most),
	}
	if err := g.prepare(); err != nil {
		g.warn(0, "what a probe costs could not be measured, --max-overhead has no effect: "+err.Error())
		return
	}
	for g.resetMeters(); !clock.Sleep(stop, policy.Interval); {
		rates, ok := s.Recorder.AskRates(stop)
		if !ok {
			return
		}
		m := overhead.LoadOf(rates, g.meter.HitNs(s.Probes.RunTimes()))
		if g.governor.Next(m) {
			g.warn(g.governor.Average(m), g.stuckText(m))
		}
		if g.governor.Step > g.warnedStep {
			g.warnedStep = g.governor.Step
			g.warn(m.OverheadPct, g.stepText(m))
		}
		if err := g.apply(m.OverheadPct); err != nil {
			g.warn(m.OverheadPct, "sampling of launches ended: "+err.Error())
			return
		}
	}
}

// prepare measures what can be measured beforehand.
func (g *limiter) prepare() (err error) {
	if g.meter.ExceptionNs, err = g.Probes.ExceptionNs(); err != nil {
		return err
	}
	if g.governor.MaxStep < overhead.SampleLaunches {
		g.warn(0, "--max-overhead samples stacks of launches only: launches themselves cannot be sampled with "+
			"--attach perf, or before Linux 6.6")
	}
	stats, err := probe.MeasureRunTimes()
	if err != nil {
		g.warn(0, "--max-overhead counts the exceptions of probes only: run times of BPF programs cannot be "+
			"measured: "+err.Error())
		return nil
	}
	return stats.Close()
}

// resetMeters begins a measurement.
func (g *limiter) resetMeters() {
	g.Recorder.AskRates(g.stop)
	g.meter.HitNs(g.Probes.RunTimes())
}

// apply records or leaves out what the governor decided.
func (g *limiter) apply(pct float64) error {
	whole, step := g.governor.RecordsAll(), g.governor.Step
	g.launchesSampled.Store(step == overhead.SampleLaunches)
	stacksOff, launchesOff := !whole, !whole && step == overhead.SampleLaunches
	if stacksOff == g.stacksOff && launchesOff == g.launchesOff {
		return nil
	}
	if stacksOff != g.stacksOff {
		if err := g.Probes.SkipStacks(stacksOff); err != nil {
			return err
		}
		g.stacksOff = stacksOff
		g.noteSwitch(format.SampledStacks, !stacksOff, clock.Ns(unix.CLOCK_MONOTONIC), pct)
	}
	if launchesOff != g.launchesOff {
		if err := g.switchLaunches(launchesOff, pct); err != nil {
			return err
		}
	}
	g.resetMeters()
	return nil
}

// switchLaunches takes the probes of launches away or places them.
func (g *limiter) switchLaunches(off bool, pct float64) error {
	p := g.Probes
	if !off {
		from, err := p.BeginLaunches()
		if err != nil {
			return err
		}
		g.launchesOff = false
		g.noteSwitch(format.SampledCalls, true, from, pct)
		clock.Sleep(g.stop, probe.LaunchNotice)
		return nil
	}
	until, err := p.EndLaunches()
	if err != nil {
		return err
	}
	g.launchesOff = true
	g.noteSwitch(format.SampledCalls, false, until, pct)
	return p.DropLaunches(g.stop)
}

// noteSwitch writes down from when on something is recorded, or not.
func (g *limiter) noteSwitch(what string, recorded bool, monotonicNs int64, pct float64) {
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

// warn tells the user, and readers of the recording.
func (g *limiter) warn(pct float64, text string) {
	g.Warn(text)
	g.note(NoteOverhead, pct, text)
}

// share is how much of the time everything is recorded, in words.
func (g *limiter) share() string {
	p := g.policy
	return fmt.Sprintf(
		"%v in %v",
		time.Duration(p.FullIntervals)*p.Interval,
		time.Duration(p.FullIntervals+p.SampledIntervals)*p.Interval,
	)
}

func (g *limiter) stepText(m overhead.Load) string {
	what := "stacks of kernel launches are taken"
	if g.governor.Step == overhead.SampleLaunches {
		what = "kernel launches are recorded"
	}
	return fmt.Sprintf("probes cost the busiest thread about %.1f %% of its time: until that falls, %s for %s only "+
		"(--max-overhead %g%%)",
		m.OverheadPct, what, g.share(), g.limitPct)
}

// stuckText says why the limit cannot be kept.
func (g *limiter) stuckText(m overhead.Load) string {
	text := fmt.Sprintf("probes still cost the busiest thread about %.1f %% of its time, more than --max-overhead "+
		"%g%%: calls that are never left out about %.1f %%",
		g.governor.Average(m), g.limitPct, m.OthersPct)
	if m.AllocatorPct > m.OthersPct/4 {
		text += fmt.Sprintf(
			", of which events of PyTorch's allocator %.1f %% (--allocator=light or off)",
			m.AllocatorPct,
		)
	}
	return text
}
