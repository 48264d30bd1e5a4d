package hang

import (
	"sort"

	"github.com/gpurec/gpurec/analyze/query"
)

// activity is in which parts of a window something happened.
type activity [4]uint64

const activityParts = 256

func (a *activity) mark(p *windowParts, fromNs, toNs int64) {
	first, last := p.of(fromNs), p.of(toNs)
	for i := first; i <= last; i++ {
		a[i/64] |= 1 << (i % 64)
	}
}

// windowParts are the parts of a window. It finds the one of a time that is near the time before without a division.
type windowParts struct {
	window query.Window
	begins [activityParts + 1]int64 // the last one is the window's end
	part   int                      // that was asked for last
}

func newWindowParts(w query.Window) *windowParts {
	p := &windowParts{window: w}
	for i := range p.begins {
		p.begins[i] = w.FromNs + int64(sort.Search(int(w.DurNs()), func(ns int) bool { return partOf(w, w.FromNs+int64(ns)) >= i }))
	}
	return p
}

func (p *windowParts) of(ns int64) int {
	if ns < p.begins[p.part] || ns >= p.begins[p.part+1] {
		p.part = partOf(p.window, ns)
	}
	return p.part
}

func partOf(w query.Window, ns int64) int {
	part := float64(ns-w.FromNs) / float64(max(1, w.DurNs())) * activityParts
	return int(max(0, min(part, activityParts-1)))
}

// longestPause is the longest time between two parts with activity, to within a part or two.
func (a *activity) longestPause(w query.Window) int64 {
	last, longest := -1, 0
	for i := range activityParts {
		if a[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if last >= 0 {
			longest = max(longest, i-last-1)
		}
		last = i
	}
	return int64(float64(longest) * float64(w.DurNs()) / activityParts)
}
