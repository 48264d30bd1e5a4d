//go:build linux

package interpreter

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
)

// generationUnknown is the generation of a pause if the counts of collections do not tell it.
const generationUnknown = -1

// pause is a garbage collection between two readings that found none. It begins and ends in the middle between
// two readings, so that the sum of many pauses has no bias. Both ends are uncertain by gapNs at most.
type pause struct {
	startNs, endNs, gapNs int64 // on CLOCK_MONOTONIC
	tid                   int32 // the holder of the GIL, 0 if unknown
	generation            int32
	// isOpen says that the pause had not ended.
	isOpen bool
}

// row returns the row of a pause.
func (p pause) row(pid int, c clock.Clock) format.Row {
	row := format.Row{
		Kind: format.KindGC, StartNs: c.UnixNs(uint64(p.startNs)), DurNs: p.endNs - p.startNs, Device: -1,
		Pid: int32(pid), Tid: p.tid, Result: p.generation, Value: float64(p.gapNs), Message: format.SourceSampled,
	}
	if p.isOpen {
		row.Flags = format.FlagOpen
	}
	return row
}

// pauses derives the pauses for garbage collection from successive readings.
type pauses struct {
	last    reading
	hasLast bool
	open    *pause
	// before is the pause before open, if the two may be one.
	before *pause
	tids   map[int32]int // readings of the open pause, by holder
}

// add adds a reading, and returns the pauses that it ends. holder is the thread that held the GIL.
func (p *pauses) add(now reading, holder int32) (finished []pause) {
	if !now.hasGC {
		return nil
	}
	if !p.hasLast {
		p.last, p.hasLast = now, true
		p.last.gc.Collecting = false
		p.last.fromNs = now.fromNs
	}
	middle, gap := (p.last.fromNs+now.toNs)/2, now.toNs-p.last.fromNs
	ended, generation := countEnded(p.last.gc, now.gc)
	switch {
	case p.last.gc.Collecting && !now.gc.Collecting:
		finished = p.close(middle, gap, ended, generation)
	case p.last.gc.Collecting && ended > 0:
		p.split(middle, gap, generation, &finished)
	case !p.last.gc.Collecting && now.gc.Collecting:
		p.open, p.tids = &pause{startNs: middle, gapNs: gap}, make(map[int32]int)
	}
	if p.open != nil && holder != 0 {
		p.tids[holder]++
	}
	p.last = now
	return finished
}

// countEnded returns the number of collections that ended between two readings, and their generation if it
// is one. After an exec, the counts begin again.
func countEnded(before, now cpython.GC) (n uint64, generation int32) {
	generation = generationUnknown
	for i := range now.Collections {
		grown := now.Collections[i] - before.Collections[i]
		if now.Collections[i] < before.Collections[i] {
			grown = now.Collections[i]
		}
		if grown == 0 {
			continue
		}
		if generation = int32(i); n > 0 {
			generation = generationUnknown
		}
		n += grown
	}
	return n, generation
}

// close ends the open pause.
func (p *pauses) close(at, gapNs int64, ended uint64, generation int32) (finished []pause) {
	p.finish(at, gapNs, generation)
	switch {
	case p.before != nil && ended == 0:
		// CPython counts a collection shortly before its end: there was one pause.
		p.before.endNs, p.before.gapNs = p.open.endNs, max(p.before.gapNs, gapNs)
		finished = []pause{*p.before}
	case p.before != nil:
		finished = []pause{*p.before, *p.open}
	default:
		finished = []pause{*p.open}
	}
	p.open, p.before = nil, nil
	return finished
}

// split ends the open pause and begins another one.
func (p *pauses) split(at, gapNs int64, generation int32, finished *[]pause) {
	if p.before != nil {
		*finished = append(*finished, *p.before)
	}
	p.finish(at, gapNs, generation)
	p.before, p.open, p.tids = p.open, &pause{startNs: at, gapNs: gapNs}, make(map[int32]int)
}

// finish sets end, generation and thread of the open pause.
func (p *pauses) finish(at, gapNs int64, generation int32) {
	p.open.endNs, p.open.gapNs, p.open.generation = at, max(p.open.gapNs, gapNs), generation
	most := 0
	for tid, n := range p.tids {
		if n > most || n == most && tid < p.open.tid {
			p.open.tid, most = tid, n
		}
	}
}

// end returns the pause that has not ended at the last reading, and forgets the readings.
func (p *pauses) end(at int64) (finished []pause) {
	if p.open != nil {
		finished = p.close(at, 0, 1, generationUnknown)
		finished[len(finished)-1].isOpen = true
	}
	*p = pauses{}
	return finished
}
