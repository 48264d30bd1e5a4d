package activity

import (
	"maps"
	"math"
	"slices"
)

// Estimate is the mean duration of operations. Its quality is Estimated, Bounded if only bounds are known, or
// Unknown.
type Estimate struct {
	MeanNs, ErrorNs float64 // ErrorNs is the standard error, or a quarter of the distance of the bounds
	Quality         Quality
	IsShared        bool // Quality is Unknown for the reason of Duration.IsShared
	of              durationKey
}

// Errors of means that the least squares do not show. They were fitted to the recordings of an H200 with
// which docs/benchmarks.md compares GPU times, so other programs may need larger ones.
const (
	// modelError is the relative standard error of other means: operations may overlap a little.
	modelError = 0.01
	// sparseError is the relative standard error of a mean that follows from sums over several operations, for
	// example because a kernel begins before the one before it ends. On an H200, the means of CUPTI are
	// within two such errors, plus those of the least squares, for 50 of 54 costly kernels (auto).
	sparseError = 0.04
	// aloneShare is the share of operations whose own duration is measured from which this error does not apply.
	aloneShare = 0.3
	// boundSlack is how far durations of equal operations may be above the lowest bounds.
	boundSlack = 1.2
)

// EstimateOf returns the duration of operations of a kind with a label in a process.
func (a *Activity) EstimateOf(pid int32, op Op, label int32) Estimate {
	d := a.MeanOf(pid, op, label)
	if d == nil {
		return Estimate{IsShared: a.shared[durationKey{pid, labelKey{op, label}}]}
	}
	return d.Estimate()
}

// Estimate returns the mean with errors that the least squares do not show. Its quality is Unknown without a mean.
func (d *Duration) Estimate() Estimate {
	if !d.IsEstimated {
		return Estimate{IsShared: d.IsShared}
	}
	e := Estimate{
		MeanNs: d.MeanNs, ErrorNs: d.ErrorNs, Quality: Estimated, of: durationKey{d.Pid, labelKey{d.Op, d.Label}},
	}
	switch {
	case d.IsLimited:
		lowNs, highNs := d.MeanNs-2*d.ErrorNs, boundSlack*(d.MeanNs+2*d.ErrorNs)
		e.MeanNs, e.ErrorNs, e.Quality = (lowNs+highNs)/2, (highNs-lowNs)/4, Bounded
	case float64(d.Alone) < aloneShare*float64(d.Operations):
		e.ErrorNs += sparseError * e.MeanNs
	default:
		e.ErrorNs += modelError * e.MeanNs
	}
	return e
}

// TimeSum sums up GPU times of operations. Errors of operations with one label add up, errors of different labels are
// independent, and bounds add up. The sums are integers, so they do not depend on the order of their terms.
// The zero value is empty.
type TimeSum struct {
	totalPs, boundedPs  int64                 // time of all operations, and of those with bounds only, ps
	boundsPs            int64                 // half of the distance of the bounds of the latter, ps
	operations, unknown int64                 // operations with and without an estimate, in thousandths
	shared              int64                 // operations whose Estimate.IsShared is true, in thousandths
	labels              map[durationKey]int64 // sums of standard errors, ps
}

// perThousand returns 1000 times a number, rounded.
func perThousand(n float64) int64 { return int64(math.Round(1000 * n)) }

// Add adds operations with the same estimate.
func (s *TimeSum) Add(e Estimate, operations float64) {
	switch {
	case operations <= 0:
		return
	case e.Quality == Unknown:
		s.unknown += perThousand(operations)
		if e.IsShared {
			s.shared += perThousand(operations)
		}
		return
	case s.labels == nil:
		s.labels = make(map[durationKey]int64)
	}
	s.totalPs += perThousand(operations * e.MeanNs)
	s.operations += perThousand(operations)
	if e.Quality == Bounded {
		s.boundedPs += perThousand(operations * e.MeanNs)
		s.boundsPs += perThousand(2 * operations * e.ErrorNs)
		return
	}
	s.labels[e.of] += perThousand(operations * e.ErrorNs)
}

// Merge adds another sum.
func (s *TimeSum) Merge(o *TimeSum) {
	if s.labels == nil {
		s.labels = make(map[durationKey]int64)
	}
	s.totalPs += o.totalPs
	s.boundedPs += o.boundedPs
	s.boundsPs += o.boundsPs
	s.operations += o.operations
	s.unknown += o.unknown
	s.shared += o.shared
	for label, ps := range o.labels {
		s.labels[label] += ps
	}
}

// TotalNs returns the time of all operations with an estimate.
func (s *TimeSum) TotalNs() float64 { return float64(s.totalPs) / 1000 }

// Operations returns the number of operations with an estimate.
func (s *TimeSum) Operations() float64 { return float64(s.operations) / 1000 }

// Unknown returns the number of operations without an estimate.
func (s *TimeSum) Unknown() float64 { return float64(s.unknown) / 1000 }

// Shared returns the number of operations without an estimate because kernels of other streams filled the GPU at the
// same time.
func (s *TimeSum) Shared() float64 { return float64(s.shared) / 1000 }

// AllNs returns TotalNs if it is the time of at least three quarters of the operations, and 0 otherwise: shares in it
// would say nothing.
func (s *TimeSum) AllNs() float64 {
	if s.unknown > (s.operations+s.unknown)/4 {
		return 0
	}
	return s.TotalNs()
}

// ErrorNs returns two standard errors of the estimated times, plus half the distance of the bounds of the
// others.
func (s *TimeSum) ErrorNs() float64 {
	squares := 0.0
	for _, ps := range slices.Sorted(maps.Values(s.labels)) {
		squares += float64(ps) * float64(ps)
	}
	return (2*math.Sqrt(squares) + float64(s.boundsPs)) / 1000
}

// Quality returns Bounded if only bounds of more than half of the time are known, Estimated otherwise, and
// Unknown without a time.
func (s *TimeSum) Quality() Quality {
	switch {
	case s.operations == 0:
		return Unknown
	case s.boundedPs > s.totalPs-s.boundedPs:
		return Bounded
	}
	return Estimated
}
