//go:build linux

package sampling

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
)

// NoteOverhead is the name of notes about the overhead of probes and the sampling that limits it.
const NoteOverhead = "overhead"

// BlockReader reads the blocks of PyTorch's allocator from the memory of the recorded processes, while events of the
// allocator are recorded in windows only. Its methods return at once and may be called from any goroutine.
type BlockReader interface {
	// Request starts to read the blocks of all processes, at least once a second. Later calls have no effect.
	Request()
	// Ready reports whether the blocks of every process with a caching allocator are known. reason says why not.
	Ready() (isReady bool, reason string)
	// WindowBegins asks for a reading in the window that has just begun.
	WindowBegins()
}

// overheadLimiter applies the decisions of the governor to the probes, and notes them in the
// recording.
type overheadLimiter struct {
	*Sampler
	stop     <-chan struct{}
	limitPct float64
	governor *overhead.Governor
	meter    priceMeter
	pace     overhead.Pace
	part     recordedPart // the current window or pause
	hits     *hitMeter

	canDetach   bool           // launch probes can be removed; otherwise only stacks are left out
	unwindShare float64        // share of time for unwinding that is in effect
	missing     overhead.Kinds // are left out now
	warned      overhead.Kinds // the user knows that these kinds are sampled
	refusedAt   time.Time      // when a warning said that the allocator cannot be sampled
}

// recordedPart sums the probe hits of a window or a pause.
type recordedPart struct{ seconds, sampled, others, launches float64 }

// LimitOverhead keeps the probe overhead of the busiest thread below limitPct percent of its time,
// if possible, until stop is closed.
func (s *Sampler) LimitOverhead(policy overhead.GovernorPolicy, limitPct float64, stop <-chan struct{}) {
	l := overheadLimiter{
		Sampler: s, stop: stop, limitPct: limitPct,
		governor:  overhead.NewGovernor(policy, limitPct),
		canDetach: s.Probes.How == privilege.AttachMulti,
	}
	if err := l.prepareMeasuring(); err != nil {
		l.warnAndNote(0, "gpurec cannot measure the overhead of probes, so --max-overhead has no effect: "+err.Error())
		return
	}
	defer l.meter.stop()
	l.hits = newHitMeter(s.Probes)
	for {
		l.meter.begin(l.missing == 0)
		if clock.Sleep(stop, l.governor.Next()) {
			return
		}
		m, elapsed := l.measure()
		l.updateSampleable()
		if l.governor.Decide(m, elapsed) {
			l.warnAndNote(l.governor.AveragePct(), l.explainExceededLimit(m))
		}
		if err := l.applyDecision(); err != nil {
			l.warnAndNote(m.ProbePct(), "sampling stopped: "+err.Error())
			return
		}
		l.publishAccount()
	}
}

// prepareMeasuring measures the duration of a probe's exception and checks what can be sampled.
func (l *overheadLimiter) prepareMeasuring() error {
	var err error
	if l.meter, err = newPriceMeter(l.Probes); err != nil {
		return err
	}
	if !l.canDetach {
		l.warnAndNote(0, "--max-overhead samples only stacks of launches. Launches and events of PyTorch's allocator "+
			"cannot be sampled with --attach perf, or before Linux 6.6")
	}
	if l.meter.assumed != nil {
		l.warnAndNote(0, fmt.Sprintf("--max-overhead assumes that a BPF program takes %d ns. Run times cannot be "+
			"measured: %v", overhead.AssumedProgramNs, l.meter.assumed))
	}
	return nil
}

