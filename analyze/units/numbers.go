package units

import "math"

func RoundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

func Percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// EndOf returns start+dur, where negative durations are none and a sum beyond the
// range stays inside it: both occur only in damaged files.
func EndOf(startNs, durNs int64) int64 {
	if durNs <= 0 {
		return startNs
	}
	if startNs > math.MaxInt64-durNs {
		return math.MaxInt64
	}
	return startNs + durNs
}

// RoundInt rounds to an int64, values out of its range to its bounds.
func RoundInt(v float64) int64 {
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(math.Round(v))
}
