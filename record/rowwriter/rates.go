//go:build linux

package rowwriter

import (
	"time"

	"github.com/gpurec/gpurec/record/overhead"
)

// rates returns how often the probes of the busiest thread were hit since the last time.
// Which thread makes the calls that are only counted is not known: all are taken for its.
// Hits whose calls were lost are taken to be spread as the others are.
func (s *Writer) rates(now time.Time) overhead.Rates {
	var busiest overhead.Hits
	for _, t := range s.threads {
		if t.hits.All() > busiest.All() {
			busiest = t.hits
		}
		t.hits = overhead.Hits{}
	}
	sum := s.counters.sums()
	counted := float64(sum.counted - s.rated.counted)
	written, lost := float64(sum.written-s.rated.written), float64(sum.lost-s.rated.lost)
	perSecond := 1 / max(1e-3, now.Sub(s.ratedAt).Seconds())
	s.rated, s.ratedAt = sum, now
	scale := perSecond
	if written > 0 {
		scale *= 1 + lost/written
	}
	return overhead.Rates{
		Launches: float64(
			busiest.Launches,
		) * scale,
		Allocator: float64(busiest.Allocator) * scale,
		Others:    float64(busiest.Others)*scale + counted*perSecond,
	}
}

// accountSums are some of the books over all classes.
type accountSums struct{ counted, written, lost int64 }

func (a *counters) sums() (sum accountSums) {
	for class := range a.last {
		sum.counted += a.counted[class]
		sum.written += a.written[class]
		for _, n := range a.last[class].Lost {
			sum.lost += int64(n)
		}
	}
	return sum
}
