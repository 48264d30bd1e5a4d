//go:build linux

package sampling

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

// CollectivePolicy is the policy for probes of NCCL. PyTorch calls NCCL three times for a collective, which hits five
// probes. If these would take more than MaxPct of the time of the busiest thread, groups are no longer recorded, and
// then no returns of operations. Operations, their numbers and communicators are always recorded.
type CollectivePolicy struct {
	// MaxPct is the largest share of a thread's time for calls of NCCL, in percent.
	MaxPct float64
	// HitNs is the price of a probe hit in ns where it is not measured. A measured price counts up to MaxHitNs: on a
	// busy machine, it has the time in which the thread waits for a CPU.
	HitNs, MaxHitNs float64
	// Interval is the time over which the calls are counted.
	Interval time.Duration
}

// DefaultCollectivePolicy drops the first detail at about 820 collectives of PyTorch per second. Its price is that of
// an H200: 6.1 µs for five hits.
var DefaultCollectivePolicy = CollectivePolicy{MaxPct: 0.5, HitNs: 1220, MaxHitNs: 2440, Interval: time.Second}

// droppedCollectives describe what is missing from now on, for notes.
var droppedCollectives = map[probe.CollectiveDetail]string{
	probe.CollectiveGroups:  "later calls of ncclGroupStart and ncclGroupEnd are missing, and the groups of operations",
	probe.CollectiveReturns: "later operations have no duration and result, and failed ones a number",
}

// LimitCollectives drops details about calls of NCCL by the policy, until stop is closed.
func (s *Sampler) LimitCollectives(policy CollectivePolicy, stop <-chan struct{}) {
	meter := collectiveMeter{probes: s.Probes}
	meter.measure()
	for !clock.Sleep(stop, policy.Interval) {
		detail := s.Probes.DroppableCollectives()
		if detail == 0 {
			continue
		}
		perSecond := meter.measure()
		hitNs := policy.HitNs
		if cost := s.ProbeCost(); cost != nil && !cost.IsAssumed && cost.HitNs > 0 {
			hitNs = min(cost.HitNs, policy.MaxHitNs)
		}
		pct := perSecond * hitNs / 1e9 * 100
		if pct <= policy.MaxPct {
			continue
		}
		text := fmt.Sprintf("probes of NCCL took %.1f %% of a thread's time: %s (--keep-returns keeps them)",
			pct, droppedCollectives[detail])
		s.writeNote("collectives", perSecond, text)
		if err := s.Probes.DropCollectives(detail, stop); err != nil {
			s.writeNote("collectives", 0, err.Error())
			return
		}
		meter.measure() // hits while probes were removed do not count
	}
}

// collectiveMeter measures the rate of probe hits of NCCL.
type collectiveMeter struct {
	probes *probe.Probes
	last   map[uint64]probe.ThreadHits // at the last measurement
	at     time.Time
}

// measure returns the hits per second since its last call of the busiest thread of a process, together with the
// threads of the process's autograd engine.
func (m *collectiveMeter) measure() (perSecond float64) {
	hits, at := make(map[uint64]probe.ThreadHits), time.Now()
	m.probes.ReadThreadHits(hits)
	seconds := max(1e-3, at.Sub(m.at).Seconds())
	threads, engines := make(map[uint64]float64), make(map[uint64]float64) // by pid
	for id, h := range hits {
		rate := float64(h.Collectives-m.last[id].Collectives) / seconds
		if pid := id >> 32; h.IsEngine {
			engines[pid] += rate
		} else {
			threads[pid] = max(threads[pid], rate)
		}
	}
	for id := range hits {
		perSecond = max(perSecond, threads[id>>32]+engines[id>>32])
	}
	m.last, m.at = hits, at
	return perSecond
}
