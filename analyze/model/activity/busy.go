package activity

import "slices"

// spans is a set of times with at most maxIntervals intervals. When it is full, it joins close
// intervals if mayGrow is true, and drops short intervals otherwise.
type spans struct {
	list     []Interval
	mayGrow  bool
	minNs    int64 // joined intervals were closer than this, dropped ones shorter
	unsorted bool
}

// add adds an interval.
func (s *spans) add(i Interval) {
	if i.HiNs <= i.LoNs {
		return
	}
	if n := len(s.list); n > 0 {
		last := &s.list[n-1]
		if i.LoNs >= last.LoNs && i.LoNs <= last.HiNs {
			last.HiNs = max(last.HiNs, i.HiNs)
			return
		}
		s.unsorted = s.unsorted || i.LoNs < last.LoNs
	}
	s.list = append(s.list, i)
	for len(s.list) > maxIntervals {
		s.join()
		if len(s.list) > maxIntervals/2 {
			s.minNs = max(1000, 2*s.minNs)
			s.coarsen()
		}
	}
}

// join sorts the intervals, and joins those that overlap.
func (s *spans) join() {
	if !s.unsorted {
		return
	}
	slices.SortFunc(s.list, func(a, b Interval) int { return int(max(-1, min(1, a.LoNs-b.LoNs))) })
	s.list, s.unsorted = joinSorted(s.list, 0), false
}

// coarsen joins intervals that are closer than minNs, or drops intervals that are shorter.
func (s *spans) coarsen() {
	if s.mayGrow {
		s.list = joinSorted(s.list, s.minNs)
		return
	}
	s.list = slices.DeleteFunc(s.list, func(i Interval) bool { return i.WidthNs() < s.minNs })
}

// joinSorted joins sorted intervals that are at most apartNs apart.
func joinSorted(list []Interval, apartNs int64) []Interval {
	joined := list[:0]
	for _, i := range list {
		if n := len(joined); n > 0 && i.LoNs <= joined[n-1].HiNs+apartNs {
			joined[n-1].HiNs = max(joined[n-1].HiNs, i.HiNs)
			continue
		}
		joined = append(joined, i)
	}
	return joined
}

// lengthNs returns the time in the set.
func (s *spans) lengthNs() (ns int64) {
	s.join()
	for _, i := range s.list {
		ns += i.WidthNs()
	}
	return ns
}

// busyTimes has the times in which operations certainly ran, and the times in which operations may have run.
type busyTimes struct{ certain, possible spans }

func newBusyTimes() *busyTimes { return &busyTimes{possible: spans{mayGrow: true}} }

// add adds the times of an operation.
func (b *busyTimes) add(certain, possible Interval) {
	b.certain.add(certain)
	b.possible.add(possible)
}

// busyInterval returns the time in which an operation may have run. An operation with an unknown end may have
// run until endNs.
func (w *Operation) busyInterval(endNs int64) Interval {
	busy := Interval{w.Call.StartNs, endNs}
	if w.StartQuality >= Bounded {
		busy.LoNs = w.Start.LoNs
	}
	if w.EndQuality >= Bounded {
		busy.HiNs = w.End.HiNs
	}
	return busy
}

// certainInterval returns the time in which an operation certainly ran. The interval may be empty.
func (w *Operation) certainInterval() Interval {
	if w.StartQuality < Bounded || w.EndQuality < Bounded {
		return Interval{}
	}
	return Interval{w.Start.HiNs, w.End.LoNs}
}

// clip returns the part of an interval in a window.
func (i Interval) clip(w Window) Interval {
	return Interval{max(i.LoNs, w.FromNs), min(i.HiNs, w.ToNs)}
}

// isEmpty reports whether no time was added.
func (b *busyTimes) isEmpty() bool { return len(b.certain.list)+len(b.possible.list) == 0 }

// addTimes adds the times of another channel or stream.
func (b *busyTimes) addTimes(o *busyTimes) {
	for _, i := range o.possible.list {
		b.possible.add(i)
	}
	for _, i := range o.certain.list {
		b.certain.add(i)
	}
}

// bounds returns the bounds of the busy time, in ns.
func (b *busyTimes) bounds() Interval {
	return Interval{b.certain.lengthNs(), b.possible.lengthNs()}
}
