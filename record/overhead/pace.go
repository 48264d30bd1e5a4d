//go:build linux

package overhead

import (
	"math"
	"slices"
)

// Pace derives the price of a launch probe from the program's own pace: how many other calls it makes
// per second in windows with launch probes, compared with the pauses around them.
type Pace struct {
	before pacePart // the pause before the window
	window pacePart
	prices []float64 // of the last maxPacePrices windows, in ns per hit
}

// pacePart is a window or a pause.
type pacePart struct{ seconds, launches, others float64 }

const (
	minPacePrices, maxPacePrices = 8, 40
	// minPaceCalls is the number of other calls that a part needs.
	minPaceCalls = 500
	// maxPaceError is the largest accepted standard error, as a share of the median.
	maxPaceError = 0.25
)

// AddWindow adds a window with launch probes: its length and the probe hits of all threads.
func (p *Pace) AddWindow(seconds, launches, others float64) {
	p.window = pacePart{seconds, launches, others}
}

// AddPause adds the pause after the last window.
func (p *Pace) AddPause(seconds, others float64) {
	after := pacePart{seconds: seconds, others: others}
	defer func() { p.before, p.window = after, pacePart{} }()
	w := p.window
	if min(w.others, p.before.others, after.others) < minPaceCalls || w.launches < minPaceCalls {
		return
	}
	bare := (p.before.others + after.others) / (p.before.seconds + after.seconds)
	slowdown := 1 - w.others/w.seconds/bare
	p.prices = append(p.prices, slowdown*1e9/(w.launches/w.seconds))
	if len(p.prices) > maxPacePrices {
		p.prices = p.prices[1:]
	}
}

// HitNs returns the median duration of a launch probe's hit. ok reports whether enough windows
// agree. It computes the standard error of the median as for normally distributed values.
func (p *Pace) HitNs() (ns float64, ok bool) {
	n := len(p.prices)
	if n < minPacePrices {
		return 0, false
	}
	ns = median(p.prices)
	deviations := make([]float64, n)
	for i, v := range p.prices {
		deviations[i] = math.Abs(v - ns)
	}
	standardError := 1.2533 * 1.4826 * median(deviations) / math.Sqrt(float64(n))
	return ns, ns > 0 && standardError < maxPaceError*ns
}

// median returns the median of values. It does not change their order.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
