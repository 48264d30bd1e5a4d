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

// memoryStep is a new level of live memory, or a failed allocation.
type memoryStep struct {
	atNs   int64
	device int32
	memory string
	live   int64
	what   string // of a caching allocator: which of its totals; "" of memory calls
	failed bool
	bytes  int64 // asked for by the failed allocation
}

// stepCounts is what a replay that ran as an iterator has to say at its end.
type stepCounts struct {
	counts livemem.Counts
	err    error
}

// memorySteps replays memory as an iterator over its levels. Its counts are whole
// once it came to its end.
func memorySteps(t *timeline.Timeline, f *query.Filter) (iter.Seq[memoryStep], *stepCounts) {
	done := new(stepCounts)
	return func(yield func(memoryStep) bool) {
		use := memory.NewLevelScan(t, f)
		stopped := false
		send := func(s memoryStep) {
			if !stopped && !yield(s) {
				stopped = true
			}
		}
		exits := make(map[memory.Place]memoryStep) // levels that the end of a process or context is changing
		exitNs := int64(0)
		flush := func() {
			for _, p := range sortedPlaces(exits) {
				send(exits[p])
			}
			clear(exits)
		}
		levels := newAllocatorLevels(t, f, send)
		l, _, err := t.ReplayAll(func(_ *livemem.Set, c *livemem.Change) {
			kind, total := use.Consume(c)
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
				exits[memory.Place{Device: s.device, Memory: s.memory}] = s
				if total != nil {
					exits[memory.Place{Device: s.device, Memory: state.AllMemory}] = all
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
		if done.err = err; err == nil {
			done.counts = l.Counts
		}
	}, done
}

func sortedPlaces(m map[memory.Place]memoryStep) []memory.Place {
	var list []memory.Place
	for p := range m {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b memory.Place) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Memory, b.Memory))
	})
	return list
}

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
	if s.what != "" {
		name = s.what
	} else if s.memory != state.AllMemory {
		name += " (" + s.memory + ")"
	}
	p.level(at, trackKey{device: s.device, what: name}, byteCounter, float64(s.live))
}

func (p *trace) sample(s *facts.Sample) {
	if !p.inWindow(s.AtNs) || len(p.filter.Devices) > 0 && !slices.Contains(p.filter.Devices, s.Device) {
		return
	}
	name, unit := deviceFree, byteCounter
	if s.Metric != metricDeviceFree {
		metric := p.t.Facts.Metrics.List[s.Metric]
		name, unit = "NVML "+metric, counterUnit(metric)
	}
	p.level(s.AtNs, trackKey{device: s.Device, what: name}, unit, s.Value)
}

// level writes a value of a counter, and remembers it for the next part of the trace.
func (p *trace) level(ns int64, key trackKey, unit []byte, value float64) {
	p.levels[key] = levelNow{unit, value}
	p.w.counter(ns, p.counterTrack(key, unit), value)
}

// levelNow is the last value of a counter.
type levelNow struct {
	unit  []byte // CounterDescriptor
	value float64
}

// wait notes that a thread of a process begins (1) or ends (-1) to wait for the GPU.
func (p *trace) wait(ns int64, pid int32, step float64) {
	key := trackKey{what: waitingThreads, pid: pid, device: processTracks}
	p.level(ns, key, threadCounter, p.levels[key].value+step)
}

// waitingThreads is the counter of a process's threads that wait for the GPU.
const waitingThreads = "threads waiting for the GPU"

// deviceFree is the counter of what programs were told is free.
const deviceFree = "device free (cuMemGetInfo)"

// metricDeviceFree is its number; those of NVML's metrics are not negative.
const metricDeviceFree = -1

// allSamples returns the samples of NVML and of cuMemGetInfo in order of time.
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
