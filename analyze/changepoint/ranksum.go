package changepoint

import "math"

// split is a division of the samples from..to into two levels: from..at and at..to.
type split struct {
	from, at, to int
	// z is the distance of the rank sum from its mean, in standard deviations.
	z float64
	// logChance is the natural logarithm of a bound of the chance that a series without a change has such
	// a rank sum at this split. weigh sets it.
	logChance float64
	// before and after are the medians of the levels. weigh sets them.
	before, after float64
}

// minLevel is the smallest number of samples of a level.
const minLevel = 5

// rankSums has the sums of the ranks of a series, and of their squares, up to each sample.
type rankSums struct{ sums, squares []float64 }

func newRankSums(values []float64) *rankSums {
	ranks := ranksOf(values)
	r := &rankSums{sums: make([]float64, len(ranks)+1), squares: make([]float64, len(ranks)+1)}
	for i, rank := range ranks {
		r.sums[i+1], r.squares[i+1] = r.sums[i]+rank, r.squares[i]+rank*rank
	}
	return r
}

// best returns the split of an interval with the most extreme rank sum. It returns false if the interval is
// too short or has equal values only.
func (r *rankSums) best(from, to int) (best split, found bool) {
	best = split{from: from, to: to}
	for at := from + minLevel; at <= to-minLevel; at++ {
		if z := r.distance(from, at, to); z > best.z {
			best.z, best.at, found = z, at, true
		}
	}
	return best, found
}

// splitAt returns the split at a known place.
func (r *rankSums) splitAt(from, at, to int) split {
	return split{from: from, at: at, to: to, z: r.distance(from, at, to)}
}

// distance returns how far the sum of the ranks of the first samples of an interval is from its mean over all
// orders of the ranks, in standard deviations.
func (r *rankSums) distance(from, at, to int) float64 {
	first, second, all := float64(at-from), float64(to-at), float64(to-from)
	sum := r.sums[to] - r.sums[from]
	spread := r.squares[to] - r.squares[from] - sum*sum/all
	variance := first * second / (all * (all - 1)) * spread
	if variance <= 0 {
		return 0
	}
	return math.Abs(r.sums[at]-r.sums[from]-first*sum/all) / math.Sqrt(variance)
}

// logChanceOf returns the logarithm of the chance of the rank sum of a split or of one farther from its mean.
// If the two levels have no value in common, the exact chance is known, and it is smaller.
func logChanceOf(values []float64, s *split, dependence float64) float64 {
	chance := logNormalTail(s.z / math.Sqrt(dependence))
	lowA, highA := extremes(values[s.from:s.at])
	lowB, highB := extremes(values[s.at:s.to])
	if highA < lowB || highB < lowA {
		chance = min(chance, math.Ln2-logBinomial(float64(s.at-s.from)/dependence, float64(s.to-s.at)/dependence))
	}
	return chance
}

func extremes(values []float64) (low, high float64) {
	low, high = values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// logNormalTail returns the logarithm of the chance that a standard normal value is farther than z from 0.
func logNormalTail(z float64) float64 {
	if p := math.Erfc(z / math.Sqrt2); p > 1e-300 {
		return math.Log(p)
	}
	return -z*z/2 - math.Log(z*math.Sqrt(math.Pi/2))
}

// logBinomial returns the logarithm of the number of ways to choose a of a+b things.
func logBinomial(a, b float64) float64 {
	all, _ := math.Lgamma(a + b + 1)
	first, _ := math.Lgamma(a + 1)
	second, _ := math.Lgamma(b + 1)
	return all - first - second
}
