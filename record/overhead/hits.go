//go:build linux

package overhead

// ProbeHits counts the probe hits of one thread, at entries and returns, by kind of call.
type ProbeHits struct {
	Launches, Allocator, Others int64
}

// Total returns the number of probe hits of all kinds of call.
func (h *ProbeHits) Total() int64 { return h.Launches + h.Allocator + h.Others }

// HitRates are the probe hits per second of the busiest thread, by kind of call.
type HitRates struct {
	Launches, Allocator, Others float64
}

// HitMeter measures the duration of a probe hit.
type HitMeter struct {
	// ExceptionNs is the duration of a probe's exception without the BPF program, in ns.
	ExceptionNs float64
	ns, runs    int64   // of BPF programs at the last call of HitNs
	programNs   float64 // duration of one BPF program run, in ns
}

// MeasureHitNs returns the duration of a probe hit since the last call, in ns. ns and runs are the
// total run time and runs of the BPF programs since loading. Without new runs, MeasureHitNs uses
// the last measured run time.
func (m *HitMeter) MeasureHitNs(ns, runs int64) float64 {
	if d := runs - m.runs; d > 0 {
		m.programNs = float64(ns-m.ns) / float64(d)
	}
	m.ns, m.runs = ns, runs
	return m.ExceptionNs + m.programNs
}

// ComputeMeasurement returns the overhead of probe hits at these rates. hitNs is the duration of a
// hit in ns.
func ComputeMeasurement(r HitRates, hitNs float64) Measurement {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	return Measurement{
		OverheadPct: pct(
			r.Launches + r.Allocator + r.Others,
		),
		OthersPct:    pct(r.Allocator + r.Others),
		AllocatorPct: pct(r.Allocator),
		hitNs:        hitNs,
	}
}
