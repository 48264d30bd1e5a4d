package steps

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// Options are options of Find.
type Options struct {
	// Marker, if not "", is a part of the name of kernels or call sites. A step begins at the first such
	// launch after others.
	Marker string
}

// Process has the steps of one process.
type Process struct {
	Pid   int32
	Steps []Step // in order of time; none if nothing repeats
	// Operations counts launches, copies and fills in the window, Inside those in complete steps.
	Operations, Inside int64
	// Loop, if not nil, is why there are no steps: only a loop inside of them repeats.
	Loop *Loop
	// IsMore reports that there were more steps than Steps can have.
	IsMore bool

	threads  map[int32]bool // threads whose calls make up the steps
	backward map[int32]bool
	alphabet *alphabet
	rule     rule
	tracker  tracker
	phases   phaseTable
}

// Step is one step. It begins when the last call of the step before has returned. Times are Unix ns.
type Step struct {
	BeginNs, EndNs int64
	Operations     int32 // launches, copies and fills
	// IsCut reports that a part of the step is missing: at the ends of the recording, or where launches
	// were lost or not recorded.
	IsCut bool
	// IsPartial reports that launches inside of the step were not recorded. Its begin and its end are known.
	IsPartial bool
}

// DurNs returns the duration of the step in ns.
func (s *Step) DurNs() int64 { return s.EndNs - s.BeginNs }

// HasAllCalls reports whether all calls of the step are recorded.
func (s *Step) HasAllCalls() bool { return !s.IsCut && !s.IsPartial }

// maxSteps bounds the steps of a process.
const maxSteps = 1 << 20

// Result has the processes with launches, by pid.
type Result struct {
	Processes []*Process
	stacks    *stackTable
	labels    []bool // kernels that update weights, by label
	reader    *Reader
	gaps      []query.Window // times in which launches may be missing
	losses    []query.Window // times in which any calls may be missing
	marker    string
	markers   map[markerKey]bool
}

type markerKey struct{ stack, label int32 }

// Find finds the steps of each process. It reads the calls of the recording twice. Its memory grows
// with the steps, up to a limit, and not with the calls. It returns errors of reading the recording.
func Find(r *Reader, opt Options) (*Result, error) {
	f := &Result{
		stacks: &stackTable{t: r.T, infos: make(map[int32]*stackInfo)}, reader: r, losses: lossesOf(r),
		marker: opt.Marker, markers: make(map[markerKey]bool),
	}
	f.gaps = slices.Concat(r.T.Facts.Sampling.NoLaunches, f.losses)
	sortWindows(f.gaps)
	found, err := f.collect()
	if err != nil {
		return nil, err
	}
	byPid := make(map[int32]*Process)
	for _, pid := range slices.Sorted(maps.Keys(found)) {
		p := &Process{Pid: pid}
		f.chooseSteps(p, found[pid])
		f.Processes = append(f.Processes, p)
		byPid[pid] = p
	}
	gaps, losses := gapReader{gaps: f.gaps}, gapReader{gaps: f.losses}
	err = r.EachCall(func(c *Call) {
		p, begun := byPid[c.Pid], gaps.begunBy(c.StartNs)
		if p.rule.ends {
			begun = losses.begunBy(c.StartNs)
		}
		p.addCall(c, begun)
	})
	for _, p := range f.Processes {
		p.tracker.finish(p, f.gaps)
	}
	return f, err
}

// lossesOf returns the times in which calls were lost, in order.
func lossesOf(r *Reader) (list []query.Window) {
	for _, l := range r.T.Facts.Lost {
		list = append(list, query.Window{FromNs: l.StartNs, ToNs: units.EndOfRange(l.StartNs, l.DurNs)})
	}
	sortWindows(list)
	return list
}

func sortWindows(list []query.Window) {
	slices.SortFunc(list, func(a, b query.Window) int { return cmp.Compare(a.FromNs, b.FromNs) })
}

// gapReader counts the gaps that have begun.
type gapReader struct {
	gaps []query.Window
	next int
}

// begunBy returns how many gaps have begun at a time. Times must not decrease.
func (g *gapReader) begunBy(ns int64) int {
	for g.next < len(g.gaps) && g.gaps[g.next].FromNs <= ns {
		g.next++
	}
	return g.next
}

