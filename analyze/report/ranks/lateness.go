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
	// Points has a point for StepsPerPoint steps, in order of time.
	Points        []LatenessPoint
	StepsPerPoint int
}

// LatenessPoint is the median lateness of a rank in some steps.
type LatenessPoint struct {
	AtNs   int64   // start of the first step on the clock of the rank's host, Unix ns
	LateNs float64 // own time less the median of the other ranks that do the same; negative: it is faster
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
		l.Points, l.StepsPerPoint = mergePoints(s.stepLateness(i), maxPoints)
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

// stepLateness returns the lateness of a member in each compared step.
func (s *State) stepLateness(member int) []LatenessPoint {
	var all []*straggler.Series // of the member, then of the others
	basis, isNumbered, first := s.Series[member].Basis, true, int64(math.MinInt64)
	for i := range s.Series {
		p := &s.Series[i]
		if s.Found.Figures[i].Group != s.Found.Figures[member].Group {
			continue
		}
		if p.Basis != basis {
			basis = straggler.BasisHost
		}
		isNumbered, first = isNumbered && p.IsNumbered, max(first, p.First)
		if i == member {
			all = append([]*straggler.Series{p}, all...)
		} else {
			all = append(all, p)
		}
	}
	points := make([]LatenessPoint, 0, s.Found.Figures[member].Steps)
	for k := range s.Found.Figures[member].Steps {
		values := make([]float64, len(all))
		for i, p := range all {
			at := k
			if isNumbered {
				at += int(first - p.First)
			}
			values[i] = ownNs(&p.Steps[at], basis)
			if i == 0 {
				points = append(points, LatenessPoint{AtNs: p.Steps[at].AtNs})
			}
		}
		slices.Sort(values[1:])
		points[k].LateNs = values[0] - stats.Median(values[1:])
	}
	return points
}

// ownNs returns the own time of a rank in a step, as straggler.MeasureOwn.
func ownNs(p *straggler.Step, basis straggler.Basis) float64 {
	if basis != straggler.BasisHost {
		return float64(p.DurNs - p.CollectiveNs)
	}
	return float64(p.DurNs - p.BlockedNs)
}

// mergePoints returns at most a number of points. Each is the median of perPoint given ones.
func mergePoints(points []LatenessPoint, most int) (merged []LatenessPoint, perPoint int) {
	perPoint = max(1, (len(points)+most-1)/most)
	for part := range slices.Chunk(points, perPoint) {
		values := make([]float64, len(part))
		for i := range part {
			values[i] = part[i].LateNs
		}
		slices.Sort(values)
		merged = append(merged, LatenessPoint{part[0].AtNs, stats.Median(values)})
	}
	return merged, perPoint
}
