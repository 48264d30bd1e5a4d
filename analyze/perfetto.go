package analyze

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// DefaultMaxSlices is how many slices the Perfetto UI shows with comfort: loading
// 4.2 million took it 15 s and 1.3 GB.
const DefaultMaxSlices = 2_000_000

var perfettoColumns = []Column{
	{"process, thread", "", UnitText, "a slice per call, from its entry to its return, on the thread that made it, with its stack, arguments and result; a call that had not returned ends where the recording does and is marked open"},
	{"GPU n, stream s", "", UnitText, "an instant per launch, copy and memset when the CPU asked for it, in that order; when it ran on the GPU is not known"},
	{"GPU n, live memory", "", UnitBytes, "bytes allocated and not freed, replayed from the calls; memory allocated before the recording is not in it"},
	{"GPU n, PyTorch …", "", UnitBytes, "what PyTorch's caching allocator has handed out (allocated), has from the driver (reserved), and was asked for (requested); at most a thousand values a second"},
	{"GPU n, NVML …", "", UnitText, "samples of NVML, of the whole device"},
	{"GPU n, device free (cuMemGetInfo)", "", UnitBytes, "what programs were told is free on the whole device, when they asked"},
	{"GPU n, failed allocations; Xid errors", "", UnitText, "an instant each"},
	{"gpurec", "", UnitText, "intervals in which calls were lost, where launches, or their stacks, were not recorded because of --max-overhead, and where slices end because of --max-slices"},
}

// PerfettoOptions shape a trace.
type PerfettoOptions struct {
	Filter
	// MaxSlices bounds slices and instants; 0 is no bound. Beyond it calls are left
	// out, counters are not.
	MaxSlices int64
}

// PerfettoStats say what a trace holds.
type PerfettoStats struct {
	Calls   int64
	LeftOut int64 // calls beyond MaxSlices
	// LeftOutNs is the start of the first of those, Unix ns.
	LeftOutNs int64
	Quality   Quality
	NoMatch   *NoMatch
}

// Perfetto writes the recording as a trace for ui.perfetto.dev. It streams: packets
// are in order of time and memory is bounded by the calls that overlap. The error is
// one of reading the recording or of out.
func (t *Timeline) Perfetto(out io.Writer, opt PerfettoOptions) (*PerfettoStats, error) {
	p := newTrace(t, out, opt)
	p.w.begin(p.window.FromNs)
	steps, counts := t.memorySteps(&p.filter)
	next, stop := iter.Pull(steps)
	defer stop()
	p.nextStep = next
	p.step, p.hasStep = next()
	if err := inOrder(slices.Concat(t.memory, t.calls), p.stream(), p.call); err != nil {
		return nil, t.wrap(err)
	}
	p.advance(p.window.ToNs)
	p.endSlices()
	for p.hasStep { // the replay's counts are whole only at its end
		p.step, p.hasStep = next()
	}
	if err := counts.err; err != nil {
		return nil, err
	}
	p.w.packet = appendBytes(p.w.packet, fieldClockSnapshot, p.w.snapshot(p.window.ToNs))
	p.w.packet = appendVarint(p.w.packet, fieldSequenceID, sequenceID)
	p.w.flush()
	if p.w.err == nil {
		p.w.err = p.w.out.Flush()
	}
	p.stats.Quality = t.quality(&counts.counts)
	if p.stats.Calls+p.stats.LeftOut == 0 && t.scan.events > 0 {
		p.stats.NoMatch = p.seen.explain(&p.filter)
	}
	return &p.stats, p.w.err
}

// trace is a Perfetto trace being written.
type trace struct {
	t      *Timeline
	w      *traceWriter
	filter Filter
	window Window
	stats  PerfettoStats
	seen   *callers
	max    int64
	slices int64 // slices and instants written
	full   bool  // a call was left out: so are all after it

	nextUUID  uint64
	processes map[int32]uint64
	threads   map[thread]*threadTrack
	gpus      map[int32]uint64
	tracks    map[trackKey]uint64
	own       uint64     // track of gpurec itself
	ends      []sliceEnd // heap: slices that are open, the first to end in front
	flows     uint64

	nextStep func() (memoryStep, bool)
	step     memoryStep
	hasStep  bool
	samples  []sample
	marks    []mark
}

