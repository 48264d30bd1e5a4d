package perfetto

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// DefaultMaxSlices is a number of slices that the Perfetto UI loads in a few seconds. 4.2 million
// slices took 15 s and 1.3 GB of memory.
const DefaultMaxSlices = 2_000_000

// trackColumns describe the tracks of a trace.
var trackColumns = []report.Column{
	{
		Key: "process, thread", Title: "", Unit: report.UnitText,
		About: "one slice for each call on the thread that made it, from entry to return, with stack, arguments and " +
			"result. A call whose return was not recorded is an instant without duration. " +
			"A call that had not returned ends with the recording and is marked open",
	},
	{
		Key: "process, … has not returned", Title: "", Unit: report.UnitText,
		About: "each call that was open at the end of the recording, a second time on a track of its own",
	},
	{
		Key:   "process, threads waiting for the GPU",
		Title: "",
		Unit:  report.UnitCount,
		About: "number of threads inside of a call that waits for the GPU, such as cuStreamSynchronize. Queries do " +
			"not wait",
	},
	{
		Key:   "GPU n, stream s",
		Title: "",
		Unit:  report.UnitText,
		About: "one instant for each successful launch, copy, memset and graph launch, at the time of the call on " +
			"the CPU. A flow connects it to the call. The time on the GPU is not recorded. " +
			"For a graph launch the instant lists the nodes of the graph, as far as its construction was recorded",
	},
	{
		Key: "GPU n, captured on stream s", Title: "", Unit: report.UnitText,
		About: "one instant for each launch, copy and memset that was captured into a graph and did not run",
	},
	{
		Key: "GPU n, live memory", Title: "", Unit: report.UnitBytes,
		About: "bytes allocated and not yet freed, computed from the recorded calls. It does not include memory from " +
			"before the recording",
	},
	{
		Key: "GPU n, PyTorch …", Title: "", Unit: report.UnitBytes,
		About: "totals of PyTorch's caching allocator: bytes in blocks (allocated), in segments (reserved) and as " +
			"requested by the program (requested). At most 1,000 values per second",
	},
	{
		Key: "GPU n, NVML …", Title: "", Unit: report.UnitText,
		About: "samples of an NVML metric of the whole device",
	},
	{
		Key: "GPU n, device free (cuMemGetInfo)", Title: "", Unit: report.UnitBytes,
		About: "free memory of the whole device that cuMemGetInfo returned to the program",
	},
	{
		Key: "GPU n, failed allocations; Xid errors", Title: "", Unit: report.UnitText,
		About: "one instant for each failed allocation and each Xid error",
	},
	{
		Key: "gpurec", Title: "", Unit: report.UnitText,
		About: "intervals with lost calls; intervals without launches or stacks because of --max-overhead; the point " +
			"after which --max-slices leaves out calls; with --split the number of the part",
	},
}

// Options are the options of Write.
type Options struct {
	query.Filter
	// MaxSlices is the largest number of slices and instants for calls; 0 means no limit. Further
	// calls are left out. Counters are not limited.
	MaxSlices int64
	// Next, if not nil, is called when MaxSlices is reached. Write continues with the writer that
	// Next returns, so no call is left out. The previous part is complete then. A call that spans
	// several parts is in each of them, with its full duration and the mark "continued".
	Next func() (io.Writer, error)
}

// Stats describe a trace that Write has written.
type Stats struct {
	Calls     int64 // calls in the trace
	Parts     int   // number of parts: 1 + calls of Next
	LeftOut   int64 // calls that were left out because of MaxSlices
	LeftOutNs int64 // start of the first call that was left out, Unix ns
	Quality   report.Quality
	NoMatch   *query.NoMatch // set if the filter selects no call
}

// Write writes the recording to out as a Perfetto trace, with packets in order of time. It needs
// memory only for the calls that overlap. It returns an error if it cannot read the recording or
// write to out.
func Write(t *timeline.Timeline, out io.Writer, opt Options) (*Stats, error) {
	t = t.View()
	p := newTrace(t, out, opt)
	var err error
	if p.graphs, err = graph.Read(t); err != nil {
		return nil, err
	}
	p.w.begin(p.window.FromNs)
	steps, counts := memorySteps(t, &p.filter)
	next, stop := iter.Pull(steps)
	defer stop()
	p.nextStep = next
	p.step, p.hasStep = next()
	if err := timeline.InOrder(slices.Concat(t.Memory, t.Calls), p.stream(), p.call); err != nil {
		return nil, t.Wrap(err)
	}
	p.advance(p.window.ToNs)
	p.endSlices()
	for p.hasStep { // run the replay to its end, so that its counts are complete
		p.step, p.hasStep = next()
	}
	if err := counts.err; err != nil {
		return nil, err
	}
	p.w.end(p.window.ToNs)
	p.stats.Quality = quality.OfRecording(t, &counts.counts)
	if p.stats.Calls+p.stats.LeftOut == 0 && t.Scan.Events > 0 {
		p.stats.NoMatch = p.seen.Explain(&p.filter)
	}
	return &p.stats, p.w.err
}

// trace writes a Perfetto trace.
type trace struct {
	t      *timeline.Timeline
	w      *traceWriter
	filter query.Filter
	window query.Window
	stats  Stats
	seen   *query.Callers
	max    int64 // Options.MaxSlices
	slices int64 // slices and instants of calls in this part
	full   bool  // a call was left out, so all later calls are left out too
	next   func() (io.Writer, error)
	graphs graph.Contents

	partTracks
	ends     []sliceEnd // heap of the open slices, the first to end at index 0
	levels   map[trackKey]counterValue
	launches map[launchArguments][]byte // cache of encoded annotations
	flows    uint64                     // id of the last flow

	nextStep func() (memoryStep, bool)
	step     memoryStep
	hasStep  bool
	samples  []facts.Sample
	marks    []mark
}

