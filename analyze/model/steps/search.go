package steps

import (
	"maps"
	"slices"
)

// candidate is a repetition that explains the launches of a process.
type candidate struct {
	alphabet *alphabet
	unit     *unit
	seq      *sequence
	rule     rule
}

// process collects the elements of a process, and finds its step.
type process struct {
	pid       int32
	stacks    *stackTable
	labelsAre func(label int32) bool // reports whether a kernel updates weights
	elements  []element
	touches   []touch
	mainTid   int32
	launches  map[int32]int64 // by thread
	python    map[int32]int64 // launches with Python frames, by thread
	backward  map[int32]bool  // threads of PyTorch's backward pass
	// stacksOptimize reports that a function of a stack updates weights.
	stacksOptimize bool
}

// optimizes reports whether an element updates weights: by the functions of its stack, or by the name of
// its kernel if no stack of the process has such a function.
func (p *process) optimizes(e *element) bool {
	return p.stacks.infoOf(e.stack).optimizers || !p.stacksOptimize && e.label >= 0 && p.labelsAre(e.label)
}

// mainThread returns the thread with the most launches from Python, or with the most launches.
func (p *process) mainThread() (tid int32, python bool) {
	counts := p.python
	if len(counts) == 0 {
		counts = p.launches
	}
	for _, t := range slices.Sorted(maps.Keys(counts)) {
		if tid == 0 || counts[t] > counts[tid] {
			tid = t
		}
	}
	return tid, len(p.python) > 0
}

// search returns the repetition of a process, or nil if there is none. If it repeats only a loop inside of steps,
// search returns the loop and the evidence.
func (p *process) search() (*candidate, LoopReason) {
	c := p.searchLaunches()
	if c == nil || !c.unit.canBeLoop() || c.unit.mixes > mostSegments && p.stacksOptimize {
		return c, 0
	}
	if outer := p.searchTouches(c); outer != nil {
		return outer, 0
	}
	return c, p.explain(c)
}

// searchLaunches returns a repetition of launches, or nil if there is none.
func (p *process) searchLaunches() *candidate {
	if c := p.searchCallSites(); c != nil {
		return c
	}
	if c := p.eachGraph(); c != nil {
		return c
	}
	var best *candidate
	for _, kind := range []alphabetKind{byLabels, byGrids, byWaits} {
		a := &alphabet{kind: kind, stacks: p.stacks, numbers: make(symbolNumbers)}
		c := p.try(a)
		if c != nil && (best == nil || c.unit.coverage > best.unit.coverage+0.1) {
			best = c
		}
		if best != nil && best.unit.coverage >= 0.75 {
			break
		}
	}
	return best
}

// try looks for a repetition with an alphabet.
func (p *process) try(a *alphabet) *candidate {
	const minCoverage, minExplained = 0.6, 0.4
	q := newSequence(runsOf(p.elements, a.symbolOf, p.optimizes), 0, a.kind == byCallSites)
	q.setSymbols(len(a.numbers))
	q.stacksOptimize = p.stacksOptimize
	u := q.find()
	if u == nil || u.coverage < minCoverage {
		return nil
	}
	all := int64(0)
	for i := range q.runs {
		all += int64(q.runs[i].launches)
	}
	if float64(u.launches)*u.coverage < minExplained*float64(all) {
		return nil
	}
	c := &candidate{alphabet: a, unit: u, seq: q}
	c.rule = c.chooseRule()
	return c
}

// searchCallSites looks for the outermost function whose call sites repeat.
func (p *process) searchCallSites() *candidate {
	const minShare = 0.5 // of the launches of the main thread
	tid, python := p.mainThread()
	byStack := make(map[int32]int64)
	all, known := int64(0), int64(0)
	for i := range p.elements {
		e := &p.elements[i]
		if e.isWait() || e.tid != tid {
			continue
		}
		all++
		if info := p.stacks.infoOf(e.stack); len(info.path) > 0 && info.python == python {
			byStack[e.stack]++
			known++
		}
	}
	if all == 0 || float64(known) < 0.6*float64(all) {
		return nil
	}
	var best *candidate
	var prefix []int32
	for range 256 {
		sites, total := make(map[int32]int64), int64(0)
		for stack, n := range byStack {
			path := p.stacks.infoOf(stack).path
			if len(path) <= len(prefix) || !slices.Equal(path[:len(prefix)], prefix) {
				delete(byStack, stack)
				continue
			}
			sites[path[len(prefix)]] += n
			total += n
		}
		if len(sites) == 0 || float64(total) < minShare*float64(all) {
			break
		}
		heaviest := heaviestOf(sites)
		if len(sites) > 1 && float64(total-sites[heaviest]) > 0.002*float64(total) {
			c := p.try(&alphabet{
				kind: byCallSites, stacks: p.stacks, numbers: make(symbolNumbers), mainTid: tid,
				prefix: slices.Clone(prefix), sites: make(map[int32]int32),
			})
			if c != nil && float64(c.unit.launches) >= minShare*float64(all) && (best == nil || best.consistsOf(c)) {
				best = c
			}
		}
		prefix = append(prefix, heaviest)
	}
	return best
}

// heaviestOf returns the call site with the most launches.
func heaviestOf(sites map[int32]int64) (best int32) {
	best = -1
	for _, s := range slices.Sorted(maps.Keys(sites)) {
		if best < 0 || sites[s] > sites[best] {
			best = s
		}
	}
	return best
}

// consistsOf reports whether the unit of an inner function is the step, and this unit a series of
// steps, such as an epoch. A layer is no step: it neither updates weights nor waits for the GPU.
func (c *candidate) consistsOf(inner *candidate) bool {
	const most = 0.8
	u, v := inner.unit, c.unit
	return u.segments >= 2*v.segments && u.coverage >= 0.7 &&
		(u.mixes > most || v.optimizes < 0.2 && u.touchesHost > most)
}

// eachGraph returns a repetition of single launches if the process launches one CUDA graph only.
func (p *process) eachGraph() *candidate {
	const minShare = 0.99
	graphs, all := make(map[int32]int64), int64(0)
	for i := range p.elements {
		if e := &p.elements[i]; !e.isWait() {
			all++
			if e.isGraph {
				graphs[e.grid]++
			}
		}
	}
	for _, n := range graphs {
		if n >= minSegments && float64(n) >= minShare*float64(all) {
			a := &alphabet{kind: byGrids, stacks: p.stacks, numbers: make(symbolNumbers)}
			return &candidate{
				alphabet: a,
				unit:     &unit{segments: int(n), coverage: 1, launches: n, graphs: 1},
				rule:     rule{each: true},
			}
		}
	}
	return nil
}

// setSymbols sets the number of symbols after the runs are known.
func (seq *sequence) setSymbols(n int) {
	*seq = *newSequence(seq.runs, max(1, n), seq.byCalls)
}
