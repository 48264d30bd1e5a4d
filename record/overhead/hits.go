//go:build linux

package overhead

// Hits are how often probes of one thread were hit, at entries and returns.
type Hits struct {
	Launches, Allocator, Others int64
}

// All returns the sum.
func (h *Hits) All() int64 { return h.Launches + h.Allocator + h.Others }

// Rates are the hits of the busiest thread, a second.
type Rates struct {
	Launches, Allocator, Others float64
}

// Meter measures what the probes cost.
type Meter struct {
	ExceptionNs float64
	ns, runs    int64   // of BPF programs at the last look
	programNs   float64 // of one run, as last measured
}

// HitNs is what a hit has cost since the last look. Where the kernel measured no run
// meanwhile, programs are taken to run as long as before.
// ns and runs are the programs' run times and runs, since they were loaded.
func (m *Meter) HitNs(ns, runs int64) float64 {
	if d := runs - m.runs; d > 0 {
		m.programNs = float64(ns-m.ns) / float64(d)
	}
	m.ns, m.runs = ns, runs
	return m.ExceptionNs + m.programNs
}

// LoadOf makes a load of the rates of hits and the cost of one.
func LoadOf(r Rates, hitNs float64) Load {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	return Load{
		OverheadPct: pct(r.Launches + r.Allocator + r.Others), OthersPct: pct(r.Allocator + r.Others), AllocatorPct: pct(r.Allocator), hitNs: hitNs,
	}
}
