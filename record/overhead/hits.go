//go:build linux

package overhead

// Hits counts the probe hits of one thread, at entries and returns.
type Hits struct {
	Launches, Allocator, Others int64
}

// All returns the sum.
func (h *Hits) All() int64 { return h.Launches + h.Allocator + h.Others }

// Rates are the probe hits of the busiest thread, per second.
type Rates struct {
	Launches, Allocator, Others float64
}

// Meter measures the cost of a probe hit.
type Meter struct {
	ExceptionNs float64
	ns, runs    int64   // of BPF programs at the last look
	programNs   float64 // of one run, as last measured
}

// HitNs returns the cost of a hit since the last call, in ns. ns and runs are the run time of the
// programs and their runs, since they were loaded. Without a measured run, the last run time
// holds.
func (m *Meter) HitNs(ns, runs int64) float64 {
	if d := runs - m.runs; d > 0 {
		m.programNs = float64(ns-m.ns) / float64(d)
	}
	m.ns, m.runs = ns, runs
	return m.ExceptionNs + m.programNs
}

// LoadOf returns the load of these rates, at hitNs ns a hit.
func LoadOf(r Rates, hitNs float64) Load {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	return Load{
		OverheadPct: pct(
			r.Launches + r.Allocator + r.Others,
		),
		OthersPct:    pct(r.Allocator + r.Others),
		AllocatorPct: pct(r.Allocator),
		hitNs:        hitNs,
	}
}
