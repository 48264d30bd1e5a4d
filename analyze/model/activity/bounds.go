package activity

import (
	"slices"
	"sort"
)

// A channel also counts operations without a recorded call: operations of the driver, lost calls, launches
// that were not recorded. Among the first n operations of the channel there are extra(n) such operations, and
// extra never falls. So operation n is the call at position n - extra(n).
//
// Each sample bounds extra from both sides. Operation n ended before the sample, so the call of operation n
// began before the sample, too: this gives a lower bound. A wait that returned before the sample
// proves that calls were done: this gives an upper bound. Lower bounds hold for all later operations,
// upper bounds for all earlier operations. Where the bounds meet is an anchor: all numbers up to the
// anchor are final.

// extraBounds bounds extra(counter).
type extraBounds struct {
	counter, least, most int64
	reachLeast           int64 // highest position up to the next entry by the lower bounds
	reachMost            int64 // highest position up to this entry by the upper bounds
}

const unbounded = int64(1) << 62

// numbering converts positions of calls to numbers of operations.
type numbering struct {
	list []extraBounds
	// nearLeast and nearMost are the entries of the last position of earliest and latest. Most positions follow the
	// one before.
	nearLeast, nearMost int
}

// add appends bounds for a counter that is not lower than the last one.
func (nb *numbering) add(counter, least, most int64) {
	if n := len(nb.list); n > 0 && nb.list[n-1].counter == counter {
		last := &nb.list[n-1]
		last.least, last.most = max(last.least, least), min(last.most, most)
		return
	}
	nb.list = append(nb.list, extraBounds{counter: counter, least: least, most: most})
}

// limit adds an upper bound for a counter that has an entry. It returns the lower bound of that entry.
func (nb *numbering) limit(counter, most int64) (least int64, ok bool) {
	i := nb.after(counter - 1)
	if i == len(nb.list) || nb.list[i].counter != counter {
		return 0, false
	}
	nb.list[i].most = min(nb.list[i].most, most)
	return nb.list[i].least, true
}

// startAt replaces the entries up to a counter by one with the value of extra.
func (nb *numbering) startAt(counter, extra int64) {
	later := nb.list[nb.after(counter):]
	kept := append(nb.list[:0], later...)
	nb.list = slices.Insert(kept, 0, extraBounds{counter: counter, least: extra, most: extra})
}

// after returns the index of the first entry above a counter.
func (nb *numbering) after(counter int64) int {
	return sort.Search(len(nb.list), func(i int) bool { return nb.list[i].counter > counter })
}

// close spreads lower bounds forward and upper bounds backward. It must be called before numbers.
func (nb *numbering) close() {
	most := unbounded
	for i := len(nb.list) - 1; i >= 0; i-- {
		most = min(most, nb.list[i].most)
		nb.list[i].most = most
	}
	least, reachLeast, reachMost := -unbounded, -unbounded, -unbounded
	for i := range nb.list {
		e := &nb.list[i]
		least = max(least, e.least)
		e.least = least
		next := unbounded
		if i+1 < len(nb.list) {
			next = nb.list[i+1].counter - 1
		}
		reachLeast = max(reachLeast, next-least)
		reachMost = max(reachMost, e.counter-e.most)
		e.reachLeast, e.reachMost = reachLeast, reachMost
	}
}

// seek is sort.Search for an index that is probably near, or a few indices after it.
func seek(n, near int, reached func(int) bool) int {
	const few = 4
	near = min(near, n)
	if near > 0 && reached(near-1) {
		return sort.Search(near-1, reached)
	}
	for end := min(near+few, n); near < end; near++ {
		if reached(near) {
			return near
		}
	}
	return near + sort.Search(n-near, func(i int) bool { return reached(near + i) })
}

// earliest returns the lowest number that the call at a position may have.
func (nb *numbering) earliest(position int64) int64 {
	i := seek(len(nb.list), nb.nearLeast, func(i int) bool { return nb.list[i].reachLeast >= position })
	nb.nearLeast = i
	if i == len(nb.list) {
		return unbounded
	}
	number := position + nb.list[i].least
	if i == 0 && number <= nb.list[0].counter {
		return 0 // nothing bounds the operations before the first sample
	}
	return max(nb.list[i].counter, number)
}

// latest returns the highest number that the call at a position may have. It returns unbounded if
// there is none.
func (nb *numbering) latest(position int64) int64 {
	i := seek(len(nb.list), nb.nearMost, func(i int) bool { return nb.list[i].reachMost >= position })
	nb.nearMost = i
	if i == len(nb.list) {
		return unbounded
	}
	before := -unbounded
	if i > 0 {
		before = nb.list[i-1].counter + 1
	}
	return max(before, position+nb.list[i].most)
}
