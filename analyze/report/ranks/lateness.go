package ranks

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
)

// Lateness is how late a rank is over time.
type Lateness struct {
	Name   string // such as "rank 3"
	IsLate bool   // a verdict is about the rank
	// Points has the median lateness of each StepsPerPoint steps, in order of time. AtNs is the start of the first
	// step.
	Points        []straggler.StepLateness
	StepsPerPoint int
}

// Lateness returns the lateness of ranks over time: of those with a verdict, then of those whose lateness differs most
// from 0. It has at most maxRanks ranks with at most maxPoints points each, and no ranks that were not compared.
func (s *State) Lateness(maxRanks, maxPoints int) (list []Lateness) {
	isLate := make(map[int]bool)
	for i := range s.Verdicts {
		isLate[s.Verdicts[i].Series] = true
	}
	members := s.compared()
	slices.SortStableFunc(members, func(a, b int) int {
		lateNs := func(i int) float64 { return math.Abs(s.Found.Figures[i].LateNs) }
		return cmp.Or(report.CompareBools(isLate[b], isLate[a]), cmp.Compare(lateNs(b), lateNs(a)))
	})
	for _, i := range members[:min(maxRanks, len(members))] {
		l := Lateness{Name: s.rankName(i), IsLate: isLate[i]}
		l.Points, l.StepsPerPoint = mergePoints(s.Found.Lateness[i], maxPoints)
		list = append(list, l)
	}
	return list
}

// ComparedRanks returns the number of ranks that are compared with others.
func (s *State) ComparedRanks() int { return len(s.compared()) }

// compared returns the members that are compared with others.
func (s *State) compared() (members []int) {
	for i := range s.Found.Figures {
		if f := &s.Found.Figures[i]; f.Steps > 0 && s.Found.Groups[f.Group] > 1 {
			members = append(members, i)
		}
	}
	return members
}

// mergePoints returns at most a number of points. Each is the median of perPoint given ones.
func mergePoints(points []straggler.StepLateness, most int) (merged []straggler.StepLateness, perPoint int) {
	perPoint = max(1, (len(points)+most-1)/most)
	for part := range slices.Chunk(points, perPoint) {
		values := make([]float64, len(part))
		for i := range part {
			values[i] = part[i].LateNs
		}
		slices.Sort(values)
		merged = append(merged, straggler.StepLateness{AtNs: part[0].AtNs, LateNs: stats.Median(values)})
	}
	return merged, perPoint
}
