package steps

import (
	"cmp"
	"slices"
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

// addCall adds a call of the process.
func (p *Process) addCall(c *Call, gaps *gapReader) {
	t := &p.tracker
	if c.IsWork() {
		p.Work++
	}
	if p.alphabet == nil || !p.Participates(c) {
		if t.isOpen && c.IsWork() {
			t.open.Work++
		}
		return
	}
	if begun := gaps.begunBy(c.StartNs); begun != t.gaps {
		if t.isOpen {
			t.open.IsCut = true
		}
		t.gaps, t.known = begun, false
	}
	if c.IsWork() || c.Kind == KindWait {
		t.element = elementOf(c)
		if symbol := p.alphabet.symbolOf(&t.element); symbol != noSymbol {
			t.addSymbol(p, symbol, c)
		}
		t.endNs = max(t.endNs, c.EndNs, c.StartNs+1) // the call belongs to the step before
	}
	if t.isOpen && c.IsWork() {
		t.open.Work++
	}
}

// addSymbol begins a step if the rule says so.
func (t *tracker) addSymbol(p *Process, symbol int32, c *Call) {
	switch {
	case !t.known && !t.isOpen:
		t.isFirst = true
		t.open, t.isOpen = Step{
			BeginNs: c.StartNs,
			IsCut:   !p.rule.after && !p.rule.each && symbol != p.rule.symbol,
		}, true
	case t.known && p.rule.begins(t.last, symbol):
		t.close(p, min(c.StartNs, max(t.endNs, t.open.BeginNs)))
		t.open, t.isOpen, t.isWhole = Step{BeginNs: t.open.EndNs}, true, false
	}
	t.last, t.known = symbol, true
	t.isWhole = t.isWhole || symbol == p.rule.symbol
}

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
// others.
func (t *tracker) finish(p *Process) {
	if t.isOpen {
		t.isFirst = true
		t.open.IsCut = t.open.IsCut || !t.isWhole && !p.rule.each
		t.close(p, max(t.endNs, t.open.BeginNs))
	}
	t.isOpen = false
	var works []int32
	for i := range p.Steps {
		if !p.Steps[i].IsCut && !slices.Contains(t.first, i) {
			works = append(works, p.Steps[i].Work)
		}
	}
	if len(works) < 2 {
		p.Steps = nil
		return
	}
	slices.SortFunc(works, cmp.Compare)
	median, fewest, most := works[len(works)/2], works[0], works[len(works)-1]
	for _, i := range t.first {
		s := &p.Steps[i]
		if s.Work < min(fewest, median-median/20) || s.Work > max(most, median+median/4) {
			s.IsCut = true
		}
	}
	for i := range p.Steps {
		if !p.Steps[i].IsCut {
			p.Inside += int64(p.Steps[i].Work)
		}
	}
}

// Participates reports whether a call is of a thread whose calls make up the steps.
func (p *Process) Participates(c *Call) bool { return p.threads[c.Tid] }
