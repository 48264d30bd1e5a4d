package changepoint

import "math"

// findPeriod returns the time after which the values repeat, in ns, or 0. It is the first distance with nearly
// the highest autocorrelation of the ranks after their first zero. At least four repetitions must be in the series.
func findPeriod(s *Series) float64 {
	const minCorrelation, minRepeats = 0.5, 4
	n := len(s.Values)
	ranks := ranksOf(withoutLevel(s.Values))
	mean := float64(n+1) / 2
	correlation := func(lag int) float64 {
		sum := 0.0
		for i := lag; i < n; i++ {
			sum += (ranks[i] - mean) * (ranks[i-lag] - mean)
		}
		return sum / float64(n-lag)
	}
	list := make([]float64, n/minRepeats+1)
	best, isBelow := minCorrelation*correlation(0), false
	for lag := 1; lag < len(list); lag++ {
		c := correlation(lag)
		if isBelow = isBelow || c <= 0; isBelow {
			list[lag], best = c, max(best, c)
		}
	}
	// Multiples of a period have nearly the same correlation.
	const near = 0.85
	period := 0
	for lag := 2; lag+1 < len(list) && period == 0; lag++ {
		if list[lag] >= near*best && list[lag] >= list[lag+1] && list[lag] >= list[lag-1] {
			period = lag
		}
	}
	if period == 0 {
		return 0
	}
	// A distance of several periods gives a more exact period.
	repeats := n / 2 / period
	far := repeats * period
	best = 0
	for lag := repeats*period - repeats/2; lag <= repeats*period+repeats/2; lag++ {
		if c := correlation(lag); c > best {
			far, best = lag, c
		}
	}
	return float64(far) / float64(repeats) * float64(s.AtNs[n-1]-s.AtNs[0]) / float64(n-1)
}

// withoutLevel returns the values without their moving average over a quarter of them.
func withoutLevel(values []float64) []float64 {
	n := len(values)
	sums := make([]float64, n+1)
	for i, v := range values {
		sums[i+1] = sums[i] + v
	}
	list := make([]float64, n)
	for i, v := range values {
		from, to := max(0, i-n/8), min(n, i+n/8+1)
		list[i] = v - (sums[to]-sums[from])/float64(to-from)
	}
	return list
}

// withoutPattern returns the series without a pattern of a period: the median over all periods of the
// distance from the moving average, at each phase. This is the classical decomposition (Persons, 1919).
func (s *Series) withoutPattern(periodNs float64) *Series {
	n := len(s.Values)
	away := withoutLevel(s.Values)
	perPeriod := periodNs * float64(n-1) / float64(s.AtNs[n-1]-s.AtNs[0])
	phases := max(2, int(math.Round(perPeriod)))
	phaseOf := func(i int) int {
		_, part := math.Modf(float64(s.AtNs[i]-s.AtNs[0]) / periodNs)
		return min(phases-1, int(part*float64(phases)))
	}
	byPhase := make([][]float64, phases)
	for i := range n {
		k := phaseOf(i)
		byPhase[k] = append(byPhase[k], away[i])
	}
	medians := make([]float64, phases)
	for k := range medians {
		medians[k] = medianOf(byPhase[k])
	}
	list := &Series{AtNs: s.AtNs, Values: make([]float64, n)}
	for i, v := range s.Values {
		list.Values[i] = v - medians[phaseOf(i)]
	}
	return list
}
