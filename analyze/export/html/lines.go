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

// memoryLines are totals that a chart of memory draws over what it stacks: what calls got from
// the driver, what PyTorch's allocators have of it, what NVML counts.
type memoryLines struct {
	t       *timeline.Timeline
	filter  *query.Filter
	window  query.Window
	drivers map[int32]*driverLine // by device
	torch   map[int32]*torchLine
}

type driverLine struct {
	*curve
	bytes int64
}

// torchLine sums up the allocators of a device. What one had before the recording is known at its
// end only: then all points until then are raised by it.
type torchLine struct {
	reserved, allocated *curve
	parts               []torchPart
	sum                 caching.Totals
	lastNs              int64
}

type torchPart struct {
	a    *caching.Allocator
	seen caching.Totals
}

func newMemoryLines(t *timeline.Timeline, f *query.Filter) *memoryLines {
	return &memoryLines{
		t:       t,
		filter:  f,
		window:  f.Window(t.Recording()),
		drivers: make(map[int32]*driverLine),
		torch:   make(map[int32]*torchLine),
	}
}

// driver follows the driver's memory on devices.
func (l *memoryLines) driver(c *livemem.Change) {
	o := &l.t.Origins.List[c.Block.Origin]
	if c.Kind == livemem.AllocFailed || c.Block.Bytes < l.filter.MinBytes ||
		!l.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) ||
		l.t.OnHost(c.Block.Origin) {
		return
	}
	device := o.Device
	line := l.drivers[device]
	if line == nil {
		line = &driverLine{curve: newCurve(l.window)}
		line.add(l.window.FromNs, 0)
		l.drivers[device] = line
	}
	line.bytes += livemem.SignedBytes(c)
	line.add(c.AtNs, float64(line.bytes))
}

// allocator is told of a change before it is made: the books are those since the change before.
func (l *memoryLines) allocator(a *caching.Allocator, c *caching.Change) {
	if !l.filter.PassesAllocator(a.Pid, a.Device) || c.Op == caching.BlockResized {
		return
	}
	line := l.torch[a.Device]
	if line == nil {
		line = &torchLine{reserved: newCurve(l.window), allocated: newCurve(l.window), lastNs: l.window.FromNs}
		l.torch[a.Device] = line
	}
	i := slices.IndexFunc(line.parts, func(p torchPart) bool { return p.a == a })
	if i < 0 {
		line.parts = append(line.parts, torchPart{a: a})
		i = len(line.parts) - 1
	}
	line.update()
	line.lastNs = c.AtNs
	if c.Op == caching.AllocatorEnd {
		line.end(&line.parts[i])
		line.sum.Reserved -= line.parts[i].seen.Reserved
		line.sum.Allocated -= line.parts[i].seen.Allocated
		line.parts = slices.Delete(line.parts, i, i+1)
		line.update()
	}
}

func (l *torchLine) end(p *torchPart) {
	l.reserved.raise(float64(p.a.Before.Reserved))
	l.allocated.raise(float64(p.a.Before.Allocated))
}

func (l *torchLine) update() {
	for i := range l.parts {
		p := &l.parts[i]
		l.sum.Reserved += p.a.Seen.Reserved - p.seen.Reserved
		l.sum.Allocated += p.a.Seen.Allocated - p.seen.Allocated
		p.seen = p.a.Seen
	}
	l.reserved.add(l.lastNs, float64(l.sum.Reserved))
	l.allocated.add(l.lastNs, float64(l.sum.Allocated))
}

func (l *memoryLines) finish() {
	for _, line := range l.torch {
		line.update()
		for i := range line.parts {
			line.end(&line.parts[i])
		}
	}
}

// data adds the lines to the charts of memory.
func (l *memoryLines) data(d *htmlData) {
	t := l.t
	for i := range d.Memory {
		m := &d.Memory[i]
		if m.device == hostMemory {
			continue
		}
		if line := l.torch[m.device]; line != nil {
			m.Lines = append(
				m.Lines,
				ofTimelineLine(t, "PyTorch reserved", line.reserved.finish(), 1),
				ofTimelineLine(t, "PyTorch allocated", line.allocated.finish(), 1),
			)
		}
		if line := l.drivers[m.device]; line != nil {
			m.Lines = append(m.Lines, ofTimelineLine(t, "from the driver, by calls", line.finish(), 1))
		}
		m.Lines = append(m.Lines, l.nvml(m.device)...)
	}
}

// nvml are the samples of the GPU that processes know as device, where the recording pairs them.
func (l *memoryLines) nvml(device int32) (lines []htmlLine) {
	f := &l.t.Facts
	gpus := make(map[int32]bool)
	for _, pid := range slices.Sorted(maps.Keys(f.Processes)) {
		if index, ok := f.NVMLDevice(pid, device); ok {
			gpus[index] = true
		}
	}
	if len(gpus) != 1 {
		return nil
	}
	for index := range gpus {
		if c := l.ofProcesses(index); c != nil {
			lines = append(lines, ofTimelineLine(l.t, "the processes, by NVML", c.finish(), 1))
		}
		if id, ok := f.Metrics.Ids[catalog.MetricMemoryUsed]; ok {
			c := newCurve(l.window)
			for _, s := range f.Samples {
				if s.Metric == id && s.Device == index && s.AtNs >= l.window.FromNs && s.AtNs <= l.window.ToNs {
					c.add(s.AtNs, s.Value)
				}
			}
			if points := c.finish(); len(points) > 0 {
				lines = append(lines, ofTimelineLine(l.t, fmt.Sprintf("all of GPU %d, by NVML", index), points, 1))
			}
		}
	}
	return lines
}

// ofProcesses sums up what NVML counts for the recorded processes on a GPU.
func (l *memoryLines) ofProcesses(gpu int32) *curve {
	f := &l.t.Facts
	id, ok := f.Metrics.Ids[catalog.MetricOfProcess]
	if !ok {
		return nil
	}
	var c *curve
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
			c = newCurve(l.window)
		}
		c.add(s.AtNs, sum)
	}
	return c
}
