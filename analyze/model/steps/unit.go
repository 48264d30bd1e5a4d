package steps

import (
	"cmp"
	"slices"
)

// unit is a part of a sequence that repeats. Each segment begins with a run of the anchor.
type unit struct {
	anchor   int32
	segments int
	// coverage is the share of the launches in segments whose symbol is regular: it has the same number
	// of launches in most segments.
	coverage float64
	// regularity is the mean share of segments in which a symbol has its usual number of launches,
	// weighted by launches.
	regularity float64
	launches   int64   // launches in segments
	perUnit    float64 // launches of regular symbols in a segment
	totals     []int64 // launches in segments by symbol
	modal      []int32 // number of a symbol in most segments; 0: the symbol is not regular
	// touchesHost and mixes are the shares of segments with a wait or a copy from or to the host, and with
	// launches that update weights and with others. optimizes has those with launches that update weights.
	touchesHost, mixes, optimizes float64
	graphs                        float64 // share of segments with launches of graphs
}

// sequence is a list of runs in which find looks for a unit.
type sequence struct {
	runs    []run
	symbols int
	// byCalls reports that the symbols are call sites, so that runs are counted and not launches, and
	// loops inside of a step are joined.
	byCalls bool
	// stacksOptimize reports that functions, and not names of kernels, show which launches update weights.
	stacksOptimize bool

	histograms [][maxCount]int32 // segments by symbol and its number in them
	counts     []int32
	totals     []int64
	found      []int32
}

const (
	maxCount        = 64
	maxEvaluated    = 1 << 18 // runs that are read for each possible unit
	regularShare    = 0.7     // of segments in which a regular symbol has the same number
	minUnitCoverage = 0.5
	minSegments     = 3
	maxLevels       = 64
)

func newSequence(runs []run, symbols int, byCalls bool) *sequence {
	if len(runs) > maxEvaluated {
		first := (len(runs) - maxEvaluated) / 2
		runs = runs[first : first+maxEvaluated]
	}
	return &sequence{
		runs: runs, symbols: symbols, byCalls: byCalls, histograms: make([][maxCount]int32, symbols),
		counts: make([]int32, symbols), totals: make([]int64, symbols),
	}
}

// find returns the unit that is a step, or nil if nothing repeats. It begins with the unit that repeats
// most often. A larger unit is the step if the smaller one is a layer of it.
func (seq *sequence) find() *unit {
	var best *unit
	for _, level := range seq.levels() {
		var u *unit
		for _, anchor := range level {
			v := seq.evaluate(anchor)
			if v.segments >= minSegments && (u == nil || v.coverage > u.coverage) {
				u = v
			}
		}
		switch {
		case u == nil:
		case best == nil:
			if u.coverage >= minUnitCoverage {
				best = u
			}
		case seq.isPartOf(best, u):
			best = u
		}
	}
	return best
}

// levels returns possible anchors by the number of their runs, the most frequent first. Anchors of a
// level have nearly the same number of runs.
func (seq *sequence) levels() (levels [][]int32) {
	runs, launches := make([]int, seq.symbols), make([]int64, seq.symbols)
	for i := range seq.runs {
		runs[seq.runs[i].symbol]++
		launches[seq.runs[i].symbol] += int64(seq.runs[i].launches)
	}
	var order []int32
	for s := range runs {
		if runs[s] >= minSegments {
			order = append(order, int32(s))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(runs[b], runs[a]), cmp.Compare(launches[b], launches[a]), cmp.Compare(a, b))
	})
	first := 0
	for _, s := range order {
		n := len(levels)
		if n == 0 || runs[s]+1 < first-first/50 {
			if n == maxLevels {
				break
			}
			first = runs[s]
			levels = append(levels, nil)
			n++
		}
		if len(levels[n-1]) < 4 {
			levels[n-1] = append(levels[n-1], s)
		}
	}
	return levels
}

