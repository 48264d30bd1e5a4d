package leaks

import (
	"math"

	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// ExplainedGrowth says how much of the growth of all live memory the rows with the verdict growing explain.
type ExplainedGrowth struct {
	// TotalBytes is the rise of the lowest live bytes of the program over all checkpoints: slope times number of
	// checkpoints. Frees of blocks from before the recording lower it. It is negative if memory shrank.
	TotalBytes int64
	// ExplainedBytes is the sum of the rises of growing rows.
	ExplainedBytes int64
}

// measureExplainedGrowth returns the growth of all live memory, and what the findings explain of it.
func (s *Scan) measureExplainedGrowth(findings []LeakFinding) (g ExplainedGrowth) {
	total := stats.NewTrend(s.totalFloors())
	g.TotalBytes = units.RoundInt(total.Slope * float64(total.Steps))
	for i := range findings {
		if findings[i].Verdict == VerdictGrowing {
			g.ExplainedBytes += findings[i].grown
		}
	}
	return g
}

// totalFloors returns the floors of all live memory.
func (s *Scan) totalFloors() []int64 {
	if s.windows == nil {
		return s.total.floors
	}
	sum := make([]int64, CheckpointCount)
	add := func(floors []int64) {
		for i, floor := range floors {
			sum[i] += floor
		}
	}
	add(s.total.floors)
	for class, f := range s.windows.floors {
		if class.isRange {
			add(f.Floors)
		}
	}
	return sum
}

// SharePct returns the explained share of the growth in percent, at most 100. It returns nil if the memory did not grow
// by stats.MinLeakGrowthBytes: then there is no growth to explain.
func (g ExplainedGrowth) SharePct() any {
	if g.TotalBytes < stats.MinLeakGrowthBytes {
		return nil
	}
	return math.Min(100, 100*float64(g.ExplainedBytes)/float64(g.TotalBytes))
}
