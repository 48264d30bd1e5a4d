package ranksteps

import (
	"cmp"
	"maps"
	"slices"
)

// mark is a collective of a communicator.
type mark struct {
	sequence, startNs int64
	key               uint64
	waited            bool // the process waited for the GPU since the collective before
}

// marker selects the collectives at which steps begin.
type marker struct {
	key    uint64
	waited bool  // only those with mark.waited
	window int64 // if not 0, every window-th collective instead
}

// Limits of the search for steps.
const (
	leastMarks     = 32   // steps of a communicator, below which there are none
	leastCoverage  = 0.9  // of the time in steps that are about as long as their neighbors
	usualLength    = 1.5  // times the median of neighbors, up to which a step is about as long
	neighbors      = 15   // steps that are compared
	mostPauses     = 100  // one of so many steps may last much longer
	maxMarkers     = 64   // distinct operations that are tried
	leastPeriodic  = 0.95 // of the steps that have the same number of collectives, if their lengths vary
	longestWindow  = 100  // collectives in a window
	windowsOfSteps = 2048 // windows that a communicator is divided into, unless they are shorter than one
)

// selects reports whether a step begins at a collective.
func (m *marker) selects(c *mark) bool {
	if m.window > 0 {
		return c.sequence%m.window == 0
	}
	return c.key == m.key && (c.waited || !m.waited)
}

// chooseMarker returns the operation at which steps begin: the most frequent one whose distances are regular in time, or
// else in the number of collectives. Without such an operation, steps are windows of collectives. ok is false if there are too few collectives.
func chooseMarker(list []mark) (best marker, ok bool) {
	counts := make(map[marker]int)
	for i := range list {
		counts[marker{key: list[i].key}]++
		if list[i].waited {
			counts[marker{key: list[i].key, waited: true}]++
		}
	}
	candidates := slices.SortedFunc(maps.Keys(counts), func(a, b marker) int {
		if order := cmp.Compare(counts[b], counts[a]); order != 0 {
			return order
		}
		if a.waited != b.waited {
			return map[bool]int{false: -1, true: 1}[a.waited]
		}
		return cmp.Compare(a.key, b.key)
	})
	for i, m := range candidates {
		if counts[m] < leastMarks || i >= maxMarkers {
			break
		}
		if isRegular(list, &m) {
			return m, true
		}
	}
	for i, m := range candidates {
		if counts[m] < leastMarks || i >= maxMarkers {
			break
		}
		if !m.waited && isPeriodic(list, &m) {
			return m, true
		}
	}
	if len(list) < 2*leastMarks {
		return marker{}, false
	}
	return marker{
		window: min(longestWindow, max(1, int64(len(list)/windowsOfSteps), int64(len(list)/(4*leastMarks)))),
	}, true
}

// isPeriodic reports whether a marker selects one of every so many collectives, with few exceptions. On a busy machine,
// the distances in time vary.
func isPeriodic(list []mark, m *marker) bool {
	counts := make(map[int]int)
	last, all, most := -1, 0, 0
	for i := range list {
		if !m.selects(&list[i]) {
			continue
		}
		if distance := i - last; last >= 0 {
			all++
			counts[distance]++
			if distance > 1 { // 1: it is every collective
				most = max(most, counts[distance])
			}
		}
		last = i
	}
	return float64(most) >= leastPeriodic*float64(all)
}

// isRegular reports whether the steps that a marker begins are as long as their neighbors, except for a few.
func isRegular(list []mark, m *marker) bool {
	var lengths []float64
	last := int64(-1)
	for i := range list {
		if !m.selects(&list[i]) {
			continue
		}
		if last >= 0 {
			lengths = append(lengths, float64(list[i].startNs-last))
		}
		last = list[i].startNs
	}
	covered, all, near := make([]float64, len(lengths)), 0.0, make([]float64, 0, neighbors)
	for i := range lengths {
		from := max(0, min(i-neighbors/2, len(lengths)-neighbors))
		near = append(near[:0], lengths[from:min(len(lengths), from+neighbors)]...)
		slices.Sort(near)
		covered[i] = lengths[i] - min(lengths[i], usualLength*near[len(near)/2])
		all += lengths[i]
	}
	// Starts of a program and evaluations are longer by far.
	slices.Sort(covered)
	few := max(2, len(covered)/mostPauses)
	beyond := 0.0
	for i, ns := range covered {
		if i < len(covered)-few {
			beyond += ns
		} else {
			all -= ns
		}
	}
	return beyond <= (1-leastCoverage)*all
}
