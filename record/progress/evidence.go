//go:build linux

package progress

import (
	"math"
	"time"
)

const (
	// evidenceWindows is the number of windows whose calls and steps are compared.
	evidenceWindows = 256
	// evidenceScales is the number of lengths of windows: 5, 20, 80 and 320 ms.
	evidenceScales, scaleFactor = 4, 4
	// decideEvery is the number of windows from one comparison to the next.
	decideEvery = 16
	// minPairs is the number of windows that a comparison needs.
	minPairs = 24
	// minCorrelation is the least correlation of calls and steps. minSigmas is how many standard
	// deviations it must be above that of unrelated words.
	minCorrelation, minSigmas = 0.4, 6.5
	// minOperationsPerCall and maxOperationsPerCall bound the operations per call of channels. A graph with copies has
	// many operations, and some calls have none.
	minOperationsPerCall, maxOperationsPerCall = 0.1, 256.0
	// minStillNs is the least time for which channels must stand still while no call comes.
	minStillNs = int64(50 * time.Millisecond)
	// stillGaps is how many times longer the words must stand still than they usually do.
	stillGaps = 20
)

// window is a short time in which a process made calls and words changed.
type window struct{ ns, calls, steps int64 }

// perSecond returns the rates of calls and steps.
func (w window) perSecond() (calls, steps float64) {
	seconds := float64(w.ns) / 1e9
	return float64(w.calls) / seconds, float64(w.steps) / seconds
}

func (w window) plus(o window) window {
	return window{w.ns + o.ns, w.calls + o.calls, w.steps + o.steps}
}

// recentWindows has the newest windows of one length.
type recentWindows struct {
	ring [evidenceWindows]window
	len  int // number of windows so far
}

func (r *recentWindows) add(w window) {
	r.ring[r.len%evidenceWindows] = w
	r.len++
}

// ordered returns the windows from the oldest to the newest.
func (r *recentWindows) ordered() []window {
	n := min(r.len, evidenceWindows)
	ordered := make([]window, 0, n)
	for i := r.len - n; i < r.len; i++ {
		ordered = append(ordered, r.ring[i%evidenceWindows])
	}
	return ordered
}

// evidence collects whether words change with the calls of the process. The words of channels stand
// still in pauses of the process, and their steps follow the calls in busy times. Words that change
// by themselves do neither.
type evidence struct {
	// scales has the windows by their length. A window has scaleFactor windows of the scale before.
	scales [evidenceScales]recentWindows
	// activeNs and moves describe the time with calls: its length, and windows in which words moved.
	activeNs, moves int64
	// pauseNs is the current time without calls and steps.
	pauseNs    int64
	hasMoved   bool
	stoodStill bool
}

// add adds a window.
func (e *evidence) add(w window) {
	if w.steps > 0 {
		e.hasMoved = true
	}
	if !e.hasMoved || w.ns <= 0 {
		return // words may begin to move by themselves at the first call
	}
	if w.calls > 0 {
		e.activeNs += w.ns
		if w.steps > 0 {
			e.moves++
		}
	}
	if w.calls > 0 || w.steps > 0 {
		e.pauseNs = 0
	} else {
		e.pauseNs += w.ns
	}
	if gap := e.activeNs / max(1, e.moves); e.moves >= 3 && e.pauseNs >= max(minStillNs, stillGaps*gap) {
		e.stoodStill = true
	}
	e.scales[0].add(w)
	for i := 1; i < evidenceScales && e.scales[i-1].len%scaleFactor == 0; i++ {
		before := &e.scales[i-1]
		var sum window
		for k := before.len - scaleFactor; k < before.len; k++ {
			sum = sum.plus(before.ring[k%evidenceWindows])
		}
		e.scales[i].add(sum)
	}
}

// isRelated reports whether the words change with the calls. The steps follow the calls after some
// windows, because operations wait in a queue. complete is false if launches were not counted.
func (e *evidence) isRelated(complete bool) bool {
	if e.stoodStill {
		return true
	}
	if n := e.scales[0].len; n == 0 || n%decideEvery != 0 {
		return false
	}
	windows := e.scales[0].ordered()
	if complete {
		if !hasPlausibleRate(windows) {
			return false
		}
		for i := range e.scales {
			if isProportional(e.scales[i].ordered()) {
				return true
			}
		}
	}
	for _, scale := range [...]int{1, 2, 4} {
		merged := mergeWindows(windows, scale)
		if isSignificant(correlate(fullQueue(merged), 0)) {
			return true
		}
		for _, lag := range [...]int{0, 1, 2, 4} {
			if isSignificant(correlate(merged, lag)) {
				return true
			}
		}
	}
	return false
}

