//go:build linux

package rowwriter

import (
	"time"

	"github.com/gpurec/gpurec/record/overhead"
)

// computeBusiestRates returns the probe hits per second of the busiest thread since the last call.
// Calls that are only counted have no thread: all are attributed to the busiest thread. Lost calls
// are assumed to be distributed as the recorded calls.
func (s *Writer) computeBusiestRates(now time.Time) overhead.HitRates {
	var busiest overhead.ProbeHits
	for _, t := range s.threads {
		if t.hits.Total() > busiest.Total() {
			busiest = t.hits
		}
		t.hits = overhead.ProbeHits{}
	}
	sum := s.counters.sumRateTotals()
	counted := float64(sum.counted - s.rated.counted)
	written, lost := float64(sum.written-s.rated.written), float64(sum.lost-s.rated.lost)
	perSecond := 1 / max(1e-3, now.Sub(s.ratedAt).Seconds())
	s.rated, s.ratedAt = sum, now
	scale := perSecond
	if written > 0 {
		scale *= 1 + lost/written
	}
	return overhead.HitRates{
		Launches: float64(
			busiest.Launches,
		) * scale,
		Allocator: float64(busiest.Allocator) * scale,
		Others:    float64(busiest.Others)*scale + counted*perSecond,
	}
}

// rateTotals are totals over all classes, from which busiestRates computes rates.
type rateTotals struct{ counted, written, lost int64 }

func (a *callCounters) sumRateTotals() (sum rateTotals) {
	for class := range a.last {
		sum.counted += a.counted[class]
		sum.written += a.written[class]
		for _, n := range a.last[class].Lost {
			sum.lost += int64(n)
		}
	}
	return sum
}
