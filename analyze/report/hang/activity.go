package hang

import (
	"sort"

	"github.com/gpurec/gpurec/analyze/query"
)

// threadActivity is a bit set of the parts of a window in which a thread was in a call.
type threadActivity [4]uint64

// windowPartCount is the number of parts of a window.
const windowPartCount = 256

// markActive adds all parts between two times, Unix ns.
func (a *threadActivity) markActive(p *windowParts, fromNs, toNs int64) {
	first, last := p.partAt(fromNs), p.partAt(toNs)
	for i := first; i <= last; i++ {
		a[i/64] |= 1 << (i % 64)
	}
}

// windowParts maps a time to a part of the window. It needs no division for a time in the same part
// as the previous time.
type windowParts struct {
	window query.Window
	begins [windowPartCount + 1]int64 // start of each part, Unix ns; the last value is the window's end
	part   int                        // result of the last partAt
}

// newWindowParts returns the parts of window w.
func newWindowParts(w query.Window) *windowParts {
	p := &windowParts{window: w}
	for i := range p.begins {
		p.begins[i] = w.FromNs + int64(
			sort.Search(int(w.DurNs()), func(ns int) bool { return computePart(w, w.FromNs+int64(ns)) >= i }),
		)
	}
	return p
}

// partAt returns the part of a time, Unix ns.
func (p *windowParts) partAt(ns int64) int {
	if ns < p.begins[p.part] || ns >= p.begins[p.part+1] {
		p.part = computePart(p.window, ns)
	}
	return p.part
}

// computePart computes the part of a time, Unix ns. Times outside the window get the nearest part.
func computePart(w query.Window, ns int64) int {
	part := float64(ns-w.FromNs) / float64(max(1, w.DurNs())) * windowPartCount
	return int(max(0, min(part, windowPartCount-1)))
}

// longestPause returns the longest time between two active parts, ns. It is accurate to two parts.
func (a *threadActivity) longestPause(w query.Window) int64 {
	last, longest := -1, 0
	for i := range windowPartCount {
		if a[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if last >= 0 {
			longest = max(longest, i-last-1)
		}
		last = i
	}
	return int64(float64(longest) * float64(w.DurNs()) / windowPartCount)
}