// threadTrack is a thread with the ends of the slices that are open on it, outermost
// first.
type threadTrack struct {
	uuid uint64
	open []int64
}

type sliceEnd struct {
	atNs   int64
	thread *threadTrack
}

// trackKey names a track under a GPU; pid and stream are set for those of streams.
type trackKey struct {
	device int32
	what   string
	pid    int32
	stream int64
}

// mark is an instant that stands for no call.
type mark struct {
	atNs  int64
	write func()
}

func newTrace(t *Timeline, out io.Writer, opt PerfettoOptions) *trace {
	p := &trace{
		t: t, w: newTraceWriter(out, &t.stacks, t.rec.Meta.ClockOffsetNs), filter: opt.Filter,
		window: opt.Filter.window(t.Recording()), max: opt.MaxSlices, seen: newCallers(),
		processes: make(map[int32]uint64), threads: make(map[thread]*threadTrack),
		gpus: make(map[int32]uint64), tracks: make(map[trackKey]uint64), samples: t.allSamples(),
	}
	for _, x := range t.facts.xids {
		p.marks = append(p.marks, mark{x.atNs, func() {
			p.instant(p.gpuTrack(x.device, "Xid errors", nil), fmt.Sprintf("Xid %d: %s", x.code, x.text))
			p.w.finish(x.atNs)
		}})
	}
	for _, l := range t.facts.lost {
		p.marks = append(p.marks, mark{l.startNs, func() {
			p.instant(p.ownTrack(), fmt.Sprintf("%s %s calls lost", thousands(l.calls), l.class))
			p.w.note("interval_ns", annotationInt, uint64(l.durNs))
			p.w.finish(l.startNs)
		}})
	}
	p.marks = append(p.marks, p.samplingMarks()...)
	slices.SortStableFunc(p.marks, func(a, b mark) int { return cmp.Compare(a.atNs, b.atNs) })
	return p
}

// advance writes everything but calls until atNs, in order of time: ends of slices,
// levels of memory, samples, marks; at one moment in this order.
func (p *trace) advance(atNs int64) {
	for {
		next := int64(math.MaxInt64)
		if len(p.ends) > 0 {
			next = p.ends[0].atNs
		}
		if p.hasStep {
			next = min(next, p.step.atNs)
		}
		if len(p.samples) > 0 {
			next = min(next, p.samples[0].atNs)
		}
		if len(p.marks) > 0 {
			next = min(next, p.marks[0].atNs)
		}
		if next > atNs || !p.pending() {
			return
		}
		p.writeNext(next)
	}
}

// pending reports whether anything but calls is left to write.
func (p *trace) pending() bool {
	return len(p.ends) > 0 || p.hasStep || len(p.samples) > 0 || len(p.marks) > 0
}

// writeNext writes the first thing that is due at ns.
func (p *trace) writeNext(ns int64) {
	switch {
	case len(p.ends) > 0 && p.ends[0].atNs == ns:
		p.endSlice()
	case p.hasStep && p.step.atNs == ns:
		p.memoryStep(&p.step)
		p.step, p.hasStep = p.nextStep()
	case len(p.samples) > 0 && p.samples[0].atNs == ns:
		p.sample(&p.samples[0])
		p.samples = p.samples[1:]
	default:
		if p.inWindow(ns) {
			p.marks[0].write()
		}
		p.marks = p.marks[1:]
	}
}

func (p *trace) inWindow(ns int64) bool { return ns >= p.window.FromNs && ns <= p.window.ToNs }

// beginSlice opens a slice on a thread and leaves the event open for more fields. A
// slice never reaches beyond the one around it, whatever two clocks say.
func (p *trace) beginSlice(th *threadTrack, endNs int64) {
	if n := len(th.open); n > 0 {
		endNs = min(endNs, th.open[n-1])
	}
	th.open = append(th.open, endNs)
	p.ends = heapPush(p.ends, sliceEnd{endNs, th}, func(a, b sliceEnd) bool { return a.atNs < b.atNs })
	p.w.start(eventSliceBegin, th.uuid)
}

func (p *trace) endSlice() {
	e := p.ends[0]
	p.ends = heapPop(p.ends, func(a, b sliceEnd) bool { return a.atNs < b.atNs })
	e.thread.open = e.thread.open[:len(e.thread.open)-1]
	p.w.start(eventSliceEnd, e.thread.uuid)
	p.w.finish(e.atNs)
}