// fullQueue returns the windows with about as many calls as operations. In these the queue is full, so
// each call waits until an operation is done. It leaves out bursts that fill the queue and pauses in
// which the queue empties, because they would hide the correlation.
func fullQueue(windows []window) (full []window) {
	var all window
	for _, w := range windows {
		all = all.plus(w)
	}
	_, steps := all.perSecond()
	for _, w := range windows {
		if calls, _ := w.perSecond(); calls > 0.25*steps && calls < 3*steps {
			full = append(full, w)
		}
	}
	return full
}

// isSignificant reports whether a correlation r in n windows is too high for unrelated words. It
// uses Fisher's transform of r, which has a normal distribution.
func isSignificant(r float64, n int) bool {
	const almostOne = 0.999
	return r >= minCorrelation && math.Atanh(min(r, almostOne))*math.Sqrt(float64(n-3)) >= minSigmas
}

// mergeWindows returns the sums of groups of scale consecutive windows.
func mergeWindows(windows []window, scale int) []window {
	merged := make([]window, len(windows)/scale)
	for i := range merged {
		for _, w := range windows[i*scale : (i+1)*scale] {
			merged[i] = merged[i].plus(w)
		}
	}
	return merged
}

// hasPlausibleRate reports whether the number of steps fits the number of calls.
func hasPlausibleRate(windows []window) bool {
	var all window
	for _, w := range windows {
		all = all.plus(w)
	}
	calls, steps := float64(all.calls), float64(all.steps)
	return steps >= minOperationsPerCall*calls && steps <= maxOperationsPerCall*calls
}

// isProportional reports whether the steps stay proportional to the calls all the time. A steady
// program that keeps the GPU busy makes its calls in bursts, while operations run evenly, so windows show
// no correlation. But the operations that are left in the queue never exceed a few bursts. Words that
// change by themselves drift away from the calls. Fewer bursts are enough if each call is one operation.
func isProportional(windows []window) bool {
	const (
		oneToOne, anyRatio = 40, 80 // least steps, in bursts
		maxDriftOf         = 2      // greatest spread of the difference, in bursts
	)
	var all window
	burst := int64(0)
	for _, w := range windows {
		all = all.plus(w)
		burst = max(burst, w.calls)
	}
	if len(windows) < minPairs || burst == 0 {
		return false
	}
	if all.steps >= oneToOne*burst && drift(windows, 1) <= maxDriftOf*float64(burst) {
		return true
	}
	ratio := float64(all.steps) / float64(all.calls)
	return len(windows) == evidenceWindows && all.calls >= anyRatio*burst &&
		drift(windows, ratio) <= maxDriftOf*ratio*float64(burst)
}

// drift returns the spread of the difference between the steps so far and the calls so far, if each
// call has ratio steps.
func drift(windows []window, ratio float64) float64 {
	var difference, least, most float64
	for _, w := range windows {
		difference += float64(w.steps) - ratio*float64(w.calls)
		least, most = min(least, difference), max(most, difference)
	}
	return most - least
}

// correlate returns Pearson's correlation of the calls with the steps of a later window, and the
// number of pairs of windows.
func correlate(windows []window, lag int) (r float64, n int) {
	n = len(windows) - lag
	if n < minPairs {
		return 0, n
	}
	var sx, sy, sxx, syy, sxy float64
	for i := range n {
		x, _ := windows[i].perSecond()
		_, y := windows[i+lag].perSecond()
		sx, sy = sx+x, sy+y
		sxx, syy, sxy = sxx+x*x, syy+y*y, sxy+x*y
	}
	count := float64(n)
	varX, varY := sxx-sx*sx/count, syy-sy*sy/count
	if varX <= 0 || varY <= 0 {
		return 0, n
	}
	return (sxy - sx*sy/count) / math.Sqrt(varX*varY), n
}
