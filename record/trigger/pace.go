package trigger

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
)

const (
	// maxSites bounds the call sites of a process whose pace is followed.
	maxSites = 32
	// launchSpan is the least time over which the time between launches is averaged.
	launchSpan = time.Second
	// regularPct is the share of the steps before, in percent, that must be shorter than the limit of a slow step.
	// Otherwise the times between calls are those of something else than a step.
	regularPct = 90
)

// pace finds that the time between calls of one kind becomes longer. It averages times over a span, so that short steps
// are not judged by the noise of single ones. It compares the median of the latest averages with the median of those
// before, and stops to move the latter meanwhile. Its memory does not depend on time.
type pace struct {
	lastNs, sinceNs int64 // latest call, and begin of the average in progress; 0: none
	calls           int64 // in the average in progress

	recent, before window
	sorted         []int64 // kept to be used again
	slowNs         int64   // since when steps are slow, Unix ns; 0: they are not
	fired          bool
}

// window has the latest values, the oldest ones first from next on.
type window struct {
	values []int64
	next   int
}

// push adds a value. It returns the oldest one if the window is full with size values.
func (w *window) push(value int64, size int) (oldest int64, full bool) {
	if len(w.values) < size {
		w.values = append(w.values, value)
		return 0, false
	}
	oldest = w.values[w.next]
	w.values[w.next] = value
	w.next = (w.next + 1) % size
	return oldest, true
}

// slowdown is the time of a step before and now, in ns.
type slowdown struct{ before, now int64 }

// interrupt forgets the average in progress: calls are missing.
func (p *pace) interrupt() { p.lastNs, p.calls = 0, 0 }

// isKnown reports whether there are enough steps before for a comparison.
func (p *pace) isKnown(limits *Thresholds) bool { return len(p.before.values) >= limits.SlowBefore }

// add adds a call that ended at a time, Unix ns. It reports that steps have been slow for long enough, once until they
// are fast again.
func (p *pace) add(endNs int64, span time.Duration, limits *Thresholds) (found slowdown, ok bool) {
	if p.lastNs == 0 {
		p.lastNs, p.sinceNs, p.calls = endNs, endNs, 0
		return found, false
	}
	p.calls++
	if p.lastNs = endNs; endNs-p.sinceNs < span.Nanoseconds() {
		return found, false
	}
	step := (endNs - p.sinceNs) / p.calls
	p.sinceNs, p.calls = endNs, 0
	if oldest, full := p.recent.push(step, limits.SlowRecent); full && p.slowNs == 0 {
		p.before.push(oldest, limits.SlowBefore)
	}
	if !p.isKnown(limits) {
		return found, false
	}
	return p.judge(endNs, limits)
}

// judge compares the latest steps with those before.
func (p *pace) judge(nowNs int64, limits *Thresholds) (found slowdown, ok bool) {
	before, now := p.quantile(&p.before, 50), p.quantile(&p.recent, 50)
	limit := int64(limits.SlowFactor * float64(before))
	if now <= limit || p.quantile(&p.before, regularPct) > limit {
		p.slowNs, p.fired = 0, false
		return found, false
	}
	if p.slowNs == 0 {
		p.slowNs = nowNs
	}
	if p.fired || nowNs-p.slowNs < limits.Slow.Nanoseconds() {
		return found, false
	}
	p.fired = true
	return slowdown{before, now}, true
}

// quantile returns the value that a share of the values, in percent, does not exceed.
func (p *pace) quantile(w *window, pct int) int64 {
	p.sorted = append(p.sorted[:0], w.values...)
	slices.Sort(p.sorted)
	return p.sorted[min(len(p.sorted)-1, len(p.sorted)*pct/100)]
}

// callSite identifies the calls that are once in a step: one function, called at one place of one thread.
type callSite struct {
	tid, stack int32
	name       string
}

// paces are the paces of a process: of its call sites that wait for the GPU, and of its launches.
type paces struct {
	sites    []sitePace
	launches pace
}

type sitePace struct {
	callSite
	pace pace
}

// slowness finds processes whose steps become slower.
type slowness struct {
	processes map[int32]*paces
	last      *paces // of lastPid: rows of a process follow each other
	lastPid   int32
}

