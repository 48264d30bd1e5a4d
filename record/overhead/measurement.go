//go:build linux

package overhead

// HitRates are the probe hits per second of the busiest thread, by kind of call. The thread includes those that work
// for it while it waits: PyTorch's autograd engine.
type HitRates struct {
	Launches, Allocator, Others float64
	// PaceLaunches, PaceAllocator and PaceOthers are the hits of all threads.
	PaceLaunches, PaceAllocator, PaceOthers float64
}

// Total returns the hits per second of all kinds of call.
func (r HitRates) Total() float64 { return r.Launches + r.Allocator + r.Others }

// Plus returns the sum of two rates, without those of all threads.
func (r HitRates) Plus(o HitRates) HitRates {
	return HitRates{
		Launches:  r.Launches + o.Launches,
		Allocator: r.Allocator + o.Allocator,
		Others:    r.Others + o.Others,
	}
}

// Measurement is the overhead of probes in a short time, in percent of the time of the busiest
// thread. Unwinding is not part of it, except for UnwindPct.
type Measurement struct {
	LaunchPct, AllocatorPct float64
	OthersPct               float64 // calls that are neither launches nor events of the allocator
	// UnwindPct is the time that all threads together spent on unwinding.
	UnwindPct float64
	// IsQuiet is true if no probe was hit in any thread.
	IsQuiet bool
}

// ComputeMeasurement returns the overhead of probe hits at these rates. hitNs is the duration of a
// hit in ns.
func ComputeMeasurement(r HitRates, hitNs, unwindPct float64) Measurement {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	return Measurement{
		LaunchPct: pct(r.Launches), AllocatorPct: pct(r.Allocator), OthersPct: pct(r.Others), UnwindPct: unwindPct,
		IsQuiet: r.Total() == 0,
	}
}

// ProbePct returns the overhead of all kinds of calls, without unwinding.
func (m Measurement) ProbePct() float64 { return m.LaunchPct + m.AllocatorPct + m.OthersPct }

// KindsPct returns the overhead of some kinds of calls.
func (m Measurement) KindsPct(of Kinds) (pct float64) {
	if of.Has(Launches) {
		pct += m.LaunchPct
	}
	if of.Has(AllocatorEvents) {
		pct += m.AllocatorPct
	}
	return pct
}

// average is the mean of the measurements of some times, weighted by their lengths.
type average struct {
	seconds float64
	sum     Measurement // in percent · s
}

// add adds the measurement of a time.
func (a *average) add(m Measurement, seconds float64) {
	a.seconds += seconds
	a.sum.LaunchPct += seconds * m.LaunchPct
	a.sum.AllocatorPct += seconds * m.AllocatorPct
	a.sum.OthersPct += seconds * m.OthersPct
}

// isQuiet reports whether no call was made.
func (a *average) isQuiet() bool { return a.sum.ProbePct() == 0 }

// mean returns the mean overhead.
func (a *average) mean() (m Measurement) {
	if a.seconds > 0 {
		m.LaunchPct = a.sum.LaunchPct / a.seconds
		m.AllocatorPct = a.sum.AllocatorPct / a.seconds
		m.OthersPct = a.sum.OthersPct / a.seconds
	}
	return m
}
