//go:build linux

package sampling

import (
	"time"

	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/probe"
)

// hitMeter measures the rates of probe hits. The counts come from the BPF programs, so a delay of
// the row writer does not change them.
type hitMeter struct {
	probes       *probe.Probes
	last, now    map[uint64]probe.ThreadHits
	counted      int64 // calls that are only counted, at the last measurement
	lastMeasured time.Time
}

func newHitMeter(probes *probe.Probes) *hitMeter {
	m := &hitMeter{probes: probes, last: make(map[uint64]probe.ThreadHits), now: make(map[uint64]probe.ThreadHits)}
	m.measure()
	return m
}

// measure returns the rates since the last call, and the time since then in seconds. The busiest thread is that of a
// process with the most hits, together with the threads of the process's autograd engine: they work while it waits. It
// attributes all calls that are only counted to the busiest thread, because these calls have no thread.
func (m *hitMeter) measure() (rates overhead.HitRates, seconds float64) {
	m.last, m.now = m.now, m.last
	m.probes.ReadThreadHits(m.now)
	at := time.Now()
	seconds = max(1e-3, at.Sub(m.lastMeasured).Seconds())
	m.lastMeasured = at
	threads, engines := make(map[uint64]overhead.HitRates), make(map[uint64]overhead.HitRates) // by pid
	for id, hits := range m.now {
		before := m.last[id]
		rate := func(hits, before uint32) float64 { return float64(hits-before) / seconds }
		r := overhead.HitRates{
			Launches: rate(hits.Launches, before.Launches), Allocator: rate(hits.Allocator, before.Allocator),
			Others: rate(hits.Others, before.Others),
		}
		rates.PaceLaunches += r.Launches
		rates.PaceAllocator += r.Allocator
		rates.PaceOthers += r.Others
		pid := id >> 32
		if hits.IsEngine {
			engines[pid] = engines[pid].Plus(r)
		} else if most := threads[pid]; r.Total() >= most.Total() {
			threads[pid] = r
		}
	}
	busiest := busiestProcess(threads, engines)
	counted := m.probes.ReadCountedCalls()
	rates.Launches, rates.Allocator = busiest.Launches, busiest.Allocator
	rates.Others = busiest.Others + float64(counted-m.counted)/seconds
	m.counted = counted
	return rates, seconds
}

// busiestProcess returns the rates of the process whose busiest thread and engine have the most hits.
func busiestProcess(threads, engines map[uint64]overhead.HitRates) (busiest overhead.HitRates) {
	for _, rates := range []map[uint64]overhead.HitRates{threads, engines} {
		for pid := range rates {
			if r := threads[pid].Plus(engines[pid]); r.Total() > busiest.Total() {
				busiest = r
			}
		}
	}
	return busiest
}
