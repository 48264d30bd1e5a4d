package html

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// memoryLines collects the totals that a memory chart draws as lines above the stacked call sites:
// bytes allocated from the driver, totals of PyTorch's allocators, and bytes in use according to
// NVML.
type memoryLines struct {
	t       *timeline.Timeline
	filter  *query.Filter
	window  query.Window
	drivers map[int32]*driverMemoryLine // driver memory, by device
	torch   map[int32]*torchMemoryLine  // allocator totals, by device
}

// driverMemoryLine is the driver memory of a device over time.
type driverMemoryLine struct {
	*valueCurve
	bytes int64 // live driver memory at present
	begun bool  // the value at the start of the window was added
}

// begin adds the value at the start of the window.
func (l *driverMemoryLine) begin() {
	if !l.begun {
		l.begun = true
		l.addValue(l.window.FromNs, float64(l.bytes))
	}
}

// torchMemoryLine is the sum of the totals of a device's caching allocators over time. The memory
// that an allocator had before the recording is known only at its end. Then all earlier points are
// raised by this memory.
type torchMemoryLine struct {
	reserved, allocated *valueCurve
	parts               []allocatorShare
	sum                 caching.AllocatorTotals // sum of the totals in parts
	lastNs              int64                   // time of the last change, Unix ns
}

// allocatorShare is the share of one allocator in a torchMemoryLine.
type allocatorShare struct {
	a       *caching.Allocator
	counted caching.AllocatorTotals // totals of a that are in torchMemoryLine.sum
}

func newMemoryLines(t *timeline.Timeline, f *query.Filter) *memoryLines {
	return &memoryLines{
		t:       t,
		filter:  f,
		window:  f.NarrowWindow(t.RecordingWindow()),
		drivers: make(map[int32]*driverMemoryLine),
		torch:   make(map[int32]*torchMemoryLine),
	}
}

// addDriverChange follows one change of driver memory.
func (l *memoryLines) addDriverChange(c *livemem.Change) {
	o := &l.t.Origins.List[c.Block.Origin]
	if c.Kind == livemem.ChangeAllocFailed || c.Block.Bytes < l.filter.MinBytes ||
		!l.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) ||
		l.t.IsHostOrigin(c.Block.Origin) {
		return
	}
	device := o.Device
	line := l.drivers[device]
	if line == nil {
		line = &driverMemoryLine{valueCurve: newValueCurve(l.window)}
		l.drivers[device] = line
	}
	if !c.Block.IsEarlier() || c.AtNs >= l.window.FromNs {
		line.begin()
	}
	line.bytes += livemem.LiveBytesChange(c)
	if line.begun {
		line.addValue(c.AtNs, float64(line.bytes))
	}
}

// addAllocatorChange follows one change of a caching allocator. It is called before the change, so
// the totals of a are those since the previous change.
func (l *memoryLines) addAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if !l.filter.PassesAllocator(a.Pid, a.Device) || c.Op == caching.OpBlockResized {
		return
	}
	line := l.torch[a.Device]
	if line == nil {
		line = &torchMemoryLine{
			reserved:  newValueCurve(l.window),
			allocated: newValueCurve(l.window),
			lastNs:    l.window.FromNs,
		}
		l.torch[a.Device] = line
	}
	i := slices.IndexFunc(line.parts, func(p allocatorShare) bool { return p.a == a })
	if i < 0 {
		line.parts = append(line.parts, allocatorShare{a: a})
		i = len(line.parts) - 1
	}
	line.addPresentTotals()
	line.lastNs = c.AtNs
	if c.Op == caching.OpAllocatorEnd {
		line.endAllocator(&line.parts[i])
		line.sum.Reserved -= line.parts[i].counted.Reserved
		line.sum.Allocated -= line.parts[i].counted.Allocated
		line.parts = slices.Delete(line.parts, i, i+1)
		line.addPresentTotals()
	}
}

// endAllocator raises the line by the memory that an allocator had before the recording.
func (l *torchMemoryLine) endAllocator(p *allocatorShare) {
	l.reserved.raiseValues(float64(p.a.Before.Reserved))
	l.allocated.raiseValues(float64(p.a.Before.Allocated))
}

