package leaks_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
)

// windowScenario is a scenario of examples/verdicts/scenarios.txt on PyTorch's allocator, in 60 s. Its sites are
// temporaries of each step and others.
type windowScenario struct {
	name string
	run  func(*scenarioProgram)
}

var windowScenarios = []windowScenario{
	{"slow", func(p *scenarioProgram) { p.every("leak", 4, func(i int) { p.keep(i, 64<<10) }) }},
	{"fast", func(p *scenarioProgram) { p.every("leak", 1, func(i int) { p.keep(i, 4*analyzetest.Mib) }) }},
	{"next-to-a-large-model", func(p *scenarioProgram) {
		p.weights(4000)
		p.every("leak", 2, func(i int) { p.keep(i, 128<<10) })
	}},
	{"short-ring", func(p *scenarioProgram) { p.ring(40) }},
	{"behind-a-cache", func(p *scenarioProgram) {
		p.every("cached", 1, func(i int) {
			if i%3 == 0 {
				p.keep(i, analyzetest.Mib)
			} else {
				p.temporary(i, analyzetest.Mib, 0.3)
			}
		})
	}},
	{"one-of-many", func(p *scenarioProgram) {
		p.every("buffer", 1, func(i int) {
			for k := range 8 {
				if i%10 == 0 && k == 3 {
					p.keep(i, analyzetest.Mib)
				} else {
					p.temporary(i, analyzetest.Mib, 0.4)
				}
			}
		})
	}},
	{"from-the-middle", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) {
			if i > len(p.starts)/2 {
				p.keep(i, analyzetest.Mib)
			}
		})
	}},
	{"until-the-middle", func(p *scenarioProgram) { p.fill(0.5) }},
	{"under-a-sawtooth", func(p *scenarioProgram) {
		p.sawtooth("buffer", 40)
		p.every("leak", 2, func(i int) { p.keep(i, analyzetest.Mib) })
	}},
	{"of-varying-size", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) { p.keep(i, analyzetest.Mib+p.r.Int64N(analyzetest.Mib)) })
	}},
	{"in-two-places", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) { p.keep(i, analyzetest.Mib) })
		p.every("second_leak", 2, func(i int) { p.keep(i, analyzetest.Mib) })
	}},
	{"long-ring", func(p *scenarioProgram) { p.ring(500) }},
	{"warm-up", func(p *scenarioProgram) { p.fill(0.2) }},
	{"long-warm-up", func(p *scenarioProgram) { p.fill(0.6) }},
	{"double-buffering", func(p *scenarioProgram) { p.ring(2) }},
	{"only-weights", func(p *scenarioProgram) { p.weights(300) }},
	{"sawtooth", func(p *scenarioProgram) { p.sawtooth("cached", 100) }},
	{"two-purges", func(p *scenarioProgram) { p.sawtooth("cached", len(p.starts)/3) }},
	{"random-lifetimes", func(p *scenarioProgram) {
		p.every("buffer", 1, func(i int) {
			at := p.at(i, 0.5)
			p.Free(at+int64(p.r.ExpFloat64()*float64(2*analyzetest.Second)), p.alloc(at, analyzetest.Mib))
		})
	}},
	{"varying-batches", func(p *scenarioProgram) {
		p.every("buffer", 1, func(i int) { p.temporary(i, analyzetest.Mib+p.r.Int64N(4*analyzetest.Mib), 0.8) })
	}},
	{"growing-batches", func(p *scenarioProgram) {
		p.every("buffer", 1, func(i int) { p.temporary(i, analyzetest.Mib+int64(i)*2048, 0.8) })
	}},
	{"kept-list", func(p *scenarioProgram) {
		p.every("leak", 1, func(i int) { p.keep(i, 128<<10) })
		p.every("forward", 1, func(i int) { p.temporary(i, 128<<10, 0.9) })
	}},
	{"bounded-history", func(p *scenarioProgram) {
		p.ring(100)
		p.every("forward", 1, func(i int) { p.temporary(i, analyzetest.Mib, 0.9) })
	}},
	{"cache-with-a-bound", func(p *scenarioProgram) {
		var kept []int32
		p.every("keep", 1, func(i int) {
			at := p.at(i, 0.5)
			if len(kept) < 200 {
				kept = append(kept, p.alloc(at, analyzetest.Mib))
				return
			}
			k := p.r.IntN(len(kept))
			p.Free(at-analyzetest.Us, kept[k])
			kept[k] = p.alloc(at, analyzetest.Mib)
		})
	}},
}

// scenarioProgram is a scenario with the site of the next calls.
type scenarioProgram struct {
	steppedSite
	stacks int32
}

// newScenario returns the program of a scenario, with steps of 30 ms.
func newScenario(t testing.TB, seed uint64, s windowScenario) *steppedProgram {
	p := newEmptyProgram(t, rand.New(rand.NewPCG(verdictSeed, seed)), 30*analyzetest.Ms)
	c := &scenarioProgram{steppedSite: steppedSite{steppedProgram: p}}
	c.every("temporaries", 1, func(i int) { c.temporary(i, analyzetest.Mib, 0.5) })
	s.run(c)
	p.Run()
	return p
}

// every calls f for each n-th step, with the site of a name.
func (p *scenarioProgram) every(name string, n int, f func(step int)) {
	p.stacks++
	p.name, p.stack = name, p.stacks
	p.kinds[name] = name
	p.recording.AddStack(p.stack, name, "main", "_start")
	for i := 0; i < len(p.starts); i += n {
		f(i)
	}
}

func (p *scenarioProgram) alloc(at, bytes int64) int32 { return p.Alloc(at, bytes, p.stack, p.name) }

// keep leaks a block.
func (p *scenarioProgram) keep(step int, bytes int64) {
	p.size = func() int64 { return bytes }
	p.leakBlock(p.at(step, 0.6))
}

// temporary allocates a block for a part of a step.
func (p *scenarioProgram) temporary(step int, bytes int64, part float64) {
	p.Free(p.at(step, 0.05+part), p.alloc(p.at(step, 0.05), bytes))
}

// ring keeps the last n blocks.
func (p *scenarioProgram) ring(n int) {
	var kept []int32
	p.every("cached", 1, func(i int) {
		at := p.at(i, 0.5)
		if len(kept) == n {
			p.Free(at-analyzetest.Us, kept[0])
			kept = kept[1:]
		}
		kept = append(kept, p.alloc(at, analyzetest.Mib))
	})
}

// fill keeps blocks until a part of the time has passed.
func (p *scenarioProgram) fill(until float64) {
	p.every("cached", 1, func(i int) {
		if float64(i) < until*float64(len(p.starts)) {
			p.alloc(p.at(i, 0.5), analyzetest.Mib)
		}
	})
}

func (p *scenarioProgram) weights(n int64) {
	p.every("weights", len(p.starts), func(int) {
		for k := range n {
			p.alloc(programBegin/2+k*analyzetest.Us, analyzetest.Mib)
		}
	})
}

// sawtooth frees all of its blocks in each n-th step.
func (p *scenarioProgram) sawtooth(name string, n int) {
	var kept []int32
	p.every(name, 1, func(i int) {
		if i%n == n-1 {
			for _, b := range kept {
				p.Free(p.at(i, 0.4), b)
			}
			kept = nil
		}
		kept = append(kept, p.alloc(p.at(i, 0.5), analyzetest.Mib))
	})
}
