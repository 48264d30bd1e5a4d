package idle

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

// Bound names the processor that limits the speed of a program in a span of time.
type Bound uint8

// Kinds of Bound.
const (
	BoundUnknown Bound = iota // the recording does not determine it
	BoundMixed
	BoundCPU // the queue is mostly empty, and the GPU idles
	BoundGPU // the queue is mostly not empty, and the GPU is busy
)

const (
	emptyDepth    = 1.0  // a queue with fewer operations on average counts as empty
	mostlyPct     = 70.0 // share of the time in which a queue is mostly empty, or mostly not
	cpuBusyPct    = 90.0 // the upper bound of the busy time is below this, if the CPU limits
	noWaitPct     = 10.0 // a host that waits less for the GPU, with an empty queue, is the limit at any busy time
	gpuBusyPct    = 90.0 // the probable busy time is above this, if the GPU limits
	gpuBusyMinPct = 75.0 // the lower bound of the busy time is above this, if the GPU limits
	neverIdlePct  = 95.0 // the same, even if the queue is empty
	widePct       = 40.0 // a wider interval of the busy time determines no bound
)

// Span is a slice or a phase of a device.
type Span struct {
	Window     query.Window
	Time       Time
	Bound      Bound
	DepthP50   float64 // operations in the queue
	DepthMax   float64
	StartDelay *stats.Durations // from call to start of operations, only of slices
}

// Slices returns equal parts of the window.
func (d *Device) Slices() (list []Span) {
	for i := range Slices {
		s := d.spanOf(i*cellsOfSlice, (i+1)*cellsOfSlice)
		s.StartDelay = &d.startDelays[i].Durations
		list = append(list, s)
	}
	return list
}

// Parts returns the window as 200 equal parts: each slice is ten of them. They have no StartDelay. The
// bounds of a slice can be wider than those of its parts together.
func (d *Device) Parts() (list []Span) {
	for from := 0; from < numCells; from += cellsOfPart {
		list = append(list, d.spanOf(from, from+cellsOfPart))
	}
	return list
}

// spanOf returns a range of cells as a Span.
func (d *Device) spanOf(from, to int) Span {
	depths := d.depths(from, to)
	slices.Sort(depths)
	s := Span{
		Window:   query.Window{FromNs: d.timeOf(from), ToNs: d.timeOf(to)},
		Time:     d.sum(from, to),
		DepthP50: stats.Median(depths),
		DepthMax: depths[len(depths)-1],
	}
	s.Bound = s.judge(depths, d.waitNs(from, to))
	return s
}

// timeOf returns the start of a cell, Unix ns.
func (d *Device) timeOf(cell int) int64 {
	return d.Window.FromNs + int64(float64(d.Window.DurNs())*float64(cell)/numCells)
}

// judge tells what limits the program, by the sorted depths of the queue.
func (s *Span) judge(depths []float64, waitNs float64) Bound {
	if s.Time.SpanNs < s.Time.UnrecordedNs {
		return BoundUnknown
	}
	empty, _ := slices.BinarySearch(depths, emptyDepth)
	emptyPct := 100 * float64(empty) / float64(len(depths))
	low, probable, high := s.Time.BusyPct()
	switch {
	case emptyPct >= mostlyPct && (high < cpuBusyPct || 100*waitNs < noWaitPct*s.Time.SpanNs):
		return BoundCPU
	case emptyPct <= 100-mostlyPct && probable >= gpuBusyPct && low >= gpuBusyMinPct, low >= neverIdlePct:
		return BoundGPU
	case high-low > widePct:
		return BoundUnknown
	}
	return BoundMixed
}

// Phases returns the window as phases with one bound each. A phase is at least a hundredth of the window
// long.
func (d *Device) Phases() (list []Span) {
	const group, shortest = cellsOfPart, 2
	var bounds []Bound
	for from := 0; from+group <= numCells; from += group {
		s := d.spanOf(from, from+group)
		bounds = append(bounds, s.Bound)
	}
	absorbShort(bounds, shortest)
	start := 0
	for i := 1; i <= len(bounds); i++ {
		if i < len(bounds) && bounds[i] == bounds[start] {
			continue
		}
		list = append(list, d.phaseOf(start*group, i*group, bounds[start]))
		start = i
	}
	return list
}

// phaseOf returns a range of cells with a bound. Cells without one clear bound are judged together.
func (d *Device) phaseOf(from, to int, b Bound) Span {
	s := d.spanOf(from, to)
	if b == BoundCPU || b == BoundGPU {
		s.Bound = b
	}
	return s
}

// absorbShort gives stretches of runs of fewer than shortest values one value: that of the run before,
// or after, and BoundMixed if the stretch itself is longer.
func absorbShort(bounds []Bound, shortest int) {
	runEnd := func(start int) int {
		end := start + 1
		for end < len(bounds) && bounds[end] == bounds[start] {
			end++
		}
		return end
	}
	for start := 0; start < len(bounds); {
		end := runEnd(start)
		if end-start >= shortest {
			start = end
			continue
		}
		for end < len(bounds) && runEnd(end)-end < shortest {
			end = runEnd(end)
		}
		value := BoundMixed
		if end-start < 2*shortest && start > 0 {
			value = bounds[start-1]
		} else if end-start < 2*shortest && end < len(bounds) {
			value = bounds[end]
		}
		for i := start; i < end; i++ {
			bounds[i] = value
		}
		start = end
	}
}
