package changepoint

import "math"

// markRecurring marks the changes of a pattern: a change between the same two levels that happens at least
// twice, and its returns.
func (f *finder) markRecurring(r *Result) {
	const tolerance = 0.25
	isLike := func(a, b *Change, back bool) bool {
		from, to := b.From, b.To
		if back {
			from, to = b.To, b.From
		}
		near := max(tolerance*math.Abs(a.To-a.From), 2*f.noise.scale)
		return math.Abs(a.From-from) <= near && math.Abs(a.To-to) <= near && (a.To-a.From)*(to-from) > 0
	}
	list := r.Changes
	recurs := make([]bool, len(list)) // happens at least twice
	for i := range list {
		for j := range list {
			recurs[i] = recurs[i] || i != j && isLike(&list[i], &list[j], false)
		}
	}
	var rises []int64
	for i := range list {
		isReturn := false
		for j := range list {
			isReturn = isReturn || recurs[j] && isLike(&list[i], &list[j], true)
		}
		if recurs[i] && list[i].To > list[i].From {
			rises = append(rises, list[i].AfterNs)
		}
		recurs[i] = recurs[i] || isReturn
	}
	for i := range list {
		if recurs[i] {
			list[i].Kind = Recurring
		}
	}
	if n := int64(len(rises)); n > 1 && r.PeriodNs == 0 {
		r.PeriodNs = (rises[n-1] - rises[0]) / (n - 1)
	}
}

// driftParts is the number of parts of a series that are compared to find a drift.
const driftParts = 16

// findDrift returns the drift of a series without its changes, or nil. The medians of equal parts must
// mostly rise or mostly fall, by Kendall's rank correlation (Mann, 1945).
func (f *finder) findDrift(changes []Change) *Drift {
	const minTau, minScales = 0.6, 2
	values := append([]float64(nil), f.parts.Values...)
	for i := range changes {
		c := &changes[i]
		for k := c.at; k < len(values); k++ {
			values[k] -= c.To - c.From
		}
	}
	flat := &Series{AtNs: f.parts.AtNs, Values: values}
	if len(values) < driftParts {
		return nil
	}
	var medians [driftParts]float64
	for i := range medians {
		medians[i] = flat.median(i*len(values)/driftParts, (i+1)*len(values)/driftParts)
	}
	for i := range medians {
		first, last := i*len(values)/driftParts, (i+1)*len(values)/driftParts-1
		medians[i] += f.trendAt(f.parts.AtNs[first]/2 + f.parts.AtNs[last]/2)
	}
	pairs := 0
	for i := range medians {
		for j := range i {
			switch {
			case medians[i] > medians[j]:
				pairs++
			case medians[i] < medians[j]:
				pairs--
			}
		}
	}
	tau := float64(pairs) / (driftParts * (driftParts - 1) / 2)
	d := &Drift{From: medianOf(medians[:driftParts/3]), To: medianOf(medians[driftParts-driftParts/3:])}
	if math.Abs(tau) < minTau || !f.matters(d.From, d.To) || math.Abs(d.To-d.From) < minScales*f.localScale() {
		return nil
	}
	return d
}

// localScale returns the scale of the noise between neighboring parts.
func (f *finder) localScale() float64 {
	values := f.parts.Values
	differences := make([]float64, 0, len(values))
	for i := 1; i < len(values); i++ {
		differences = append(differences, math.Abs(values[i]-values[i-1]))
	}
	return scaleOf(differences)
}
