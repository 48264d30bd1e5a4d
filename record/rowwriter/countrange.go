//go:build linux

package rowwriter

import "math"

// countRange bounds the number of collectives of a communicator before the recording.
type countRange struct {
	low, high        int64
	agreed, differed int // readings that allow a number in the range, and others
}

// newCountRange returns the range that allows every number.
func newCountRange() countRange { return countRange{low: math.MinInt64, high: math.MaxInt64} }

// narrow adds the bounds of a reading. The lower bound of a reading is always right. Upper bounds are wrong if a group
// of operations began before the recording, so a lower bound above them replaces them.
func (r *countRange) narrow(low, high int64) {
	switch {
	case low > r.high:
		*r = countRange{low: low, high: high, agreed: 1}
	case high < r.low:
		r.differed++
	default:
		r.low, r.high = max(r.low, low), min(r.high, high)
		r.agreed++
	}
}

// number returns the only number in the range. ok is false if there are several, or most readings do not allow it.
func (r *countRange) number() (n int64, ok bool) {
	return r.low, r.low == r.high && r.low >= 0 && r.differed <= r.agreed
}
