package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/symbolize"
)

const (
	// minFreedShare is the freed share of the blocks of a way that frees its memory. The rest may be
	// in use at the end. A way keeps its memory if it freed at most maxFreedShare.
	minFreedShare, maxFreedShare = 0.95, 0.05
	// minBlocksPerWay is the number of blocks below which the share of a way may be chance.
	minBlocksPerWay = 20
	// maxWays is the largest number of ways. More rows would hide the one that keeps memory.
	maxWays = 4
)

// way is the memory of a call site that the program allocates on behalf of one caller.
type way struct {
	caller        int32 // index of wayFinder.callers
	parts         []*groupStats
	allocs, frees int64
}

func (w *way) addPart(p *groupStats) {
	w.parts = append(w.parts, p)
	w.allocs += p.allocs
	w.frees += p.frees
}

func (w *way) isFreed() bool { return float64(w.frees) >= minFreedShare*float64(w.allocs) }

func (w *way) isKept() bool { return float64(w.frees) <= maxFreedShare*float64(w.allocs) }

// stats returns the statistics of the way's memory.
func (w *way) stats(name group.Group) groupStats {
	g := groupStats{Group: name}
	for _, p := range w.parts {
		g.addPart(p)
	}
	return g
}

// wayFinder finds the callers that separate the kept from the freed memory of call sites.
type wayFinder struct {
	t       *timeline.Timeline
	reader  *stack.CallerReader
	callers origin.StringNumbers // names of callers
	byFrame map[int32]int32      // index of callers, by frame
}

func newWayFinder(t *timeline.Timeline) *wayFinder {
	return &wayFinder{t: t, reader: stack.NewCallerReader(&t.Stacks), byFrame: make(map[int32]int32)}
}

// callPath is the memory of a call site from one stack, with the callers of the site, innermost first.
type callPath struct {
	part    *groupStats
	callers []int32
}

// findWays returns the ways of a call site, or nil if no caller separates kept from freed memory.
// parts is the memory of the site by stack. The callers nearest to the site win: findWays tries to
// separate by the direct callers, then by the callers of these, and so on.
func (f *wayFinder) findWays(g *groupStats, parts []*groupStats) []way {
	if len(parts) < 2 || g.frees < minFreedShare*minBlocksPerWay || g.allocs-g.frees < minFreedShare*minBlocksPerWay {
		return nil
	}
	paths := make([]callPath, len(parts))
	deepest := 0
	for i, p := range parts {
		paths[i] = callPath{p, f.callersOf(p.firstStack)}
		deepest = max(deepest, len(paths[i].callers))
	}
	for depth := range deepest {
		if ways, ok := separate(nil, paths, depth); ok && areSeparate(ways) {
			return ways
		}
	}
	return nil
}

// callersOf returns the callers of the call site of a stack, innermost first. A recursive caller is in
// the list once.
func (f *wayFinder) callersOf(stackID int32) []int32 {
	var list []int32
	for _, frame := range f.reader.CallSiteAndCallers(stackID) {
		if name := f.nameOf(frame); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[1:]
}

// nameOf returns the index of a frame's name with its line.
func (f *wayFinder) nameOf(frame int32) int32 {
	name, ok := f.byFrame[frame]
	if !ok {
		at := &f.t.Stacks.Frames[frame]
		name = f.callers.NumberOf(symbolize.NameWithLine(query.FrameName(at), at.File, at.Line))
		f.byFrame[frame] = name
	}
	return name
}

// separate adds the paths to the ways of their callers at a depth. The paths of a caller that neither
// keeps nor frees its memory are separated by their callers in turn. separate returns false if that fails,
// or if there are more than maxWays ways.
func separate(ways []way, paths []callPath, depth int) ([]way, bool) {
	classes, ok := classify(paths, depth)
	for i := 0; ok && i < len(classes); i++ {
		c := &classes[i]
		if c.isKept() || c.isFreed() {
			ways = addWay(ways, c)
		} else {
			ways, ok = separate(ways, c.paths, depth+1)
		}
		ok = ok && len(ways) <= maxWays
	}
	return ways, ok
}

// callerClass is the memory of one caller, with the paths to it.
type callerClass struct {
	way
	paths []callPath
}

// classify groups paths by their caller at a depth, in the order of their first path. It returns false
// if a path has no such caller.
func classify(paths []callPath, depth int) (list []callerClass, ok bool) {
	index := make(map[int32]int)
	for _, p := range paths {
		if depth >= len(p.callers) {
			return nil, false
		}
		caller := p.callers[depth]
		i, ok := index[caller]
		if !ok {
			i = len(list)
			index[caller] = i
			list = append(list, callerClass{way: way{caller: caller}})
		}
		list[i].addPart(p.part)
		list[i].paths = append(list[i].paths, p)
	}
	return list, true
}

// addWay adds a class to the way of its caller. One caller may reach the site through several functions.
func addWay(ways []way, c *callerClass) []way {
	i := slices.IndexFunc(ways, func(w way) bool { return w.caller == c.caller })
	if i < 0 {
		return append(ways, c.way)
	}
	for _, p := range c.parts {
		ways[i].addPart(p)
	}
	return ways
}

// areSeparate reports whether some ways keep their memory, all others free it, and each has enough blocks.
func areSeparate(ways []way) bool {
	kept, freed := 0, 0
	for i := range ways {
		switch w := &ways[i]; {
		case w.allocs < minBlocksPerWay:
			return false
		case w.isKept():
			kept++
		case w.isFreed():
			freed++
		}
	}
	return kept > 0 && freed > 0 && kept+freed == len(ways)
}
