package steps

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/symbolize"
)

// Phase is a part of a step: a call site in the function of the step, a thread, or a kernel.
type Phase struct {
	Name   string // the call site, thread or kernel
	Callee string // the function that the call site calls; "" if it is unknown
}

// Names of phases without a call site.
const (
	PhaseBackward     = "backward (autograd thread)"
	PhaseOtherThreads = "other threads"
	PhaseElsewhere    = "outside of the step's function"
	PhaseOthers       = "others"
)

// maxPhases bounds the phases of a process. Further phases share one.
const maxPhases = 1 << 10

// phaseTable numbers the phases of a process.
type phaseTable struct {
	list   []Phase
	byName map[string]int32
	byCall map[phaseKey]int32
}

type phaseKey struct{ tid, stack, label, name int32 }

// Phases returns the phases of the process so far, by their numbers.
func (p *Process) Phases() []Phase { return p.phases.list }

// IsFound reports whether the process repeats a sequence of launches.
func (p *Process) IsFound() bool { return len(p.Steps) > 0 }

// Function returns the function whose call sites are the phases, or "" if they have another source.
func (p *Process) Function() string {
	if p.alphabet == nil || p.alphabet.kind != byCallSites {
		return ""
	}
	for frame := range p.alphabet.numbers {
		return query.FrameName(&p.alphabet.stacks.t.Stacks.Frames[frame])
	}
	return ""
}

// PhaseOf returns the number of the phase of a call of a process with steps.
func (r *Result) PhaseOf(p *Process, c *Call) int32 {
	t := &p.phases
	key := phaseKey{tid: c.Tid, stack: c.Stack, label: c.Label, name: c.Name}
	n, ok := t.byCall[key]
	if !ok {
		n = t.numberOf(r.describePhase(p, c))
		if t.byCall == nil {
			t.byCall = make(map[phaseKey]int32)
		}
		if len(t.byCall) < 1<<16 {
			t.byCall[key] = n
		}
	}
	return n
}

// numberOf returns the number of a phase.
func (t *phaseTable) numberOf(phase Phase) int32 {
	if len(t.list) >= maxPhases {
		phase = Phase{Name: PhaseOthers}
	}
	n, ok := t.byName[phase.Name]
	if !ok {
		if t.byName == nil {
			t.byName = make(map[string]int32)
		}
		n = int32(len(t.list))
		t.byName[phase.Name] = n
		t.list = append(t.list, phase)
	}
	return n
}

// describePhase returns the phase of a call.
func (r *Result) describePhase(p *Process, c *Call) Phase {
	a := p.alphabet
	switch {
	case p.backward[c.Tid] && r.stacks.infoOf(c.Stack).autograd:
		return Phase{Name: PhaseBackward}
	case a.kind != byCallSites:
		return Phase{Name: r.SiteOf(c)}
	case c.Tid != a.mainTid:
		return Phase{Name: PhaseOtherThreads}
	}
	path := r.stacks.infoOf(c.Stack).path
	d := len(a.prefix)
	if len(path) <= d || !slices.Equal(path[:d], a.prefix) {
		return Phase{Name: PhaseElsewhere}
	}
	return Phase{Name: siteOfFrame(&r.reader.T.Stacks, path[d]), Callee: r.calleeOf(path[d+1:])}
}

// calleeOf returns the first function of a path that default rules do not hide.
func (r *Result) calleeOf(path []int32) string {
	for _, id := range path {
		frame := &r.reader.T.Stacks.Frames[id]
		if _, hidden := query.DefaultFrameRules.HidesFrame(frame); !hidden {
			return query.FrameName(frame)
		}
	}
	return ""
}

// SiteOf returns the call site of a call, or its kernel or function if the site is unknown.
func (r *Result) SiteOf(c *Call) string {
	if site := r.reader.T.SiteOfStack(c.Stack); site != "" && site != timeline.NoStackSite {
		return site
	}
	if c.Label >= 0 {
		return symbolize.ShortKernel(r.reader.Labels.List[c.Label])
	}
	return r.reader.Names.List[c.Name]
}
