package steps

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/query"
)

// tracker divides the calls of a process into steps.
type tracker struct {
	last    int32 // symbol of the last launch
	known   bool  // last is set
	open    Step
	isOpen  bool
	isFirst bool // no boundary is known before the open step
	isWhole bool // the open step has the symbol of the rule
	endNs   int64
	gaps    int
	element element // of the current call
	// first are indices of steps without a known boundary before them.
	first []int
}

// addCall adds a call of the process. gaps is the number of times without calls that have begun before it.
func (p *Process) addCall(c *Call, gaps int) {
	t := &p.tracker
	if c.IsOperation() {
		p.Operations++
	}
	if p.alphabet == nil || !p.Participates(c) {
		if t.isOpen && c.IsOperation() {
			t.open.Operations++
		}
		return
	}
	if gaps != t.gaps {
		if t.isOpen {
			t.open.IsCut = true
		}
		t.gaps, t.known = gaps, false
	}
	if c.IsOperation() || c.Kind == KindWait {
		t.element = elementOf(c)
		if symbol := p.alphabet.symbolOf(&t.element); symbol != noSymbol {
			t.addSymbol(p, symbol, c)
		}
		t.endNs = max(t.endNs, c.EndNs, c.StartNs+1) // the call belongs to the step before
	}
	if t.isOpen && c.IsOperation() {
		t.open.Operations++
	}
}

// addSymbol begins a step if the rule says so.
func (t *tracker) addSymbol(p *Process, symbol int32, c *Call) {
	switch {
	case !t.known && !t.isOpen:
		t.isFirst = true
		t.open, t.isOpen = Step{
			BeginNs: c.StartNs,
			IsCut:   !p.rule.after && !p.rule.each && !p.rule.ends && symbol != p.rule.symbol,
		}, true
	case t.known && p.rule.begins(t.last, symbol) && t.boundaryNs(c) >= t.open.BeginNs+p.rule.minNs:
		t.close(p, t.boundaryNs(c))
		t.open, t.isOpen, t.isWhole = Step{BeginNs: t.open.EndNs}, true, false
	}
	t.last, t.known = symbol, true
	t.isWhole = t.isWhole || symbol == p.rule.symbol
}

// boundaryNs returns the end of the open step if a call begins the next.
func (t *tracker) boundaryNs(c *Call) int64 { return min(c.StartNs, max(t.endNs, t.open.BeginNs)) }

// close ends the open step.
func (t *tracker) close(p *Process, endNs int64) {
	t.open.EndNs = endNs
	if len(p.Steps) >= maxSteps {
		p.IsMore = true
		return
	}
	if t.isFirst {
		t.first = append(t.first, len(p.Steps))
		t.isFirst = false
	}
	p.Steps = append(p.Steps, t.open)
}

// finish ends the last step. The first and the last step are complete if they have as many launches as
// others. gaps are the times in which launches may be missing, in order.
func (t *tracker) finish(p *Process, gaps []query.Window) {
	if t.isOpen {
		t.isFirst = true
		t.open.IsCut = t.open.IsCut || !t.isWhole && !p.rule.each
		t.close(p, max(t.endNs, t.open.BeginNs))
	}
	if p.rule.ends {
		markPartial(p.Steps, gaps)
	}
	t.isOpen = false
	complete := 0
	var operations []int32
	for i := range p.Steps {
		if s := &p.Steps[i]; !s.IsCut && !slices.Contains(t.first, i) {
			complete++
			if !s.IsPartial {
				operations = append(operations, s.Operations)
			}
		}
	}
	if complete < 2 {
		p.Steps = nil
		return
	}
	t.cutFirst(p, operations)
	for i := range p.Steps {
		if !p.Steps[i].IsCut {
			p.Inside += int64(p.Steps[i].Operations)
		}
	}
}

// cutFirst marks steps without a known boundary before them as cut if their launches differ from those of
// the other steps, or cannot be compared.
func (t *tracker) cutFirst(p *Process, operations []int32) {
	slices.Sort(operations)
	for _, i := range t.first {
		s := &p.Steps[i]
		if len(operations) < 2 || s.IsPartial {
			s.IsCut = true
			continue
		}
		median, fewest, most := operations[len(operations)/2], operations[0], operations[len(operations)-1]
		if s.Operations < min(fewest, median-median/20) || s.Operations > max(most, median+median/4) {
			s.IsCut = true
		}
	}
}

// markPartial marks the steps with times in which launches were not recorded. gaps is in order of time.
func markPartial(list []Step, gaps []query.Window) {
	next := 0
	for i := range list {
		s := &list[i]
		for next < len(gaps) && gaps[next].ToNs <= s.BeginNs {
			next++
		}
		s.IsPartial = next < len(gaps) && gaps[next].FromNs < s.EndNs
	}
}

// Participates reports whether a call is of a thread whose calls make up the steps.
func (p *Process) Participates(c *Call) bool { return p.threads[c.Tid] }
