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
	atNs    int64 // time of the step, Unix ns
	device  int32
	memory  string // kind of memory, or state.AllMemoryKind
	live    int64  // live bytes from atNs on
	counter string // name of a caching allocator's counter; "" for driver memory
	failed  bool   // the step is a failed allocation
	bytes   int64  // requested size of the failed allocation
}

// replayResult is the result of a replay of memory. It is set when the iterator of
// replayMemorySteps ends.
type replayResult struct {
	counts livemem.ReplayCounts
	err    error
}

// replayMemorySteps replays memory and returns an iterator over its steps. The result is complete
// when the iterator has ended.
func replayMemorySteps(t *timeline.Timeline, f *query.Filter) (iter.Seq[memoryStep], *replayResult) {
	result := new(replayResult)
	return func(yield func(memoryStep) bool) {
		driver := memory.NewLevelScan(t, f)
		stopped := false
		send := func(s memoryStep) {
			if !stopped && !yield(s) {
				stopped = true
			}
		}
		exits := make(map[memory.DeviceMemoryKind]memoryStep) // last step of each level that changes at exitNs
		exitNs := int64(0)                                    // time at which a process or context ended, Unix ns
		flush := func() {
			for _, p := range sortDeviceKinds(exits) {
				send(exits[p])
			}
			clear(exits)
		}
		levels := newAllocatorCounters(t, f, send)
		l, _, err := t.ReplayMemoryAndAllocators(func(_ *livemem.Set, c *livemem.Change) {
			kind, total := driver.OnDriverChange(c)
			if kind == nil {
				return
			}
			o := &t.Origins.List[c.Block.Origin]
			s := memoryStep{
				atNs:   c.AtNs,
				device: o.Device,
				memory: t.Origins.MemoryKindOf(c.Block.Origin),
				live:   kind.Live,
			}
			all := s
			all.memory = state.AllMemoryKind
			if total != nil {
				all.live = total.Live
			}
			switch c.Kind {
			case livemem.ChangeAllocFailed:
				s.failed, s.bytes = true, c.Block.Bytes
				send(s)
			case livemem.ChangeFreedByExit, livemem.ChangeFreedWithContext:
				if c.AtNs != exitNs {
					flush()
				}
				exitNs = c.AtNs
				exits[memory.DeviceMemoryKind{Device: s.device, Memory: s.memory}] = s
				if total != nil {
					exits[memory.DeviceMemoryKind{Device: s.device, Memory: state.AllMemoryKind}] = all
				}
			default:
				flush()
				send(s)
				if total != nil {
					send(all)
				}
			}
		}, levels.consumeChange)
		flush()
		levels.sendFinalTotals(t.RecordingWindow().ToNs)
		if result.err = err; err == nil {
			result.counts = l.Counts
		}
	}, result
}

// sortDeviceKinds returns the keys of a map of memory steps in order of device and kind of memory.
func sortDeviceKinds(m map[memory.DeviceMemoryKind]memoryStep) []memory.DeviceMemoryKind {
	var list []memory.DeviceMemoryKind
	for p := range m {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b memory.DeviceMemoryKind) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Memory, b.Memory))
	})
	return list
}

// writeMemoryStep writes a step: the value of a counter, or an instant for a failed allocation.
func (t *traceBuilder) writeMemoryStep(s *memoryStep) {
	if s.atNs > t.window.ToNs {
		return
	}
	at := max(s.atNs, t.window.FromNs)
	if s.failed {
		if s.atNs >= t.window.FromNs {
			t.startInstant(
				t.findGPUTrack(s.device, "failed allocations"),
				"allocation failed: "+units.FormatBytes(s.bytes),
			)
			t.w.addAnnotation("bytes", fieldAnnotationInt, uint64(s.bytes))
			t.w.finishEvent(at)
		}
		return
	}
	name := "live memory"
	if s.counter != "" {
		name = s.counter
	} else if s.memory != state.AllMemoryKind {
		name += " (" + s.memory + ")"
	}
	t.writeCounterValue(at, trackKey{device: s.device, kind: name}, byteCounterDescriptor, float64(s.live))
}

// writeSample writes a sample of an NVML metric, or of the free memory that cuMemGetInfo returned.
func (t *traceBuilder) writeSample(s *facts.DeviceSample) {
	if !t.isInWindow(s.AtNs) || len(t.filter.Devices) > 0 && !slices.Contains(t.filter.Devices, s.Device) {
		return
	}
	name, unit := deviceFreeCounter, byteCounterDescriptor
	if s.Metric != deviceFreeMetricID {
		metric := t.t.Facts.Metrics.List[s.Metric]
		name, unit = "NVML "+metric, newCounterDescriptor(metric)
	}
	t.writeCounterValue(s.AtNs, trackKey{device: s.Device, kind: name}, unit, s.Value)
}

// writeCounterValue writes a value of a counter, and keeps it for the next part of the trace.
func (t *traceBuilder) writeCounterValue(ns int64, key trackKey, unit []byte, value float64) {
	t.levels[key] = counterValue{unit, value}
	t.w.writeCounterEvent(ns, t.findCounterTrack(key, unit), value)
}

// counterValue is the last value of a counter.
type counterValue struct {
	unit  []byte // encoded CounterDescriptor
	value float64
}

// countWaitingThread adds step to the number of threads of a process that wait for the GPU: 1 at
// the start of a wait, -1 at its end.
func (t *traceBuilder) countWaitingThread(ns int64, pid int32, step float64) {
	key := trackKey{kind: waitingThreadsCounter, pid: pid, device: processTrackDevice}
	t.writeCounterValue(ns, key, threadCounterDescriptor, t.levels[key].value+step)
}

// waitingThreadsCounter is the name of the counter of threads that wait for the GPU.
const waitingThreadsCounter = "threads waiting for the GPU"

// deviceFreeCounter is the name of the counter of free device memory that cuMemGetInfo returned.
const deviceFreeCounter = "device free (cuMemGetInfo)"

// deviceFreeMetricID is the metric number of deviceFreeCounter. Numbers of NVML metrics are not
// negative.
const deviceFreeMetricID = -1

// collectSamples returns the samples of NVML and the results of cuMemGetInfo in order of time.
func collectSamples(t *timeline.Timeline) []facts.DeviceSample {
	if len(t.Free) == 0 {
		return t.Facts.Samples
	}
	all := slices.Clone(t.Facts.Samples)
	for _, s := range t.Free {
		all = append(
			all,
			facts.DeviceSample{AtNs: s.AtNs, Value: float64(s.FreeBytes), Metric: deviceFreeMetricID, Device: s.Device},
		)
	}
	slices.SortStableFunc(all, func(a, b facts.DeviceSample) int { return cmp.Compare(a.AtNs, b.AtNs) })
	return all
}