// collect reads the calls of each process, up to a limit.
func (r *Result) collect() (map[int32]*process, error) {
	found := make(map[int32]*process)
	last := make(map[int32]*collected)
	gaps, losses := gapReader{gaps: r.gaps}, gapReader{gaps: r.losses}
	elements := 0
	err := r.reader.EachCall(func(c *Call) {
		p := found[c.Pid]
		if p == nil {
			p = &process{
				pid: c.Pid, stacks: r.stacks, labelsAre: r.optimizes, launches: make(map[int32]int64),
				python: make(map[int32]int64), backward: make(map[int32]bool),
			}
			found[c.Pid], last[c.Pid] = p, &collected{gaps: gaps.begunBy(c.StartNs)}
		}
		if elements >= maxElements || !c.IsOperation() && c.Kind != KindWait {
			return
		}
		elements++
		l := last[c.Pid]
		e := elementOf(c)
		e.gapNs, e.isBroken = saturate(c.StartNs-cmp.Or(l.endNs, c.StartNs)), gaps.begunBy(c.StartNs) != l.gaps
		l.endNs, l.gaps = max(l.endNs, c.EndNs), gaps.next
		if e.touchesHost && len(p.touches) < maxTouches {
			p.touches = append(p.touches, touch{c.StartNs, int32(len(p.elements)), int32(losses.begunBy(c.StartNs))})
		}
		p.elements = append(p.elements, e)
		if !c.IsOperation() {
			return
		}
		p.launches[c.Tid]++
		info := r.stacks.infoOf(c.Stack)
		if info.python {
			p.python[c.Tid]++
		}
		p.stacksOptimize = p.stacksOptimize || info.optimizers
		if info.autograd {
			p.backward[c.Tid] = true
		}
	})
	return found, err
}

// collected has the end and the gaps of the last call of a process.
type collected struct {
	endNs int64
	gaps  int
}

// elementOf returns the element of a call.
func elementOf(c *Call) element {
	return element{
		stack: c.Stack, label: c.Label, grid: c.Grid, tid: c.Tid, name: c.Name, isGraph: c.Graph,
		touchesHost: c.TouchesHost || c.Kind == KindWait,
	}
}

// optimizes reports whether the name of a kernel is that of an update of weights.
func (r *Result) optimizes(label int32) bool {
	for len(r.labels) < len(r.reader.Labels.List) {
		r.labels = append(r.labels, stack.IsOptimizerName(r.reader.Labels.List[len(r.labels)]))
	}
	return r.labels[label]
}

// chooseSteps decides what a step of a process is.
func (r *Result) chooseSteps(p *Process, from *process) {
	p.backward = from.backward
	main, python := from.mainThread()
	from.mainTid = main
	p.threads = map[int32]bool{main: true}
	all := int64(0)
	for _, n := range from.launches {
		all += n
	}
	for tid, n := range from.launches {
		if n*20 >= all && (!python || from.python[tid]*2 < n) {
			p.threads[tid] = true
		}
	}
	if r.marker != "" {
		p.alphabet = &alphabet{kind: byMarker, stacks: r.stacks, isMarker: r.isMarker}
		p.rule = rule{symbol: 1}
		return
	}
	c, reason := from.search()
	switch {
	case c == nil:
	case reason != 0:
		p.Loop = r.loopOf(from, c, reason)
	default:
		p.alphabet, p.rule = c.alphabet, c.rule
	}
}

// isMarker reports whether the kernel or the call site of an element contains the marker.
func (r *Result) isMarker(e *element) bool {
	key := markerKey{e.stack, e.label}
	is, ok := r.markers[key]
	if !ok {
		is = e.label >= 0 && (strings.Contains(r.reader.Labels.List[e.label], r.marker) ||
			strings.Contains(r.reader.T.SiteOfStack(e.stack), r.marker)) || r.stackContains(e.stack)
		r.markers[key] = is
	}
	return is
}

// stackContains reports whether a frame of a stack contains the marker.
func (r *Result) stackContains(id int32) bool {
	return slices.ContainsFunc(r.reader.T.Stacks.Stacks[id], func(frame int32) bool {
		return strings.Contains(siteOfFrame(&r.reader.T.Stacks, frame), r.marker)
	})
}

// siteOfFrame returns a frame as a call site.
func siteOfFrame(s *stack.StackTable, id int32) string {
	frame := &s.Frames[id]
	return symbolize.NameWithLine(query.FrameName(frame), frame.File, frame.Line)
}
