package steps

import (
	"math"
	"slices"
)

// rule says where a step begins: at the first launch of a symbol after others, or at the first launch
// after a run of a symbol.
type rule struct {
	symbol int32
	after  bool
	// each makes every launch a step.
	each bool
	// ends makes every call of the symbol the end of a step that has lasted minNs. Such calls are recorded also
	// where launches are not.
	ends  bool
	minNs int64
}

// begins reports whether a step begins at a symbol that follows another.
func (r *rule) begins(last, symbol int32) bool {
	switch {
	case r.each:
		return true
	case r.ends:
		return last == r.symbol
	case last == symbol:
		return false
	case r.after:
		return last == r.symbol
	}
	return symbol == r.symbol
}

const (
	// maxRuleSamples bounds the runs that are read to choose a rule.
	maxRuleSamples = 512
	// waitBonusNs makes a launch after a wait the start of a step, unless there is a longer time outside
	// CUDA elsewhere.
	waitBonusNs = 20_000
)

// chooseRule chooses where a step begins. In source code that is the line to which the program jumps
// back. Without lines it is the launch before which the program is outside CUDA for the longest time.
func (c *candidate) chooseRule() rule {
	q, u := c.seq, c.unit
	counts := make([]int, q.symbols)
	for i := range q.runs {
		counts[q.runs[i].symbol]++
	}
	wanted := counts[u.anchor]
	begins, ends := q.runsBySymbol()
	frames := c.alphabet.framesBySymbol()
	best, bestGapNs, bestJump := rule{symbol: u.anchor}, int64(-1), int64(0)
	for s := range q.symbols {
		if u.modal[s] == 0 && int32(s) != u.anchor || counts[s]*10 < wanted*9 || counts[s]*10 > wanted*11 {
			continue
		}
		for _, after := range []bool{false, true} {
			r := rule{symbol: int32(s), after: after}
			at := begins[s]
			if after {
				at = ends[s]
			}
			gapNs, jump := c.typicalJump(at, frames)
			if jump > bestJump || jump == bestJump && bestJump == 0 && gapNs > bestGapNs {
				best, bestGapNs, bestJump = r, gapNs, jump
			}
		}
	}
	return best
}

// runsBySymbol returns where the rules of each symbol begin a step: the first runs with the symbol, and the
// first runs after such a run.
func (seq *sequence) runsBySymbol() (begins, ends [][]int32) {
	begins, ends = make([][]int32, seq.symbols), make([][]int32, seq.symbols)
	add := func(list [][]int32, symbol int32, run int) {
		if len(list[symbol]) < maxRuleSamples {
			list[symbol] = append(list[symbol], int32(run))
		}
	}
	for i := 1; i < len(seq.runs); i++ {
		last, next := seq.runs[i-1].symbol, seq.runs[i].symbol
		if !seq.runs[i].isBroken && last != next {
			add(begins, next, i)
			add(ends, last, i)
		}
	}
	return begins, ends
}

// typicalJump returns the median time outside CUDA before steps that begin with some runs, and by how many
// lines the program jumps back there: 0 if it does not, or if lines are unknown.
func (c *candidate) typicalJump(begins, frames []int32) (gapNs, lines int64) {
	var gaps, jumps []int64
	for _, i := range begins {
		last, next := &c.seq.runs[i-1], &c.seq.runs[i]
		gapNs := int64(next.gapNs)
		if next.waits {
			gapNs += waitBonusNs
		}
		gaps = append(gaps, gapNs)
		jumps = append(jumps, c.linesBack(frames, last.symbol, next.symbol))
	}
	if len(gaps) == 0 {
		return -1, 0
	}
	slices.Sort(gaps)
	slices.Sort(jumps)
	return gaps[len(gaps)/2], max(0, jumps[len(jumps)/2])
}

// linesBack returns the difference of the lines of two call sites in a function. frames are the frames of
// the symbols, if symbols are call sites.
func (c *candidate) linesBack(frames []int32, from, to int32) int64 {
	if max(int(from), int(to)) >= len(frames) {
		return 0
	}
	f, g := &c.alphabet.stacks.t.Stacks.Frames[frames[from]], &c.alphabet.stacks.t.Stacks.Frames[frames[to]]
	if f.Line == 0 || g.Line == 0 || f.Func != g.Func || f.File != g.File {
		return 0
	}
	return int64(min(math.MaxInt32, f.Line)) - int64(g.Line)
}
