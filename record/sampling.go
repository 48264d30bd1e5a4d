//go:build linux

package record

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

// noteOverhead is the name of notes on what probes cost and what is done about it.
const noteOverhead = "overhead"

// sampler does what the governor decides, and writes it down.
type sampler struct {
	s                        *Session
	stop                     <-chan struct{}
	governor                 *overhead.Governor
	meter                    overhead.Meter
	stacksAway, launchesAway bool
	told                     overhead.Step // the furthest step that the user was told of
}

// govern keeps the overhead below opt.MaxOverheadPct, as far as that goes, until stop is
// closed.
func (s *Session) govern(stop <-chan struct{}) {
	most := overhead.SampleLaunches
	if s.probes.How != privilege.AttachMulti {
		most = overhead.SampleStacks
	}
	g := sampler{s: s, stop: stop, governor: overhead.NewGovernor(s.opt.governor, s.opt.MaxOverheadPct, most)}
	if err := g.prepare(); err != nil {
		g.note(0, "what a probe costs could not be measured, --max-overhead has no effect: "+err.Error())
		return
	}
	for g.rebase(); !clock.Sleep(stop, s.opt.governor.Look); {
		rates, ok := s.scribe.AskRates(stop)
		if !ok {
			return
		}
		m := overhead.LoadOf(rates, g.meter.HitNs(s.probes.RunTimes()))
		if g.governor.Next(m) {
			g.note(g.governor.Average(m), g.stuckText(m))
		}
		if g.governor.Step > g.told {
			g.told = g.governor.Step
			g.note(m.OverheadPct, g.stepText(m))
		}
		if err := g.apply(m.OverheadPct); err != nil {
			g.note(m.OverheadPct, "sampling of launches ended: "+err.Error())
			return
		}
	}
}

// prepare measures what can be measured beforehand.
func (g *sampler) prepare() (err error) {
	if g.meter.ExceptionNs, err = g.s.probes.ExceptionNs(); err != nil {
		return err
	}
	if g.governor.Most < overhead.SampleLaunches {
		g.note(0, "--max-overhead samples stacks of launches only: launches themselves cannot be sampled with --attach perf, or before Linux 6.6")
	}
	stats, err := probe.MeasureRunTimes()
	if err != nil {
		g.note(0, "--max-overhead counts the exceptions of probes only: run times of BPF programs cannot be measured: "+err.Error())
		return nil
	}
	return stats.Close()
}

// rebase begins a measurement.
func (g *sampler) rebase() {
	g.s.scribe.AskRates(g.stop)
	g.meter.HitNs(g.s.probes.RunTimes())
}

// apply records or leaves out what the governor decided.
func (g *sampler) apply(pct float64) error {
	whole, step := g.governor.IsWhole(), g.governor.Step
	g.s.launchesSampled.Store(step == overhead.SampleLaunches)
	stacksAway, launchesAway := !whole, !whole && step == overhead.SampleLaunches
	if stacksAway == g.stacksAway && launchesAway == g.launchesAway {
		return nil
	}
	if stacksAway != g.stacksAway {
		if err := g.s.probes.SkipStacks(stacksAway); err != nil {
			return err
		}
		g.stacksAway = stacksAway
		g.noteSwitch(format.SampledStacks, !stacksAway, clock.Ns(unix.CLOCK_MONOTONIC), pct)
	}
	if launchesAway != g.launchesAway {
		if err := g.switchLaunches(launchesAway, pct); err != nil {
			return err
		}
	}
	g.rebase()
	return nil
}

// switchLaunches takes the probes of launches away or places them.
func (g *sampler) switchLaunches(away bool, pct float64) error {
	p, missing := g.s.probes, &g.s.scribe.Missing
	if !away {
		from, err := p.BeginLaunches()
		if err != nil {
			return err
		}
		g.launchesAway = false
		missing.End(from)
		g.noteSwitch(format.SampledCalls, true, from, pct)
		clock.Sleep(g.stop, probe.LaunchNotice)
		return nil
	}
	until, err := p.EndLaunches()
	if err != nil {
		return err
	}
	g.launchesAway = true
	missing.Begin(until)
	g.noteSwitch(format.SampledCalls, false, until, pct)
	return p.DropLaunches(g.stop)
}

// noteSwitch writes down from when on something is recorded, or not.
func (g *sampler) noteSwitch(what string, recorded bool, monotonicNs int64, pct float64) {
	text, err := json.Marshal(format.Sampling{Class: format.SampledLaunch, What: what, Recorded: recorded, OverheadPct: math.Round(10*pct) / 10, MaxOverheadPct: g.s.opt.MaxOverheadPct})
	if err != nil {
		return // plain values always encode
	}
	g.s.scribe.Send([]format.Row{{
		Kind: format.KindNote, Name: format.NoteSampling, StartNs: g.s.clock.UnixNs(uint64(monotonicNs)), Device: -1, Message: string(text),
	}})
}

// note tells the user, and readers of the recording.
func (g *sampler) note(pct float64, text string) {
	g.s.warn(text)
	g.s.scribe.Send([]format.Row{{Kind: format.KindNote, Name: noteOverhead, StartNs: g.s.clock.NowNs(), Device: -1, Value: pct, Message: text}})
}

// share is how much of the time everything is recorded, in words.
func (g *sampler) share() string {
	p := g.s.opt.governor
	return fmt.Sprintf("%v in %v", time.Duration(p.Whole)*p.Look, time.Duration(p.Whole+p.Spare)*p.Look)
}

func (g *sampler) stepText(m overhead.Load) string {
	what := "stacks of kernel launches are taken"
	if g.governor.Step == overhead.SampleLaunches {
		what = "kernel launches are recorded"
	}
	return fmt.Sprintf("probes cost the busiest thread about %.1f %% of its time: until that falls, %s for %s only (--max-overhead %g%%)",
		m.OverheadPct, what, g.share(), g.s.opt.MaxOverheadPct)
}

// stuckText says why the limit cannot be kept.
func (g *sampler) stuckText(m overhead.Load) string {
	text := fmt.Sprintf("probes still cost the busiest thread about %.1f %% of its time, more than --max-overhead %g%%: calls that are never left out about %.1f %%",
		g.governor.Average(m), g.s.opt.MaxOverheadPct, m.OthersPct)
	if m.AllocatorPct > m.OthersPct/4 {
		text += fmt.Sprintf(", of which events of PyTorch's allocator %.1f %% (--allocator=light or off)", m.AllocatorPct)
	}
	return text
}
