package analyze

import (
	"math"
	"slices"
)

// forecast is what a series of equally spaced values will be, and how far such forecasts
// were off in the part of it that was held back.
type forecast struct {
	trend
	line bool // a straight line did better than the last value
	// next is the value at heldBack steps after the end.
	next     int64
	heldBack int
	// Mean absolute errors over the values held back, which only the others foretold: of
	// the line, and of taking it that nothing changes.
	lineError, steadyError float64
}

// minForecast is the shortest series that is forecast: a quarter of it is held back.
const minForecast = 12

// newForecast fits a line to the first three quarters of a series and tries it on the
// rest; false if the series is too short.
func newForecast(series []int64) (f forecast, ok bool) {
	f.trend = newTrend(series)
	n := len(series)
	if n < minForecast {
		return f, false
	}
	f.heldBack = n / 4
	fit := series[:n-f.heldBack]
	slope, level := robustLine(fit)
	for i, v := range series[len(fit):] {
		f.lineError += math.Abs(float64(v)-(level+slope*float64(len(fit)+i))) / float64(f.heldBack)
		f.steadyError += math.Abs(float64(v)-float64(fit[len(fit)-1])) / float64(f.heldBack)
	}
	f.line = f.lineError < f.steadyError
	f.next = series[n-1]
	if f.line {
		slope, level = robustLine(series)
		f.next = max(0, roundInt(level+slope*float64(n-1+f.heldBack)))
	}
	return f, true
}

// robustLine fits value = level + slope*i: Theil-Sen, and the median of what is left.
func robustLine(series []int64) (slope, level float64) {
	slope = newTrend(series).slope
	rest := make([]float64, len(series))
	for i, v := range series {
		rest[i] = float64(v) - slope*float64(i)
	}
	slices.Sort(rest)
	return slope, median(rest)
}

// error is the mean absolute error of what the forecast rests on.
func (f *forecast) error() float64 {
	if f.line {
		return f.lineError
	}
	return f.steadyError
}

// direction says in a word how the series moved.
func (f *forecast) direction() string {
	switch {
	case f.lasting():
		return "rising"
	case f.tau >= 0.8 && f.slope > 0:
		return "rose"
	case f.tau <= -0.8 && f.slope < 0:
		return "falling"
	}
	return "steady"
}
