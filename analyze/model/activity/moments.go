package activity

import "sort"

// moment is a sample of a channel with the time on the recording's clock at which its operation began.
// Where gpuNs is 0, only the counter is known.
type moment struct {
	counter, gpuNs, seenNs int64
	begin                  Interval
}

// moments has the samples of a channel since the last anchor, in order of their counter.
type moments []moment

// after returns the index of the first sample with a counter of at least n.
func (m moments) after(n int64) int {
	return sort.Search(len(m), func(i int) bool { return m[i].counter >= n })
}

// beginOf returns when operation n began, and whether a sample shows it. LoNs is 0 and HiNs is UnknownNs
// where no sample bounds the time.
func (m moments) beginOf(n int64) (begin Interval, sampled bool) { return m.beginAt(m.after(n), n) }

// beginNear is beginOf for an operation whose sample is probably near an index, or a few samples after it. It sets
// near.
func (m moments) beginNear(n int64, near *int) (begin Interval, sampled bool) {
	*near = seek(len(m), *near, func(i int) bool { return m[i].counter >= n })
	return m.beginAt(*near, n)
}

// beginAt is beginOf with the result of after.
func (m moments) beginAt(i int, n int64) (begin Interval, sampled bool) {
	begin = Interval{0, UnknownNs}
	if i < len(m) {
		if m[i].counter == n {
			return m[i].begin, m[i].gpuNs != 0
		}
		begin.HiNs = m[i].begin.HiNs
	}
	if i > 0 {
		// An operation may have begun before the read of this sample without being visible.
		begin.LoNs = m[i-1].begin.LoNs
	}
	return begin, false
}

// keepFrom drops the samples that no later operation needs: those below the last one up to counter.
func (m moments) keepFrom(counter int64) moments {
	i := max(0, m.after(counter+1)-1)
	return append(m[:0], m[i:]...)
}
