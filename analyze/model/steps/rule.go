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
}

// begins reports whether a step begins at a symbol that follows another.
func (r *rule) begins(last, symbol int32) bool {
	switch {
	case r.each:
		return true
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
	// waitBonusNs makes a launch after a wait the begin of a step, unless there is a longer time outside
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
	best, bestGapNs, bestJump := rule{symbol: u.anchor}, int64(-1), int64(0)
	for s := range q.symbols {
		if u.modal[s] == 0 && int32(s) != u.anchor || counts[s]*10 < wanted*9 || counts[s]*10 > wanted*11 {
			continue
		}
		for _, after := range []bool{false, true} {
			r := rule{symbol: int32(s), after: after}
			gapNs, jump := c.typicalJump(r)
			if jump > bestJump || jump == bestJump && bestJump == 0 && gapNs > bestGapNs {
				best, bestGapNs, bestJump = r, gapNs, jump
			}
		}
	}
	return best
}

// typicalJump returns the median time outside CUDA before the steps of a rule, and by how many lines
// the program jumps back there: 0 if it does not, or if lines are unknown.
func (c *candidate) typicalJump(r rule) (gapNs, lines int64) {
	var gaps, jumps []int64
	runs := c.seq.runs
	for i := 1; i < len(runs) && len(gaps) < maxRuleSamples; i++ {
		if runs[i].isBroken || !r.begins(runs[i-1].symbol, runs[i].symbol) {
			continue
		}
		gapNs := int64(runs[i].gapNs)
		if runs[i].waits {
			gapNs += waitBonusNs
		}
		gaps = append(gaps, gapNs)
		jumps = append(jumps, c.linesBack(runs[i-1].symbol, runs[i].symbol))
	}
	if len(gaps) == 0 {
		return -1, 0
	}
	slices.Sort(gaps)
	slices.Sort(jumps)
	return gaps[len(gaps)/2], max(0, jumps[len(jumps)/2])
}

// linesBack returns the difference of the lines of two call sites in a function.
func (c *candidate) linesBack(from, to int32) int64 {
	a, okA := c.alphabet.frameOf(from)
	b, okB := c.alphabet.frameOf(to)
	if !okA || !okB {
		return 0
	}
	f, g := &c.alphabet.stacks.t.Stacks.Frames[a], &c.alphabet.stacks.t.Stacks.Frames[b]
	if f.Line == 0 || g.Line == 0 || f.Func != g.Func || f.File != g.File {
		return 0
	}
	return int64(min(math.MaxInt32, f.Line)) - int64(g.Line)
}
