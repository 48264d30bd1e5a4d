package stats

import (
	"math"
	"math/bits"

	"github.com/gpurec/gpurec/analyze/units"
)

// Sketch is a histogram of values that are not negative, in buckets that grow with the value: up to
// 127 each value has its own, beyond there are 64 for each power of two. A quantile read from it is
// off by less than 1/128 of its value. Its size depends on the range of the values, not on their
// number: 512 bytes per power of two that occurs, 29 KiB at most. Sketches can be merged.
type Sketch struct {
	rows  [64 - sketchBits]*[sketchSlots]int64
	Count int64
}

const (
	sketchBits  = 6
	sketchSlots = 1 << sketchBits
	// SketchErrorPct is what reports say of quantiles: 1/128, rounded up.
	SketchErrorPct = 0.8
)

func (s *Sketch) add(v int64) {
	v = max(0, v)
	row := max(0, bits.Len64(uint64(v))-sketchBits)
	slot := v
	if row > 0 {
		slot = v>>(row-1) - sketchSlots
	}
	if s.rows[row] == nil {
		s.rows[row] = new([sketchSlots]int64)
	}
	s.rows[row][slot]++
	s.Count++
}

func (s *Sketch) merge(o *Sketch) {
	for row, counts := range o.rows {
		if counts == nil {
			continue
		}
		if s.rows[row] == nil {
			s.rows[row] = new([sketchSlots]int64)
		}
		for slot, n := range counts {
			s.rows[row][slot] += n
		}
	}
	s.Count += o.Count
}

// quantile returns the least value that at least a share q of the values do not exceed, 0 without values.
func (s *Sketch) quantile(q float64) int64 {
	rank := max(1, int64(math.Ceil(q*float64(s.Count))))
	for row, counts := range s.rows {
		if counts == nil {
			continue
		}
		for slot, n := range counts {
			if rank -= n; n > 0 && rank <= 0 {
				return middle(row, int64(slot))
			}
		}
	}
	return 0
}

// middle is the value that stands for those of a bucket.
func middle(row int, slot int64) int64 {
	if row == 0 {
		return slot
	}
	return (sketchSlots+slot)<<(row-1) + (1<<(row-1)-1)/2
}

// Durations sums up how long calls took, in ns.
type Durations struct {
	Sketch
	SumNs, MinNs, MaxNs int64
	Mean, Squares       float64 // Welford's: the sum of squared distances from the mean
}

func (d *Durations) Add(ns int64) {
	ns = max(0, ns)
	d.Sketch.add(ns)
	d.SumNs = units.EndOf(d.SumNs, ns)
	if d.Count == 1 || ns < d.MinNs {
		d.MinNs = ns
	}
	d.MaxNs = max(d.MaxNs, ns)
	off := float64(ns) - d.Mean
	d.Mean += off / float64(d.Count)
	d.Squares += off * (float64(ns) - d.Mean)
}

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
	d.SumNs = units.EndOf(d.SumNs, o.SumNs)
	d.Sketch.merge(&o.Sketch)
}

// The values below are nil where no duration is known.

func (d *Durations) Total() any { return d.some(d.SumNs) }
func (d *Durations) Avg() any   { return d.some(units.RoundInt(d.Mean)) }
func (d *Durations) Least() any { return d.some(d.MinNs) }
func (d *Durations) Most() any  { return d.some(d.MaxNs) }

// At is a quantile; the extremes are exact.
func (d *Durations) At(q float64) any { return d.some(max(d.MinNs, min(d.MaxNs, d.quantile(q)))) }

// Stddev is that of a sample, as nsys has it.
func (d *Durations) Stddev() any {
	if d.Count < 2 {
		return d.some(0)
	}
	return d.some(units.RoundInt(math.Sqrt(d.Squares / float64(d.Count-1))))
}

func (d *Durations) some(v int64) any {
	if d.Count == 0 {
		return nil
	}
	return v
}

// Estimated is what the durations would add up to if those of calls that were not timed were like
// the others; nil without any.
func (d *Durations) Estimated(calls int64) any {
	if d.Count == 0 {
		return nil
	}
	return units.RoundInt(float64(d.SumNs) + d.Mean*float64(max(0, calls-d.Count)))
}