// evaluate returns the unit of an anchor.
func (seq *sequence) evaluate(anchor int32) *unit {
	u := &unit{anchor: anchor, modal: make([]int32, seq.symbols)}
	clear(seq.histograms)
	clear(seq.totals)
	from := -1
	var counts segmentFacts
	for i := range seq.runs {
		if seq.runs[i].isBroken {
			from = -1
		}
		if seq.runs[i].symbol != anchor {
			continue
		}
		if from >= 0 {
			u.segments++
			counts.add(seq.addSegment(seq.runs[from:i]))
		}
		from = i
	}
	if u.segments == 0 {
		return u
	}
	n := float64(u.segments)
	u.touchesHost, u.mixes = float64(counts.touch)/n, float64(counts.mix)/n
	u.optimizes, u.graphs = float64(counts.optimize)/n, float64(counts.graph)/n
	seq.rate(u)
	return u
}

// segmentFacts counts segments by what their launches do.
type segmentFacts struct{ touch, optimize, mix, graph int }

// add counts a segment.
func (f *segmentFacts) add(of run) {
	if of.touchesHost {
		f.touch++
	}
	if of.optimizes {
		f.optimize++
	}
	if of.optimizes && of.others {
		f.mix++
	}
	if of.graphs {
		f.graph++
	}
}

// addSegment counts the symbols of a segment. It returns what its launches do.
func (seq *sequence) addSegment(runs []run) (of run) {
	for i := range runs {
		r := &runs[i]
		of.touchesHost, of.graphs = of.touchesHost || r.touchesHost, of.graphs || r.graphs
		of.optimizes, of.others = of.optimizes || r.optimizes, of.others || r.others
		if seq.counts[r.symbol] == 0 {
			seq.found = append(seq.found, r.symbol)
		}
		if seq.byCalls {
			seq.counts[r.symbol]++
		} else {
			seq.counts[r.symbol] += r.launches
		}
		seq.totals[r.symbol] += int64(r.launches)
	}
	for _, s := range seq.found {
		seq.histograms[s][countClass(seq.counts[s])]++
		seq.counts[s] = 0
	}
	seq.found = seq.found[:0]
	return of
}

// countClass returns the number itself up to 40, and a class of about 12 % above.
func countClass(n int32) int {
	if n < 40 {
		return int(n)
	}
	class := 40
	for limit := int32(45); n >= limit && class < maxCount-1; limit += limit / 8 {
		class++
	}
	return class
}

// rate sets the coverage of a unit from the counted segments.
func (seq *sequence) rate(u *unit) {
	u.totals = slices.Clone(seq.totals)
	regular := int64(0)
	for s := range seq.histograms {
		u.launches += seq.totals[s]
		best := 0
		for class, segments := range seq.histograms[s] {
			if segments > seq.histograms[s][best] {
				best = class
			}
		}
		if best > 0 {
			u.regularity += float64(seq.totals[s]) * float64(seq.histograms[s][best]) / float64(u.segments)
		}
		if float64(seq.histograms[s][best]) >= regularShare*float64(u.segments) {
			u.modal[s] = int32(best)
			regular += seq.totals[s]
		}
	}
	if u.launches > 0 {
		u.coverage = float64(regular) / float64(u.launches)
		u.regularity /= float64(u.launches)
	}
	u.perUnit = float64(regular) / float64(u.segments)
}

// isPartOf reports whether a unit is a part of a larger unit that is the step: a layer, or a batch
// whose gradients are accumulated. Logging or an evaluation every few steps does not make a larger
// step.
func (seq *sequence) isPartOf(inner, outer *unit) bool {
	const most, some, better = 0.8, 0.6, 0.02
	ratio := float64(inner.segments) / float64(outer.segments)
	switch {
	case outer.coverage < max(0.7, inner.coverage-better):
		return false
	case seq.isLoopOf(inner, outer):
		return true
	case inner.mixes > most:
		return false
	case ratio < 1.8: // the inner unit also occurs outside of steps, such as in an evaluation
		return outer.regularity > inner.regularity+better
	case inner.optimizes < some && outer.mixes > most:
		return true
	}
	added := 0.0 // launches of symbols that the inner unit does not have
	for s, n := range outer.modal {
		if n > 0 && inner.modal[s] == 0 {
			added += float64(outer.totals[s]) / float64(outer.segments)
		}
	}
	share := added / max(1, inner.perUnit)
	if ratio <= 8.5 && share >= 0.15 && outer.coverage >= 0.9 && outer.segments >= 5 {
		return true // accumulated gradients
	}
	return !seq.byCalls && inner.touchesHost <= most && share >= 0.5 && outer.segments >= 6
}
