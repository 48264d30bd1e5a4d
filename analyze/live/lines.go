package live

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// linesOf returns the call sites of a process, with their calls, live memory and tensors.
func (m *Monitor) linesOf(p *Process) map[string]Line {
	lines := make(map[string]Line)
	for site, l := range m.processes[p.Pid].bySite {
		lines[site] = Line{Site: site, Calls: l.calls, Launches: l.launches, WaitNs: l.waitNs}
	}
	for site, memory := range m.memory.bySite[p.Pid] {
		name := m.memory.origins.Strings.List[site]
		l := lines[name]
		l.Site, l.LiveBytes, l.LiveBlocks = name, memory.bytes, memory.blocks
		lines[name] = l
	}
	if p.Allocator == nil || p.Exited || len(m.memory.gaps) > 0 {
		return lines
	}
	p.TensorsByLine = true
	for site, bytes := range m.memory.tensorsOf(p.Pid) {
		name := m.memory.origins.Strings.List[site]
		l := lines[name]
		l.Site, l.TensorBytes = name, bytes
		lines[name] = l
	}
	return lines
}

// tensorsOf returns the bytes of the live blocks of a process's allocators by the number of their call site. Blocks
// from before the recording are missing.
func (m *memory) tensorsOf(pid int32) map[int32]int64 {
	bytes := make(map[int32]int64)
	m.allocators.EachAllocator(func(a *caching.Allocator) {
		if a.Pid != pid {
			return
		}
		a.EachLiveBlock(func(b *caching.SegmentPiece) {
			if b.Origin != origin.NoOrigin && b.State == caching.PieceBlock {
				bytes[m.origins.List[b.Origin].Site] += b.Size
			}
		})
	})
	return bytes
}

// lineKeys are the numbers by which the largest lines are chosen.
var lineKeys = []func(*Line) int64{
	func(l *Line) int64 { return l.LiveBytes },
	func(l *Line) int64 { return l.TensorBytes },
	func(l *Line) int64 { return l.Launches },
	func(l *Line) int64 { return l.WaitNs },
	func(l *Line) int64 { return l.Calls },
}

// largestLines returns the lines that are among the shownLines largest ones by a key, those with the most calls first.
func largestLines(lines map[string]Line) []Line {
	list := make([]Line, 0, len(lines))
	for _, l := range lines {
		list = append(list, l)
	}
	chosen := 0
	for _, key := range lineKeys {
		if len(list) <= shownLines {
			chosen = len(list)
			break
		}
		rest := list[chosen:]
		slices.SortFunc(rest, func(a, b Line) int {
			return cmp.Or(cmp.Compare(key(&b), key(&a)), cmp.Compare(a.Site, b.Site))
		})
		chosen += min(len(rest), shownLines)
	}
	list = list[:chosen]
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Site, b.Site))
	})
	return list
}
