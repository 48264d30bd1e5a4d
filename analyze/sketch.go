package analyze

import (
	"math"
	"math/bits"
)

// sketch is a histogram of values that are not negative, in buckets that grow with the value: up to 127 each value has its own,
// beyond there are 64 for each power of two. A quantile read from it is off by less than 1/128 of its value. Its size depends on the
// range of the values, not on their number: 512 bytes per power of two that occurs, 29 KiB at most. Sketches can be merged.
type sketch struct {
	rows  [64 - sketchBits]*[sketchSlots]int64
	count int64
}

const (
	sketchBits  = 6
	sketchSlots = 1 << sketchBits
	// sketchErrorPct is what reports say of quantiles: 1/128, rounded up.
	sketchErrorPct = 0.8
)

func (s *sketch) add(v int64) {
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
	s.count++
}

func (s *sketch) merge(o *sketch) {
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
	s.count += o.count
}

// quantile returns the least value that at least a share q of the values do not exceed, 0 without values.
func (s *sketch) quantile(q float64) int64 {
	rank := max(1, int64(math.Ceil(q*float64(s.count))))
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

// durations sums up how long calls took, in ns.
type durations struct {
	sketch
	sumNs, minNs, maxNs int64
	mean, squares       float64 // Welford's: the sum of squared distances from the mean
}

func (d *durations) add(ns int64) {
	ns = max(0, ns)
	d.sketch.add(ns)
	d.sumNs = endOf(d.sumNs, ns)
	if d.count == 1 || ns < d.minNs {
		d.minNs = ns
	}
	d.maxNs = max(d.maxNs, ns)
	off := float64(ns) - d.mean
	d.mean += off / float64(d.count)
	d.squares += off * (float64(ns) - d.mean)
}

func (d *durations) merge(o *durations) {
	if o.count == 0 {
		return
	}
	if d.count == 0 || o.minNs < d.minNs {
		d.minNs = o.minNs
	}
	d.maxNs = max(d.maxNs, o.maxNs)
	n, m := float64(d.count), float64(o.count)
	off := o.mean - d.mean
	d.mean += off * m / (n + m)
	d.squares += o.squares + off*off*n*m/(n+m)
	d.sumNs = endOf(d.sumNs, o.sumNs)
	d.sketch.merge(&o.sketch)
}

// The values below are nil where no duration is known.

func (d *durations) total() any { return d.some(d.sumNs) }
func (d *durations) avg() any   { return d.some(roundInt(d.mean)) }
func (d *durations) least() any { return d.some(d.minNs) }
func (d *durations) most() any  { return d.some(d.maxNs) }

// at is a quantile; the extremes are exact.
func (d *durations) at(q float64) any { return d.some(max(d.minNs, min(d.maxNs, d.quantile(q)))) }

// stddev is that of a sample, as nsys has it.
func (d *durations) stddev() any {
	if d.count < 2 {
		return d.some(0)
	}
	return d.some(roundInt(math.Sqrt(d.squares / float64(d.count-1))))
}

func (d *durations) some(v int64) any {
	if d.count == 0 {
		return nil
	}
	return v
}

// estimated is what the durations would add up to if those of calls that were not timed were like the others; nil without any.
func (d *durations) estimated(calls int64) any {
	if d.count == 0 {
		return nil
	}
	return roundInt(float64(d.sumNs) + d.mean*float64(max(0, calls-d.count)))
}
