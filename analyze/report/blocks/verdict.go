package blocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// verdict is the classification of the blocks of a size. Smaller values are worse.
type verdict int

const (
	verdictGrowing verdict = iota // the bytes rise until the last reading
	verdictSteady                 // no other verdict applies
	verdictChurn                  // the blocks come and go
	verdictNone                   // there are too few readings
)

// String returns the verdict, "" for verdictNone.
func (v verdict) String() string { return [...]string{"growing", "steady", "churn", ""}[v] }

// minReadings is the number of readings after the warm-up that a verdict needs: one for each interval with a floor.
const minReadings = stats.CheckpointCount

// finding is the blocks of one size with their verdict.
type finding struct {
	*sizeStats
	blockreadings.Size
	of      *allocatorStats
	verdict verdict
	growth  growth
}

// growth is the growth of blocks, and why a rise has another verdict.
type growth struct {
	stats.Trend                            // of the floors, from where they rise
	perMin                         float64 // bytes
	isGrowing                      bool
	isSlowing, isExplainedByChance bool
}

// classify returns the findings of all allocators: the worst verdict first, then most live bytes.
func (s *scan) classify() (list []finding) {
	for _, a := range s.allocators {
		for size, g := range a.sizes {
			f := a.classifySize(size, g)
			a.hasGrowingSize = a.hasGrowingSize || f.verdict == verdictGrowing
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b finding) int {
		return cmp.Or(
			cmp.Compare(a.verdict, b.verdict), cmp.Compare(b.last.Bytes, a.last.Bytes), cmp.Compare(b.peak, a.peak),
			cmp.Compare(a.of.Pid, b.of.Pid), cmp.Compare(a.of.Device, b.of.Device),
			cmp.Compare(b.Requested, a.Requested), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Stream, b.Stream))
	})
	return list
}

// classifySize returns the verdict on the blocks of a size. The first whose condition holds applies:
//
//	(none)   fewer than minReadings readings after the warm-up
//	growing  the floor of the bytes rises steadily until the end; see measureGrowth
//	churn    no block is live, or nine tenths went and half of the live ones are younger than half of the time
//	steady   any other case
//
// They are the conditions of package leaks, without those about lost events.
func (s *allocatorStats) classifySize(size blockreadings.Size, g *sizeStats) finding {
	f := finding{sizeStats: g, Size: size, of: s, verdict: verdictSteady, growth: s.measureGrowth(g)}
	switch {
	case !s.hasVerdicts():
		f.verdict = verdictNone
	case f.growth.isGrowing:
		f.verdict = verdictGrowing
	case g.last.Blocks == 0, 10*g.gone >= 9*g.seen && stats.Median(g.ages) <= (s.AtNs-s.first.AtNs)/2:
		f.verdict = verdictChurn
	}
	return f
}

// hasVerdicts reports whether the allocator has enough readings for verdicts.
func (s *allocatorStats) hasVerdicts() bool { return s.afterWarmup >= minReadings }

// isGrowing reports whether the blocks of all sizes together grow.
func (s *allocatorStats) isGrowing() bool { return s.hasVerdicts() && s.growth.isGrowing }

// measureGrowth measures the growth of blocks. They grow if all of these conditions hold:
//   - The floor rises without a pause from some checkpoint on, and does not slow down (stats.Rise).
//   - It rises by at least 1 MiB, and 1 % of the bytes (stats.ExceedsNoise).
//   - Random allocation and freeing cannot explain the rise (stats.RandomRise).
func (s *allocatorStats) measureGrowth(g *sizeStats) growth {
	size := float64(g.last.Bytes) / float64(max(1, g.last.Blocks))
	rise := stats.NewRise(g.Floors, size)
	if !rise.Steady {
		t := stats.NewTrend(g.Floors)
		return growth{Trend: t, perMin: s.perMinute(t.Slope), isSlowing: rise.Slowing}
	}
	r := growth{Trend: rise.Trend, perMin: s.perMinute(rise.Slope)}
	perNs, durNs := r.perMin/float64(time.Minute), s.checkpoints.StepNs()*float64(rise.Steps)
	if stats.ExceedsNoise(perNs, durNs, float64(g.Floors[len(g.Floors)-1]), stats.MinLeakGrowthBytes) {
		r.isExplainedByChance = rise.Slope*float64(rise.Steps) < stats.RandomRise(g.last.Blocks, g.gone)*size
		r.isGrowing = !r.isExplainedByChance
	}
	return r
}

// perMinute converts a slope per checkpoint to a slope per minute.
func (s *allocatorStats) perMinute(slope float64) float64 {
	if step := s.checkpoints.StepNs(); step > 0 {
		return slope / step * float64(time.Minute)
	}
	return 0
}

// grownBytes returns the bytes at the last reading less those at the first.
func (g *sizeStats) grownBytes() int64 { return g.last.Bytes - g.first.Bytes }

// evidence returns a sentence with the numbers behind the verdict.
func (f *finding) evidence() string {
	text := fmt.Sprintf(
		"%s of %s were gone at a later reading",
		units.FormatCount(f.gone),
		units.CountWithNoun(f.seen, "block"),
	)
	g := &f.growth
	switch {
	case f.verdict == verdictGrowing:
		text += fmt.Sprintf(", lowest bytes rose by %s over %d checkpoints (tau %.2f)",
			units.FormatBytes(units.RoundInt(g.Slope*float64(g.Steps))), g.Steps, g.Tau)
	case g.isExplainedByChance:
		text += ", rises, but chance may explain the rise"
	case g.isSlowing:
		text += ", rises more and more slowly, like a cache that fills up"
	}
	return text
}

// confidence returns the confidence in the verdict, and the reasons that lower it.
func (f *finding) confidence() (level string, reasons []string) {
	s := f.of
	if d := s.AtNs - s.first.AtNs; d < int64(10*time.Second) {
		reasons = append(reasons, "the readings cover only "+units.FormatDuration(d))
	}
	if n := s.Refused + s.Wrong; 10*n > s.Used {
		reasons = append(reasons, units.CountWithNoun(n, "reading")+" refused or wrong")
	}
	if f.verdict == verdictGrowing {
		if n := f.last.Blocks; n < stats.MinCountForStatistics {
			reasons = append(reasons, "only "+units.CountWithNoun(n, "block"))
		}
		if 2*f.growth.Steps <= len(f.Floors) {
			reasons = append(reasons, fmt.Sprintf("the bytes rise only in the last %d of %d checkpoints",
				f.growth.Steps, len(f.Floors)))
		}
	}
	if len(reasons) > 0 {
		return report.ConfidenceMedium, reasons
	}
	return report.ConfidenceHigh, []string{}
}
