package stats

import (
	"math"
	"math/bits"

	"github.com/gpurec/gpurec/analyze/units"
)

// QuantileSketch is a histogram of non-negative values with buckets that grow with the value.
// Values up to 127 have one bucket each; above, each power of two has 64 buckets. A quantile is off
// by less than 1/128 of its value. The size depends on the range of the values, not on their
// number. It is 512 bytes for each power of two in use, at most 29 KiB. Sketches can be merged.
type QuantileSketch struct {
	rows  [64 - sketchBucketBits]*[sketchBucketsPerPower]int64
	Count int64 // number of values in the sketch
}

const (
	sketchBucketBits      = 6
	sketchBucketsPerPower = 1 << sketchBucketBits
	// SketchMaxErrorPct is the error bound of quantiles in reports: 1/128, rounded up.
	SketchMaxErrorPct = 0.8
)

func (s *QuantileSketch) addValue(v int64) {
	v = max(0, v)
	row := max(0, bits.Len64(uint64(v))-sketchBucketBits)
	slot := v
	if row > 0 {
		slot = v>>(row-1) - sketchBucketsPerPower
	}
	if s.rows[row] == nil {
		s.rows[row] = new([sketchBucketsPerPower]int64)
	}
	s.rows[row][slot]++
	s.Count++
}

func (s *QuantileSketch) mergeSketch(o *QuantileSketch) {
	for row, counts := range o.rows {
		if counts == nil {
			continue
		}
		if s.rows[row] == nil {
			s.rows[row] = new([sketchBucketsPerPower]int64)
		}
		for slot, n := range counts {
			s.rows[row][slot] += n
		}
	}
	s.Count += o.Count
}

// quantile returns the smallest value that a share q of the values do not exceed. It returns 0
// without values.
func (s *QuantileSketch) quantile(q float64) int64 {
	rank := max(1, int64(math.Ceil(q*float64(s.Count))))
	for row, counts := range s.rows {
		if counts == nil {
			continue
		}
		for slot, n := range counts {
			if rank -= n; n > 0 && rank <= 0 {
				return bucketMiddle(row, int64(slot))
			}
		}
	}
	return 0
}

// bucketMiddle returns the value that represents a bucket.
func bucketMiddle(row int, slot int64) int64 {
	if row == 0 {
		return slot
	}
	return (sketchBucketsPerPower+slot)<<(row-1) + (1<<(row-1)-1)/2
}

// Durations collects durations in ns: their count, sum, extremes, quantiles and variance.
type Durations struct {
	QuantileSketch
	SumNs, MinNs, MaxNs int64
	// Welford's algorithm: Squares is the sum of squared distances from the mean
	Mean, Squares float64
}

// Add adds a duration in ns. A negative one counts as 0.
func (d *Durations) Add(ns int64) {
	ns = max(0, ns)
	d.QuantileSketch.addValue(ns)
	d.SumNs = units.EndOfRange(d.SumNs, ns)
	if d.Count == 1 || ns < d.MinNs {
		d.MinNs = ns
	}
	d.MaxNs = max(d.MaxNs, ns)
	off := float64(ns) - d.Mean
	d.Mean += off / float64(d.Count)
	d.Squares += off * (float64(ns) - d.Mean)
}

// Merge adds all durations of o.
func (d *Durations) Merge(o *Durations) {
	if o.Count == 0 {
		return
	}
	if d.Count == 0 || o.MinNs < d.MinNs {
		d.MinNs = o.MinNs
	}
	d.MaxNs = max(d.MaxNs, o.MaxNs)
	n, m := float64(d.Count), float64(o.Count)
	off := o.Mean - d.Mean
	d.Mean += off * m / (n + m)
	d.Squares += o.Squares + off*off*n*m/(n+m)
	d.SumNs = units.EndOfRange(d.SumNs, o.SumNs)
	d.QuantileSketch.mergeSketch(&o.QuantileSketch)
}

// The methods of Durations below return an int64 in ns, or nil without durations.

// Total returns the sum of the durations.
func (d *Durations) Total() any { return d.valueOrNil(d.SumNs) }

// Average returns the mean duration.
func (d *Durations) Average() any { return d.valueOrNil(units.RoundInt(d.Mean)) }

// Shortest returns the smallest duration.
func (d *Durations) Shortest() any { return d.valueOrNil(d.MinNs) }

// Longest returns the largest duration.
func (d *Durations) Longest() any { return d.valueOrNil(d.MaxNs) }

// Quantile returns the quantile q, 0 to 1. The extremes are exact.
func (d *Durations) Quantile(q float64) any {
	return d.valueOrNil(max(d.MinNs, min(d.MaxNs, d.quantile(q))))
}

// Stddev returns the sample standard deviation, as Nsight Systems computes it.
func (d *Durations) Stddev() any {
	if d.Count < 2 {
		return d.valueOrNil(0)
	}
	return d.valueOrNil(units.RoundInt(math.Sqrt(d.Squares / float64(d.Count-1))))
}

func (d *Durations) valueOrNil(v int64) any {
	if d.Count == 0 {
		return nil
	}
	return v
}

// EstimatedTotal returns the sum for all calls, if the calls without a duration take as long as the
// others on average. It returns nil without durations.
func (d *Durations) EstimatedTotal(calls int64) any {
	if d.Count == 0 {
		return nil
	}
	return units.RoundInt(float64(d.SumNs) + d.Mean*float64(max(0, calls-d.Count)))
}