// addPresentTotals adds the present totals of the allocators to the line, at the time of the last
// change.
func (l *torchMemoryLine) addPresentTotals() {
	for i := range l.parts {
		p := &l.parts[i]
		l.sum.Reserved += p.a.Seen.Reserved - p.counted.Reserved
		l.sum.Allocated += p.a.Seen.Allocated - p.counted.Allocated
		p.counted = p.a.Seen
	}
	l.reserved.addValue(l.lastNs, float64(l.sum.Reserved))
	l.allocated.addValue(l.lastNs, float64(l.sum.Allocated))
}

// finishLines completes the lines of all caching allocators at the end of the recording.
func (l *memoryLines) finishLines() {
	for _, line := range l.drivers {
		line.begin()
	}
	for _, line := range l.torch {
		line.addPresentTotals()
		for i := range line.parts {
			line.endAllocator(&line.parts[i])
		}
	}
}

// addLinesToCharts adds the lines of memory totals to the memory charts of their devices.
func (l *memoryLines) addLinesToCharts(d *chartData) {
	t := l.t
	for i := range d.Memory {
		m := &d.Memory[i]
		if m.device == hostDeviceKey {
			continue
		}
		if line := l.torch[m.device]; line != nil {
			m.Lines = append(
				m.Lines,
				newLineData(t, "PyTorch reserved", line.reserved.finishPoints(), 1),
				newLineData(t, "PyTorch allocated", line.allocated.finishPoints(), 1),
			)
		}
		if line := l.drivers[m.device]; line != nil {
			m.Lines = append(m.Lines, newLineData(t, "allocated from the driver", line.finishPoints(), 1))
		}
		m.Lines = append(m.Lines, l.newNVMLLines(m.device)...)
	}
}

// newNVMLLines returns lines of NVML's samples for a CUDA device. It returns none if the device is
// unknown to NVML, or is a different GPU in different processes.
func (l *memoryLines) newNVMLLines(device int32) (lines []lineData) {
	f := &l.t.Facts
	gpus := make(map[int32]bool)
	for _, pid := range slices.Sorted(maps.Keys(f.Processes)) {
		if index, ok := f.NVMLIndexOf(pid, device); ok {
			gpus[index] = true
		}
	}
	if len(gpus) != 1 {
		return nil
	}
	for index := range gpus {
		if c := l.sumProcessMemory(index); c != nil {
			lines = append(lines, newLineData(l.t, "recorded processes, by NVML", c.finishPoints(), 1))
		}
		if id, ok := f.Metrics.Ids[catalog.MetricMemoryUsed]; ok {
			c := newValueCurve(l.window)
			for _, s := range f.Samples {
				if s.Metric == id && s.Device == index && s.AtNs >= l.window.FromNs && s.AtNs <= l.window.ToNs {
					c.addValue(s.AtNs, s.Value)
				}
			}
			if points := c.finishPoints(); len(points) > 0 {
				lines = append(lines, newLineData(l.t, fmt.Sprintf("all of GPU %d, by NVML", index), points, 1))
			}
		}
	}
	return lines
}

// sumProcessMemory returns the sum of the memory that NVML counts for the recorded processes on a
// GPU. It returns nil if there are no samples in the window.
func (l *memoryLines) sumProcessMemory(gpu int32) *valueCurve {
	f := &l.t.Facts
	id, ok := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !ok {
		return nil
	}
	var c *valueCurve
	last, sum := make(map[int32]float64), 0.0
	for _, s := range f.ProcessSamples {
		if _, recorded := f.Processes[s.Pid]; s.Metric != id || s.Device != gpu || !recorded ||
			s.AtNs > l.window.ToNs ||
			!(s.Value >= 0) {
			continue
		}
		sum += s.Value - last[s.Pid]
		last[s.Pid] = s.Value
		if s.AtNs < l.window.FromNs {
			continue
		}
		if c == nil {
			c = newValueCurve(l.window)
		}
		c.addValue(s.AtNs, sum)
	}
	return c
}