// threadTrack is the track of a thread.
type threadTrack struct {
	uuid uint64
	open []int64 // ends of the open slices, Unix ns, the outermost slice first
}

// sliceEnd is an open slice, with the data to repeat it in the next part of the trace.
type sliceEnd struct {
	startNs, atNs  int64        // start and end, Unix ns
	thread         *threadTrack // nil if the slice was left out and only its wait is counted
	caller         origin.Thread
	name, category string
	stack          int32
	ownTrack       bool // the slice is on a track of its own: see openTrack
	waits          bool // the thread waits for the GPU
}

// trackKey identifies a track of a GPU, or of a process if device is processTracks.
type trackKey struct {
	device int32
	kind   string // kind of lane, or name of the counter or track
	pid    int32  // set for lanes and for tracks of a process
	stream int64  // set for lanes
}

// mark is an instant that belongs to no call.
type mark struct {
	atNs  int64 // Unix ns
	write func()
}

// newTrace returns a trace without packets.
func newTrace(t *timeline.Timeline, out io.Writer, opt Options) *trace {
	p := &trace{
		t:      t,
		w:      newTraceWriter(out, &t.Stacks, t.Rec.Meta.ClockOffsetNs),
		filter: opt.Filter,
		window: opt.Filter.Window(
			t.Recording(),
		),
		max:        opt.MaxSlices,
		next:       opt.Next,
		seen:       query.NewCallers(),
		stats:      Stats{Parts: 1},
		partTracks: newPartTracks(),
		levels:     make(map[trackKey]counterValue),
		launches:   make(map[launchArguments][]byte),
		samples:    allSamples(t),
	}
	for _, x := range t.Facts.Xids {
		p.marks = append(p.marks, mark{x.AtNs, func() {
			p.instant(p.gpuTrack(x.Device, "Xid errors"), fmt.Sprintf("Xid %d: %s", x.Code, x.Text))
			p.w.finish(x.AtNs)
		}})
	}
	for _, l := range t.Facts.Lost {
		p.marks = append(p.marks, mark{l.StartNs, func() {
			p.instant(p.ownTrack(), fmt.Sprintf("%s %s calls lost", units.Count(l.Calls), l.Class))
			p.w.note("interval_ns", annotationInt, uint64(l.DurNs))
			p.w.finish(l.StartNs)
		}})
	}
	p.marks = append(p.marks, p.samplingMarks()...)
	slices.SortStableFunc(p.marks, func(a, b mark) int { return cmp.Compare(a.atNs, b.atNs) })
	return p
}

// advance writes all events other than calls up to atNs, in order of time. Events at the same time
// have this order: ends of slices, levels of memory, samples, marks.
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
			next = min(next, p.samples[0].AtNs)
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

// pending reports whether events other than calls are left to write.
func (p *trace) pending() bool {
	return len(p.ends) > 0 || p.hasStep || len(p.samples) > 0 || len(p.marks) > 0
}

// writeNext writes the first event whose time is ns.
func (p *trace) writeNext(ns int64) {
	switch {
	case len(p.ends) > 0 && p.ends[0].atNs == ns:
		p.endSlice()
	case p.hasStep && p.step.atNs == ns:
		p.memoryStep(&p.step)
		p.step, p.hasStep = p.nextStep()
	case len(p.samples) > 0 && p.samples[0].AtNs == ns:
		p.sample(&p.samples[0])
		p.samples = p.samples[1:]
	default:
		if p.inWindow(ns) {
			p.marks[0].write()
		}
		p.marks = p.marks[1:]
	}
}

// inWindow reports whether a time (Unix ns) is in the window.
func (p *trace) inWindow(ns int64) bool { return ns >= p.window.FromNs && ns <= p.window.ToNs }

// beginSlice starts the event of a slice; the caller adds fields and finishes the event. It cuts
// the end of a slice to that of the enclosing slice, because clocks can differ slightly.
func (p *trace) beginSlice(e sliceEnd) {
	if n := len(e.thread.open); n > 0 {
		e.atNs = min(e.atNs, e.thread.open[n-1])
	}
	e.thread.open = append(e.thread.open, e.atNs)
	p.ends = stats.HeapPush(p.ends, e, sliceEnd.before)
	p.w.start(eventSliceBegin, e.thread.uuid)
}

// before orders slices by their end.
func (e sliceEnd) before(o sliceEnd) bool { return e.atNs < o.atNs }

// endSlice ends the open slice with the earliest end.
func (p *trace) endSlice() {
	e := p.ends[0]
	p.ends = stats.HeapPop(p.ends, sliceEnd.before)
	if e.thread != nil {
		e.thread.open = e.thread.open[:len(e.thread.open)-1]
		p.w.start(eventSliceEnd, e.thread.uuid)
		p.w.finishPlain(e.atNs)
	}
	if e.waits {
		p.wait(e.atNs, e.caller.Pid, -1)
	}
}

// endSlices ends all open slices.
func (p *trace) endSlices() {
	for len(p.ends) > 0 {
		p.endSlice()
	}
}

// instant starts an instant event; the caller may add fields, and must finish the event.
func (p *trace) instant(track uint64, name string) {
	p.w.start(eventInstant, track)
	p.w.name(name)
}
