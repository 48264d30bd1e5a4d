package straggler

import (
	"cmp"
	"math"
	"slices"
)

// group has ranks that do the same. Column i of a table is step first+i.
type group struct {
	members []int // indices of the series
	list    []*Series
	steps   int
	basis   Basis
}

// groupsOf groups ranks by signature, and cuts them to the steps that all of a group have. Ranks whose GPU times
// are unknown are compared by the host's.
func groupsOf(all []Series) (groups []*group) {
	bySignature := make(map[uint64]*group)
	for i := range all {
		s := &all[i]
		g := bySignature[s.Signature]
		if g == nil {
			g = &group{basis: s.Basis}
			bySignature[s.Signature] = g
			groups = append(groups, g)
		}
		cut := *s
		g.members, g.list = append(g.members, i), append(g.list, &cut)
		if s.Basis != g.basis {
			g.basis = BasisHost
		}
	}
	for _, g := range groups {
		g.align()
	}
	return groups
}

// align cuts the series of the group to the same steps.
func (g *group) align() {
	first, end, isNumbered := int64(math.MinInt64), int64(math.MaxInt64), true
	for _, s := range g.list {
		s.Basis = g.basis
		isNumbered = isNumbered && s.IsNumbered
		first, end = max(first, s.First), min(end, s.First+int64(len(s.Steps)))
	}
	g.steps = int(max(0, end-first))
	if !isNumbered {
		g.steps = math.MaxInt
		for _, s := range g.list {
			g.steps = min(g.steps, len(s.Steps))
		}
	}
	for _, s := range g.list {
		from := 0
		if isNumbered && g.steps > 0 {
			from = int(first - s.First)
		}
		s.Steps = s.Steps[from : from+g.steps]
	}
}

// table has the values of a measure by rank and step. A value is how much larger it is than the median of the
// other ranks in the same step. typical has those medians.
type table struct{ excess, typical [][]float64 }

// compare computes the table of a measure.
func (g *group) compare(m Measure) table {
	n := len(g.list)
	t := table{make([][]float64, n), make([][]float64, n)}
	for r := range n {
		t.excess[r], t.typical[r] = make([]float64, g.steps), make([]float64, g.steps)
	}
	type entry struct {
		value float64
		rank  int
	}
	column := make([]entry, n)
	for i := range g.steps {
		for r, s := range g.list {
			column[r] = entry{s.value(i, m), r}
		}
		slices.SortFunc(column, func(a, b entry) int { return cmp.Compare(a.value, b.value) })
		at := func(place, without int) float64 { // of the list without one place
			if place >= without {
				place++
			}
			return column[place].value
		}
		for place, e := range column {
			if n < 2 {
				t.typical[e.rank][i] = e.value
				continue
			}
			typical := (at((n-2)/2, place) + at((n-1)/2, place)) / 2
			t.typical[e.rank][i], t.excess[e.rank][i] = typical, e.value-typical
		}
	}
	return t
}

// median returns the median of values, 0 of none. It sorts buffer, which it fills.
func median(values, buffer []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	buffer = append(buffer[:0], values...)
	slices.Sort(buffer)
	n := len(buffer)
	return (buffer[(n-1)/2] + buffer[n/2]) / 2
}

// ofNormal is the number of median absolute deviations in a standard deviation of normal values.
const ofNormal = 1.4826

// spread returns the standard deviation of values by their median absolute deviation, which outliers do not
// change.
func spread(values, buffer []float64) float64 {
	m := median(values, buffer)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return ofNormal * median(away, buffer)
}