func newSlowness() slowness { return slowness{processes: make(map[int32]*paces)} }

// of returns the paces of a process, nil if there are too many processes.
func (s *slowness) of(pid int32) *paces {
	if s.last != nil && s.lastPid == pid {
		return s.last
	}
	p := s.processes[pid]
	if p == nil {
		if len(s.processes) == maxEntries {
			return nil
		}
		p = new(paces)
		s.processes[pid] = p
	}
	s.last, s.lastPid = p, pid
	return p
}

// forget forgets a process.
func (s *slowness) forget(pid int32) {
	delete(s.processes, pid)
	s.last = nil
}

// interruptLaunches forgets the averages in progress of launches: launches of some time are not recorded.
func (s *slowness) interruptLaunches() {
	for _, p := range s.processes {
		p.launches.interrupt()
	}
}

// onCall looks at a call of class call.
func (r *Rows) onCall(row *format.Row) {
	switch row.Kind {
	case format.KindSync:
		r.onSync(row)
	case format.KindLaunch:
		r.onLaunch(row)
	}
}

// onSync follows the pace of a call site that waits for the GPU.
func (r *Rows) onSync(row *format.Row) {
	p := r.slow.of(row.Pid)
	if p == nil || row.Result != 0 || row.Flags&(format.FlagOpen|format.FlagAbandoned) != 0 {
		return
	}
	if row.StackStatus == format.StackRationed && row.StackID == 0 {
		p.interruptThread(row.Tid) // it may be any call site
		return
	}
	site := p.siteOf(callSite{row.Tid, row.StackID, row.Name})
	endNs := row.StartNs + row.DurNs
	if found, ok := site.add(endNs, r.limits.SlowSpan, &r.limits); ok {
		where := row.Name
		if row.Site != "" {
			where += " at " + row.Site
		}
		r.fireSlow(row.Pid, endNs, site, fmt.Sprintf("the time between calls of %s in process %d", where, row.Pid),
			found)
	}
}

// onLaunch follows the pace of launches, which counts if no call site shows steps.
func (r *Rows) onLaunch(row *format.Row) {
	p := r.slow.of(row.Pid)
	if p == nil {
		return
	}
	endNs := row.StartNs + row.DurNs
	found, ok := p.launches.add(endNs, launchSpan, &r.limits)
	isKnown := func(s sitePace) bool { return s.pace.isKnown(&r.limits) }
	if ok && !slices.ContainsFunc(p.sites, isKnown) {
		r.fireSlow(row.Pid, endNs, &p.launches, fmt.Sprintf("the time between launches of process %d", row.Pid), found)
	}
}

// siteOf returns the pace of a call site. A new one replaces the one with the oldest call, if there are too many.
func (p *paces) siteOf(site callSite) *pace {
	oldest := 0
	for i := range p.sites {
		if p.sites[i].callSite == site {
			return &p.sites[i].pace
		}
		if p.sites[i].pace.lastNs < p.sites[oldest].pace.lastNs {
			oldest = i
		}
	}
	if len(p.sites) < maxSites {
		p.sites = append(p.sites, sitePace{callSite: site})
		return &p.sites[len(p.sites)-1].pace
	}
	p.sites[oldest] = sitePace{callSite: site}
	return &p.sites[oldest].pace
}

// interruptThread forgets the averages in progress of a thread.
func (p *paces) interruptThread(tid int32) {
	for i := range p.sites {
		if p.sites[i].tid == tid {
			p.sites[i].pace.interrupt()
		}
	}
}

// roundStep returns a duration in ns for a text.
func roundStep(ns int64) time.Duration { return time.Duration(ns).Round(10 * time.Microsecond) }

// fireSlow fires for steps that have become slower.
func (r *Rows) fireSlow(pid int32, nowNs int64, p *pace, what string, found slowdown) {
	r.fire(Event{
		Kind: Slow, AtNs: nowNs, FromNs: p.slowNs, Pid: pid, Subject: fmt.Sprint(pid),
		Evidence: fmt.Sprintf("%s grew from %v to %v: medians of %d before and of the latest %d", what,
			roundStep(found.before), roundStep(found.now), len(p.before.values), len(p.recent.values)),
	})
}
