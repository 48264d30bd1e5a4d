package perfetto

import (
	"cmp"
	"iter"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
)

// memoryStep is a new value of a memory counter, or a failed allocation.
type memoryStep struct {
	atNs    int64 // Unix ns
	device  int32
	memory  string // kind of memory, or state.AllMemory
	live    int64  // live bytes from atNs on
	counter string // name of a caching allocator's counter; "" for driver memory
	failed  bool   // the step is a failed allocation
	bytes   int64  // requested size of the failed allocation
}

// replayResult is the result of a replay of memory. It is set when the iterator of memorySteps
// ends.
type replayResult struct {
	counts livemem.Counts
	err    error
}

// memorySteps replays memory and returns an iterator over its steps. The result is complete when
// the iterator has ended.
func memorySteps(t *timeline.Timeline, f *query.Filter) (iter.Seq[memoryStep], *replayResult) {
	result := new(replayResult)
	return func(yield func(memoryStep) bool) {
		driver := memory.NewLevelScan(t, f)
		stopped := false
		send := func(s memoryStep) {
			if !stopped && !yield(s) {
				stopped = true
			}
		}
		exits := make(map[memory.DeviceKind]memoryStep) // last step of each level that changes at exitNs
		exitNs := int64(0)                              // time at which a process or context ended, Unix ns
		flush := func() {
			for _, p := range sortedPlaces(exits) {
				send(exits[p])
			}
			clear(exits)
		}
		levels := newAllocatorLevels(t, f, send)
		l, _, err := t.ReplayAll(func(_ *livemem.Set, c *livemem.Change) {
			kind, total := driver.Consume(c)
			if kind == nil {
				return
			}
			o := &t.Origins.List[c.Block.Origin]
			s := memoryStep{atNs: c.AtNs, device: o.Device, memory: t.Origins.Memory(c.Block.Origin), live: kind.Live}
			all := s
			all.memory = state.AllMemory
			if total != nil {
				all.live = total.Live
			}
			switch c.Kind {
			case livemem.AllocFailed:
				s.failed, s.bytes = true, c.Block.Bytes
				send(s)
			case livemem.FreedByExit, livemem.FreedWithCtx:
				if c.AtNs != exitNs {
					flush()
				}
				exitNs = c.AtNs
				exits[memory.DeviceKind{Device: s.device, Memory: s.memory}] = s
				if total != nil {
					exits[memory.DeviceKind{Device: s.device, Memory: state.AllMemory}] = all
				}
			default:
				flush()
				send(s)
				if total != nil {
					send(all)
				}
			}
		}, levels.consume)
		flush()
		levels.finish(t.Recording().ToNs)
		if result.err = err; err == nil {
			result.counts = l.Counts
		}
	}, result
}

// sortedPlaces returns the keys of m in order of device and kind of memory.
func sortedPlaces(m map[memory.DeviceKind]memoryStep) []memory.DeviceKind {
	var list []memory.DeviceKind
	for p := range m {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b memory.DeviceKind) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Memory, b.Memory))
	})
	return list
}

// memoryStep writes a step: the value of a counter, or an instant for a failed allocation.
func (p *trace) memoryStep(s *memoryStep) {
	if s.atNs > p.window.ToNs {
		return
	}
	at := max(s.atNs, p.window.FromNs)
	if s.failed {
		if s.atNs >= p.window.FromNs {
			p.instant(p.gpuTrack(s.device, "failed allocations"), "allocation failed: "+units.Bytes(s.bytes))
			p.w.note("bytes", annotationInt, uint64(s.bytes))
			p.w.finish(at)
		}
		return
	}
	name := "live memory"
	if s.counter != "" {
		name = s.counter
	} else if s.memory != state.AllMemory {
		name += " (" + s.memory + ")"
	}
	p.level(at, trackKey{device: s.device, kind: name}, byteCounter, float64(s.live))
}

// sample writes a sample of an NVML metric, or of the free memory that cuMemGetInfo returned.
func (p *trace) sample(s *facts.Sample) {
	if !p.inWindow(s.AtNs) || len(p.filter.Devices) > 0 && !slices.Contains(p.filter.Devices, s.Device) {
		return
	}
	name, unit := deviceFree, byteCounter
	if s.Metric != metricDeviceFree {
		metric := p.t.Facts.Metrics.List[s.Metric]
		name, unit = "NVML "+metric, counterUnit(metric)
	}
	p.level(s.AtNs, trackKey{device: s.Device, kind: name}, unit, s.Value)
}

// level writes a value of a counter, and keeps it for the next part of the trace.
func (p *trace) level(ns int64, key trackKey, unit []byte, value float64) {
	p.levels[key] = counterValue{unit, value}
	p.w.counter(ns, p.counterTrack(key, unit), value)
}

// counterValue is the last value of a counter.
type counterValue struct {
	unit  []byte // encoded CounterDescriptor
	value float64
}

// wait adds step to the number of threads of a process that wait for the GPU: 1 at the start of a wait,
// -1 at its end.
func (p *trace) wait(ns int64, pid int32, step float64) {
	key := trackKey{kind: waitingThreads, pid: pid, device: processTracks}
	p.level(ns, key, threadCounter, p.levels[key].value+step)
}

// waitingThreads is the name of the counter of threads that wait for the GPU.
const waitingThreads = "threads waiting for the GPU"

// deviceFree is the name of the counter of free device memory that cuMemGetInfo returned.
const deviceFree = "device free (cuMemGetInfo)"

// metricDeviceFree is the metric number of deviceFree. Numbers of NVML metrics are not negative.
const metricDeviceFree = -1

// allSamples returns the samples of NVML and the results of cuMemGetInfo in order of time.
func allSamples(t *timeline.Timeline) []facts.Sample {
	if len(t.Free) == 0 {
		return t.Facts.Samples
	}
	all := slices.Clone(t.Facts.Samples)
	for _, s := range t.Free {
		all = append(
			all,
			facts.Sample{AtNs: s.AtNs, Value: float64(s.FreeBytes), Metric: metricDeviceFree, Device: s.Device},
		)
	}
	slices.SortStableFunc(all, func(a, b facts.Sample) int { return cmp.Compare(a.AtNs, b.AtNs) })
	return all
}
