//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// noteOverhead is the name of notes on what probes cost and what is done about it.
const noteOverhead = "overhead"

// sampler does what the governor decides, and writes it down.
type sampler struct {
	s                        *Session
	stop                     <-chan struct{}
	governor                 *governor
	meter                    costMeter
	stacksAway, launchesAway bool
	told                     governorStep // the furthest step that the user was told of
}

// govern keeps the overhead below opt.MaxOverheadPct, as far as that goes, until stop is
// closed.
func (s *Session) govern(stop <-chan struct{}) {
	most := sampleLaunches
	if s.probes.how != AttachMulti {
		most = sampleStacks
	}
	g := sampler{s: s, stop: stop, governor: newGovernor(s.opt.governor, s.opt.MaxOverheadPct, most)}
	if err := g.prepare(); err != nil {
		g.note(0, "what a probe costs could not be measured, --max-overhead has no effect: "+err.Error())
		return
	}
	for g.rebase(); !sleep(stop, s.opt.governor.look); {
		rates, ok := s.scribe.askRates(stop)
		if !ok {
			return
		}
		m := loadOf(rates, g.meter.hitNs(s.probes.runTimes()))
		if g.governor.next(m) {
			g.note(g.governor.average(m), g.stuckText(m))
		}
		if g.governor.step > g.told {
			g.told = g.governor.step
			g.note(m.overheadPct, g.stepText(m))
		}
		if err := g.apply(m.overheadPct); err != nil {
			g.note(m.overheadPct, "sampling of launches ended: "+err.Error())
			return
		}
	}
}

// prepare measures what can be measured beforehand.
func (g *sampler) prepare() (err error) {
	if g.meter.exceptionNs, err = g.s.probes.exceptionNs(); err != nil {
		return err
	}
	if g.governor.most < sampleLaunches {
		g.note(0, "--max-overhead samples stacks of launches only: launches themselves cannot be sampled with --attach perf, or before Linux 6.6")
	}
	stats, err := measureRunTimes()
	if err != nil {
		g.note(0, "--max-overhead counts the exceptions of probes only: run times of BPF programs cannot be measured: "+err.Error())
		return nil
	}
	return stats.Close()
}

// rebase begins a measurement.
func (g *sampler) rebase() {
	g.s.scribe.askRates(g.stop)
	g.meter.hitNs(g.s.probes.runTimes())
}

// apply records or leaves out what the governor decided.
func (g *sampler) apply(pct float64) error {
	whole, step := g.governor.isWhole(), g.governor.step
	g.s.launchesSampled.Store(step == sampleLaunches)
	stacksAway, launchesAway := !whole, !whole && step == sampleLaunches
	if stacksAway == g.stacksAway && launchesAway == g.launchesAway {
		return nil
	}
	if stacksAway != g.stacksAway {
		if err := g.s.probes.skipStacks(stacksAway); err != nil {
			return err
		}
		g.stacksAway = stacksAway
		g.noteSwitch(format.SampledStacks, !stacksAway, clockNs(unix.CLOCK_MONOTONIC), pct)
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
	p, missing := g.s.probes, &g.s.scribe.missing
	if !away {
		from, err := p.beginLaunches()
		if err != nil {
			return err
		}
		g.launchesAway = false
		missing.end(from)
		g.noteSwitch(format.SampledCalls, true, from, pct)
		sleep(g.stop, launchNotice)
		return nil
	}
	until, err := p.endLaunches()
	if err != nil {
		return err
	}
	g.launchesAway = true
	missing.begin(until)
	g.noteSwitch(format.SampledCalls, false, until, pct)
	return p.dropLaunches(g.stop)
}

// noteSwitch writes down from when on something is recorded, or not.
func (g *sampler) noteSwitch(what string, recorded bool, monotonicNs int64, pct float64) {
	text, err := json.Marshal(format.Sampling{Class: format.SampledLaunch, What: what, Recorded: recorded, OverheadPct: math.Round(10*pct) / 10, MaxOverheadPct: g.s.opt.MaxOverheadPct})
	if err != nil {
		return // plain values always encode
	}
	g.s.scribe.send([]format.Row{{
		Kind: format.KindNote, Name: format.NoteSampling, StartNs: g.s.clock.unix(uint64(monotonicNs)), Device: -1, Message: string(text),
	}})
}

// note tells the user, and readers of the recording.
func (g *sampler) note(pct float64, text string) {
	g.s.warn(text)
	g.s.scribe.send([]format.Row{{Kind: format.KindNote, Name: noteOverhead, StartNs: g.s.clock.now(), Device: -1, Value: pct, Message: text}})
}

// share is how much of the time everything is recorded, in words.
func (g *sampler) share() string {
	p := g.s.opt.governor
	return fmt.Sprintf("%v in %v", time.Duration(p.whole)*p.look, time.Duration(p.whole+p.spare)*p.look)
}

func (g *sampler) stepText(m load) string {
	what := "stacks of kernel launches are taken"
	if g.governor.step == sampleLaunches {
		what = "kernel launches are recorded"
	}
	return fmt.Sprintf("probes cost the busiest thread about %.1f %% of its time: until that falls, %s for %s only (--max-overhead %g%%)",
		m.overheadPct, what, g.share(), g.s.opt.MaxOverheadPct)
}

// stuckText says why the limit cannot be kept.
func (g *sampler) stuckText(m load) string {
	text := fmt.Sprintf("probes still cost the busiest thread about %.1f %% of its time, more than --max-overhead %g%%: calls that are never left out about %.1f %%",
		g.governor.average(m), g.s.opt.MaxOverheadPct, m.othersPct)
	if m.allocatorPct > m.othersPct/4 {
		text += fmt.Sprintf(", of which events of PyTorch's allocator %.1f %% (--allocator=light or off)", m.allocatorPct)
	}
	return text
}

// missingTimes are those in which launches are not recorded, on CLOCK_MONOTONIC, in order.
// The last one may not have ended.
type missingTimes struct {
	mu    sync.Mutex
	times []missingTime
}

type missingTime struct{ fromNs, toNs int64 } // toNs 0: not ended

func (m *missingTimes) begin(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, missingTime{fromNs: ns})
}

func (m *missingTimes) end(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[len(m.times)-1].toNs = ns
}

// meet reports whether launches were not recorded in some of the time.
func (m *missingTimes) meet(fromNs, toNs int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.times) - 1; i >= 0; i-- {
		if t := m.times[i]; t.toNs != 0 && t.toNs <= fromNs {
			return false
		} else if t.fromNs < toNs {
			return true
		}
	}
	return false
}