// measure returns the overhead since the last call, and the time since then.
func (l *overheadLimiter) measure() (overhead.Measurement, time.Duration) {
	rates, seconds := l.hits.measure()
	unwindNs := l.meter.end()
	sampled, others := 0.0, rates.PaceOthers
	for kind, rate := range map[overhead.Kinds]float64{
		overhead.Launches: rates.PaceLaunches, overhead.AllocatorEvents: rates.PaceAllocator,
	} {
		if l.governor.Sampled().Has(kind) {
			sampled += rate
		} else {
			others += rate
		}
	}
	l.part.seconds += seconds
	l.part.sampled += sampled * seconds
	l.part.others += others * seconds
	l.part.launches += rates.PaceLaunches * seconds
	unwindPct := 100 * float64(unwindNs) / 1e9 / seconds
	m := overhead.ComputeMeasurement(rates, l.meter.price.HitNs(), unwindPct)
	return m, time.Duration(seconds * float64(time.Second))
}

// updateSampleable tells the governor whether events of the allocator may be sampled. They may, if the blocks are read
// from outside meanwhile.
func (l *overheadLimiter) updateSampleable() {
	kinds := overhead.Launches
	if l.canDetach && l.Blocks != nil && l.governor.NeedsEvents() {
		l.Blocks.Request()
		isReady, reason := l.Blocks.Ready()
		if isReady {
			kinds |= overhead.AllocatorEvents
		} else if reason != "" && time.Since(l.refusedAt) > time.Minute {
			l.refusedAt = time.Now()
			l.warnAndNote(0, "all events of PyTorch's allocator are recorded, whatever they cost: its blocks "+
				"cannot be read from outside, "+reason)
		}
	}
	l.governor.SetSampleable(kinds)
}

// applyDecision changes what the probes record, as the governor decided.
func (l *overheadLimiter) applyDecision() error {
	if share := l.governor.UnwindShare(); share != l.unwindShare {
		if err := l.Probes.RationUnwinding(share); err != nil {
			return err
		}
		l.unwindShare = share
	}
	l.launchesSampled.Store(l.governor.Sampled().Has(overhead.Launches))
	missing := l.governor.Missing()
	if missing == l.missing {
		return nil
	}
	begins, ends := l.missing&^missing, missing&^l.missing
	l.missing = missing
	l.endPart(ends != 0)
	l.warnOfSampling(ends)
	pct := l.governor.AveragePct()
	if !l.canDetach {
		l.noteStackSwitch(ends == 0, pct)
		return l.Probes.SkipLaunchStacks(ends != 0)
	}
	return l.switchProbes(begins, ends, pct)
}

// endPart ends a window, or else a pause, and corrects the price of a probe hit.
func (l *overheadLimiter) endPart(wasWindow bool) {
	p := l.part
	l.part = recordedPart{}
	if wasWindow {
		l.windowLaunchRate.Store(int64(p.launches / max(1e-3, p.seconds)))
		l.pace.AddWindow(p.seconds, p.sampled, p.others)
		return
	}
	if l.canDetach {
		l.pace.AddPause(p.seconds, p.others)
	}
	if ns, ok := l.pace.HitNs(); ok {
		l.meter.price.Correct(ns)
	}
}

// switchProbes attaches the probes of the kinds in begins, and removes those in ends.
func (l *overheadLimiter) switchProbes(begins, ends overhead.Kinds, pct float64) error {
	p := l.Probes
	if begins != 0 {
		from, err := p.BeginWindow(begins)
		if err != nil {
			return err
		}
		l.noteCallSwitch(begins, true, from, pct)
		if begins.Has(overhead.AllocatorEvents) {
			l.Blocks.WindowBegins()
		}
	}
	if ends != 0 {
		until, err := p.EndWindow(ends)
		if err != nil {
			return err
		}
		l.noteCallSwitch(ends, false, until, pct)
		if err := p.DetachKinds(ends, l.stop); err != nil {
			return err
		}
	}
	m, elapsed := l.measure()
	l.governor.Switched(m, elapsed)
	return nil
}

// publishAccount makes the overhead so far available to ProbeCost.
func (l *overheadLimiter) publishAccount() {
	cost := l.governor.Account().ProbeCost
	cost.HitNs, cost.IsAssumed = l.meter.price.HitNs(), l.meter.assumed != nil
	l.probeCost.Store(&cost)
}
