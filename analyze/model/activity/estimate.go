package activity

import "math"

// Estimate is the mean duration of works. Its quality is Estimated, Bounded if only bounds are known, or
// Unknown.
type Estimate struct {
	MeanNs, ErrorNs float64 // ErrorNs is the standard error, or a quarter of the distance of the bounds
	Quality         Quality
	of              durationKey
}

// Errors of means that the least squares do not show.
const (
	// modelError is the relative standard error of other means: works may overlap a little.
	modelError = 0.01
	// sparseError is the relative standard error of a mean that follows from sums over several works, for
	// example because a kernel begins before the one before it ends. On an H200, the means of CUPTI are
	// within two such errors, plus those of the least squares, for 50 of 54 costly kernels (auto).
	sparseError = 0.04
	// aloneShare is the share of works whose own duration is measured from which this error does not apply.
	aloneShare = 0.3
	// boundSlack is how far durations of equal works may be above the lowest bounds.
	boundSlack = 1.2
)

// EstimateOf returns the duration of works of a kind with a label in a process.
func (a *Activity) EstimateOf(pid int32, op Op, label int32) Estimate {
	d := a.MeanOf(pid, op, label)
	if d == nil {
		return Estimate{}
	}
	e := Estimate{MeanNs: d.MeanNs, ErrorNs: d.ErrorNs, Quality: Estimated, of: durationKey{pid, labelKey{op, label}}}
	switch {
	case d.IsLimited:
		lowNs, highNs := d.MeanNs-2*d.ErrorNs, boundSlack*(d.MeanNs+2*d.ErrorNs)
		e.MeanNs, e.ErrorNs, e.Quality = (lowNs+highNs)/2, (highNs-lowNs)/4, Bounded
	case float64(d.Alone) < aloneShare*float64(d.Works):
		e.ErrorNs += sparseError * e.MeanNs
	default:
		e.ErrorNs += modelError * e.MeanNs
	}
	return e
}

// TimeSum sums up GPU times of works. Errors of works with one label add up, errors of different labels are
// independent, and bounds add up. The zero value is empty.
type TimeSum struct {
	TotalNs        float64
	Works, Unknown float64                 // works with and without an estimate
	labels         map[durationKey]float64 // sums of standard errors
	boundedNs      float64                 // part of TotalNs
	boundsNs       float64                 // half of the distance of the bounds of that part
}

// Add adds works with the same estimate.
func (s *TimeSum) Add(e Estimate, works float64) {
	switch {
	case works <= 0:
		return
	case e.Quality == Unknown:
		s.Unknown += works
		return
	case s.labels == nil:
		s.labels = make(map[durationKey]float64)
	}
	ns := works * e.MeanNs
	s.TotalNs += ns
	s.Works += works
	if e.Quality == Bounded {
		s.boundedNs += ns
		s.boundsNs += 2 * works * e.ErrorNs
		return
	}
	s.labels[e.of] += works * e.ErrorNs
}

// Merge adds another sum.
func (s *TimeSum) Merge(o *TimeSum) {
	if s.labels == nil {
		s.labels = make(map[durationKey]float64)
	}
	s.TotalNs += o.TotalNs
	s.Works += o.Works
	s.Unknown += o.Unknown
	s.boundedNs += o.boundedNs
	s.boundsNs += o.boundsNs
	for label, ns := range o.labels {
		s.labels[label] += ns
	}
}

// ErrorNs returns two standard errors of the estimated times, plus half the distance of the bounds of the
// others.
func (s *TimeSum) ErrorNs() float64 {
	squares := 0.0
	for _, ns := range s.labels {
		squares += ns * ns
	}
	return 2*math.Sqrt(squares) + s.boundsNs
}

// Quality returns Bounded if only bounds of more than half of the time are known, Estimated otherwise, and
// Unknown without a time.
func (s *TimeSum) Quality() Quality {
	switch {
	case s.Works == 0:
		return Unknown
	case 2*s.boundedNs > s.TotalNs:
		return Bounded
	}
	return Estimated
}
