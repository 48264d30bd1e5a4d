//go:build linux

package overhead

// HitRates are the probe hits per second of the busiest thread, by kind of call.
type HitRates struct {
	Launches, Allocator, Others float64
	// PaceLaunches and PaceOthers are the hits of all threads: of launches, and of all other calls.
	PaceLaunches, PaceOthers float64
}

// Total returns the hits per second of all kinds of call.
func (r *HitRates) Total() float64 { return r.Launches + r.Allocator + r.Others }

// Measurement is the overhead of probes in one tick of a Governor, in percent of the time of the
// busiest thread. Unwinding is not part of it, except for UnwindPct.
type Measurement struct {
	// OverheadPct is the sum of LaunchPct and OthersPct. AllocatorPct is the part of OthersPct for
	// allocator events.
	OverheadPct, LaunchPct, OthersPct, AllocatorPct float64
	// UnwindPct is the time that all threads together spent on unwinding.
	UnwindPct float64
	// IsQuiet is true if no probe was hit in any thread.
	IsQuiet bool
}

// ComputeMeasurement returns the overhead of probe hits at these rates. hitNs is the duration of a
// hit in ns.
func ComputeMeasurement(r HitRates, hitNs, unwindPct float64) Measurement {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	others := pct(r.Allocator + r.Others)
	return Measurement{
		OverheadPct: pct(r.Launches) + others, LaunchPct: pct(r.Launches), OthersPct: others,
		AllocatorPct: pct(r.Allocator), UnwindPct: unwindPct,
		IsQuiet: r.Launches+r.Allocator+r.Others == 0,
	}
}
