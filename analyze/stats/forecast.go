package stats

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// Forecast extrapolates a series of equally spaced values. It also measures how wrong such
// forecasts were on the last quarter of the series, which the fit did not use.
type Forecast struct {
	Trend
	line bool // the straight line had a smaller error than the last value
	// Next is the forecast value HeldBack steps after the end.
	Next     int64
	HeldBack int // number of values that the fit did not use
	// lineError is the mean absolute error of the fitted line over the last quarter of the series.
	// SteadyError is that of the assumption that the value does not change.
	lineError, SteadyError float64
}

// MinForecastValues is the length of the shortest series that can be forecast. A quarter of it is
// held back.
const MinForecastValues = 12

// NewForecast fits a line to the first three quarters of a series and measures its error on the
// rest. It returns false if the series is too short.
func NewForecast(series []int64) (f Forecast, ok bool) {
	f.Trend = NewTrend(series)
	n := len(series)
	if n < MinForecastValues {
		return f, false
	}
	f.HeldBack = n / 4
	fit := series[:n-f.HeldBack]
	slope, level := fitRobustLine(fit)
	for i, v := range series[len(fit):] {
		f.lineError += math.Abs(float64(v)-(level+slope*float64(len(fit)+i))) / float64(f.HeldBack)
		f.SteadyError += math.Abs(float64(v)-float64(fit[len(fit)-1])) / float64(f.HeldBack)
	}
	f.line = f.lineError < f.SteadyError
	f.Next = series[n-1]
	if f.line {
		slope, level = fitRobustLine(series)
		f.Next = max(0, units.RoundInt(level+slope*float64(n-1+f.HeldBack)))
	}
	return f, true
}

// fitRobustLine fits value = level + slope*i: the Theil-Sen slope, and the median of the residuals.
func fitRobustLine(series []int64) (slope, level float64) {
	slope = NewTrend(series).Slope
	rest := make([]float64, len(series))
	for i, v := range series {
		rest[i] = float64(v) - slope*float64(i)
	}
	slices.Sort(rest)
	return slope, Median(rest)
}

// MeanAbsoluteError returns the mean absolute error of the chosen forecast.
func (f *Forecast) MeanAbsoluteError() float64 {
	if f.line {
		return f.lineError
	}
	return f.SteadyError
}

// Direction describes the movement of the series in one word.
func (f *Forecast) Direction() string {
	switch {
	case f.RisesThroughout():
		return "rising"
	case f.Tau >= 0.8 && f.Slope > 0:
		return "rose"
	case f.Tau <= -0.8 && f.Slope < 0:
		return "falling"
	}
	return "steady"
}