func (p *trace) endSlices() {
	for len(p.ends) > 0 {
		p.endSlice()
	}
}

// instant opens an instant event; the caller may add fields and finishes it.
func (p *trace) instant(track uint64, name string) {
	p.w.start(eventInstant, track)
	p.w.name(name)
}

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

// allMemory is the level of all memory on a device; the host's is not.
const allMemory = "all"

// stepCounts is what a replay that ran as an iterator has to say at its end.
type stepCounts struct {
	counts replayCounts
	err    error
}

// memorySteps replays memory as an iterator over its levels. Its counts are whole
// once it came to its end.
func (t *Timeline) memorySteps(f *Filter) (iter.Seq[memoryStep], *stepCounts) {
	done := new(stepCounts)
	return func(yield func(memoryStep) bool) {
		use := t.newMemoryUse(f)
		stopped := false
		send := func(s memoryStep) {
			if !stopped && !yield(s) {
				stopped = true
			}
		}
		exits := make(map[memoryPlace]memoryStep) // levels that the end of a process or context is changing
		exitNs := int64(0)
		flush := func() {
			for _, p := range sortedPlaces(exits) {
				send(exits[p])
			}
			clear(exits)
		}
		levels := newAllocatorLevels(f, send)
		l, _, err := t.replayAll(func(_ *ledger, c *change) {
			kind, total := use.consume(c)
			if kind == nil {
				return
			}
			o := &t.origins.list[c.block.origin]
			s := memoryStep{atNs: c.atNs, device: o.device, memory: t.origins.memory(c.block.origin), live: kind.live}
			all := s
			all.memory = allMemory
			if total != nil {
				all.live = total.live
			}
			switch c.what {
			case allocFailed:
				s.failed, s.bytes = true, c.block.bytes
				send(s)
			case freedByExit, freedWithCtx:
				if c.atNs != exitNs {
					flush()
				}
				exitNs = c.atNs
				exits[memoryPlace{s.device, s.memory}] = s
				if total != nil {
					exits[memoryPlace{s.device, allMemory}] = all
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
			done.counts = l.counts
		}
	}, done
}

func sortedPlaces(m map[memoryPlace]memoryStep) []memoryPlace {
	var list []memoryPlace
	for p := range m {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b memoryPlace) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.memory, b.memory))
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
			p.instant(p.gpuTrack(s.device, "failed allocations", nil), "allocation failed: "+bytesText(s.bytes))
			p.w.note("bytes", annotationInt, uint64(s.bytes))
			p.w.finish(at)
		}
		return
	}
	name := "live memory"
	if s.what != "" {
		name = s.what
	} else if s.memory != allMemory {
		name += " (" + s.memory + ")"
	}
	p.w.counter(at, p.gpuTrack(s.device, name, byteCounter), float64(s.live))
}

func (p *trace) sample(s *sample) {
	if !p.inWindow(s.atNs) || len(p.filter.Devices) > 0 && !slices.Contains(p.filter.Devices, s.device) {
		return
	}
	name, unit := deviceFree, byteCounter
	if s.metric != metricDeviceFree {
		metric := p.t.facts.metrics.list[s.metric]
		name, unit = "NVML "+metric, counterUnit(metric)
	}
	p.w.counter(s.atNs, p.gpuTrack(s.device, name, unit), s.value)
}

// deviceFree is the counter of what programs were told is free.
const deviceFree = "device free (cuMemGetInfo)"

// metricDeviceFree is its number; those of NVML's metrics are not negative.
const metricDeviceFree = -1

// allSamples returns the samples of NVML and of cuMemGetInfo in order of time.
func (t *Timeline) allSamples() []sample {
	if len(t.free) == 0 {
		return t.facts.samples
	}
	all := slices.Clone(t.facts.samples)
	for _, s := range t.free {
		all = append(all, sample{s.atNs, float64(s.freeBytes), metricDeviceFree, s.device})
	}
	slices.SortStableFunc(all, func(a, b sample) int { return cmp.Compare(a.atNs, b.atNs) })
	return all
}

// isLane reports whether calls of the kind give a stream something to do.
func isLane(kind string) bool {
	return kind == format.KindLaunch || kind == format.KindMemcpy || kind == format.KindMemset
}
