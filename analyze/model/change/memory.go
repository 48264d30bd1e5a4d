package change

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Memory has the highest driver memory and allocator memory of each process in equal parts of a window. Use
// OnDriverChange and OnAllocatorChange as consumers of a replay.
type Memory struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	levels map[levelKey]*level
	// Most changes of allocators are of the process of the change before, which has these levels.
	allocated, reserved *level
	allocatorPid        int32
	// Growths are the times at which allocators got memory from the driver, and at which allocations failed.
	Growths  []Growth
	Failures []Growth
}

// Growth is memory that an allocator got or did not get.
type Growth struct {
	AtNs, Bytes int64
	Pid         int32
}

type levelKey struct {
	metric string
	pid    int32
}

// memoryParts is the number of parts of the window.
const memoryParts = 512

// maxGrowths bounds Growths and Failures.
const maxGrowths = 1 << 16

// level is the highest value in each part so far.
type level struct {
	most []float64 // of the parts that have begun
	now  float64
}

// NewMemory returns an empty Memory of a window.
func NewMemory(t *timeline.Timeline, f *query.Filter, w query.Window) *Memory {
	return &Memory{t: t, filter: f, window: w, levels: make(map[levelKey]*level)}
}

// levelOf returns the level of a metric of a process.
func (m *Memory) levelOf(metric string, pid int32) *level {
	key := levelKey{metric, pid}
	l := m.levels[key]
	if l == nil {
		l = new(level)
		m.levels[key] = l
	}
	return l
}

// set sets the value of a level from a time on. Times must not decrease.
func (m *Memory) set(l *level, atNs int64, value float64) {
	if atNs >= m.window.FromNs {
		l.advance(1 + int(float64(min(atNs, m.window.ToNs)-m.window.FromNs)/float64(m.window.DurNs()+1)*memoryParts))
	}
	l.now = value
	if n := len(l.most); n > 0 && atNs <= m.window.ToNs {
		l.most[n-1] = max(l.most[n-1], value)
	}
}

// advance begins parts until there are n.
func (l *level) advance(n int) {
	for len(l.most) < n {
		l.most = append(l.most, l.now)
	}
}

// OnDriverChange processes a change of driver memory.
func (m *Memory) OnDriverChange(c *livemem.Change) {
	o := &m.t.Origins.List[c.Block.Origin]
	if m.t.IsHostOrigin(c.Block.Origin) || !m.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	if c.Kind == livemem.ChangeAllocFailed {
		m.addFailure(Growth{c.AtNs, c.Block.Bytes, o.Pid})
		return
	}
	l := m.levelOf(MetricDriverMemory, o.Pid)
	m.set(l, c.AtNs, l.now+float64(livemem.LiveBytesChange(c)))
}

func (m *Memory) addFailure(g Growth) {
	if len(m.Failures) < maxGrowths {
		m.Failures = append(m.Failures, g)
	}
}

// OnAllocatorChange processes a change of a caching allocator.
func (m *Memory) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if !m.filter.PassesAllocator(a.Pid, a.Device) {
		return
	}
	switch c.Op {
	case caching.OpSegmentAllocated, caching.OpSegmentMapped:
		if len(m.Growths) < maxGrowths {
			m.Growths = append(m.Growths, Growth{c.AtNs, c.Bytes, a.Pid})
		}
	case caching.OpOutOfMemory:
		m.addFailure(Growth{c.AtNs, c.Block.Size, a.Pid})
	case caching.OpAllocatorEnd:
		return // the end of a process is no change of its job
	}
	var allocated, reserved int64
	for _, other := range a.Set.List {
		if other != nil && other.Pid == a.Pid {
			totals := other.Totals()
			allocated, reserved = allocated+totals.Allocated, reserved+totals.Reserved
		}
	}
	if m.allocated == nil || m.allocatorPid != a.Pid {
		m.allocatorPid = a.Pid
		m.allocated, m.reserved = m.levelOf(MetricAllocatedMemory, a.Pid), m.levelOf(MetricReservedMemory, a.Pid)
	}
	m.set(m.allocated, c.AtNs, float64(allocated))
	m.set(m.reserved, c.AtNs, float64(reserved))
}

// AddMemory adds the memory of each process. Parts are added until their highest values differ little.
func (s *Search) AddMemory(m *Memory) {
	keys := slices.SortedFunc(maps.Keys(m.levels), func(a, b levelKey) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.pid, b.pid))
	})
	for _, key := range keys {
		l := m.levels[key]
		l.advance(memoryParts)
		d, order := describe(key.metric)
		subject := Subject{Device: -1, Pid: key.pid}
		span, _ := s.spans.of(subject)
		partNs := float64(m.window.DurNs()+1) / memoryParts
		first, last := int(float64(span.FromNs-m.window.FromNs)/partNs), int(float64(span.ToNs-m.window.FromNs)/partNs)
		if last-first < changepoint.MinSamples {
			continue
		}
		most := steadyPeaks(l.most[first:last])
		size := float64(last-first) / float64(len(most))
		var values changepoint.Series
		for i, v := range most {
			at := m.window.FromNs + int64((float64(first)+(float64(i)+0.5)*size)*partNs)
			values.AtNs, values.Values = append(values.AtNs, at), append(values.Values, v)
		}
		s.addSums(&d, order, subject, values)
	}
}

// steadyPeaks joins neighboring parts until their highest values differ little. A step that is longer than a
// part makes single parts differ.
func steadyPeaks(most []float64) []float64 {
	const fewest, usualShare = 64, 0.01
	for len(most)/2 >= fewest {
		differences := make([]float64, 0, len(most))
		for i := 1; i < len(most); i++ {
			differences = append(differences, math.Abs(most[i]-most[i-1]))
		}
		slices.Sort(differences)
		if differences[len(differences)*3/4] <= usualShare*slices.Max(most) {
			break
		}
		joined := make([]float64, len(most)/2)
		for i := range joined {
			joined[i] = max(most[2*i], most[2*i+1])
		}
		most = joined
	}
	return most
}
