package units

import "math"

// RoundUp rounds n, which is not negative, up to a multiple of unit.
func RoundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Percent returns part as a percentage of whole, or 0 if whole is 0.
func Percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// EndOfRange returns startNs+durNs. It treats a negative duration as 0 and saturates at the largest
// int64, because damaged files can contain invalid times.
func EndOfRange(startNs, durNs int64) int64 {
	if durNs <= 0 {
		return startNs
	}
	if startNs > math.MaxInt64-durNs {
		return math.MaxInt64
	}
	return startNs + durNs
}

// RoundInt rounds to the nearest int64. It saturates at the bounds of int64 and returns 0 for NaN.
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
