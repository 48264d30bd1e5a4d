package stats

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// Forecast is what a series of equally spaced values will be, and how far such forecasts
// were off in the part of it that was held back.
type Forecast struct {
	Trend
	line bool // a straight line did better than the last value
	// Next is the value at heldBack steps after the end.
	Next     int64
	HeldBack int
	// Mean absolute errors over the values held back, which only the others foretold: of
	// the line, and of taking it that nothing changes.
	lineError, SteadyError float64
}

// MinForecast is the shortest series that is forecast: a quarter of it is held back.
const MinForecast = 12

// NewForecast fits a line to the first three quarters of a series and tries it on the
// rest; false if the series is too short.
func NewForecast(series []int64) (f Forecast, ok bool) {
	f.Trend = NewTrend(series)
	n := len(series)
	if n < MinForecast {
		return f, false
	}
	f.HeldBack = n / 4
	fit := series[:n-f.HeldBack]
	slope, level := robustLine(fit)
	for i, v := range series[len(fit):] {
		f.lineError += math.Abs(float64(v)-(level+slope*float64(len(fit)+i))) / float64(f.HeldBack)
		f.SteadyError += math.Abs(float64(v)-float64(fit[len(fit)-1])) / float64(f.HeldBack)
	}
	f.line = f.lineError < f.SteadyError
	f.Next = series[n-1]
	if f.line {
		slope, level = robustLine(series)
		f.Next = max(0, units.RoundInt(level+slope*float64(n-1+f.HeldBack)))
	}
	return f, true
}

// robustLine fits value = level + slope*i: Theil-Sen, and the median of what is left.
func robustLine(series []int64) (slope, level float64) {
	slope = NewTrend(series).Slope
	rest := make([]float64, len(series))
	for i, v := range series {
		rest[i] = float64(v) - slope*float64(i)
	}
	slices.Sort(rest)
	return slope, Median(rest)
}

// Error is the mean absolute error of what the forecast rests on.
func (f *Forecast) Error() float64 {
	if f.line {
		return f.lineError
	}
	return f.SteadyError
}

// Direction says in a word how the series moved.
func (f *Forecast) Direction() string {
	switch {
	case f.Lasting():
		return "rising"
	case f.Tau >= 0.8 && f.Slope > 0:
		return "rose"
	case f.Tau <= -0.8 && f.Slope < 0:
		return "falling"
	}
	return "steady"
}
