package perfetto

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/kernelargs"
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

// traceTrackColumns describe the tracks of a trace.
var traceTrackColumns = []report.Column{
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
		Key:   "GPU n, stream s (GPU time)",
		Title: "",
		Unit:  report.UnitText,
		About: "with GPU times: one slice for each kernel, copy, memset and graph launch. It lasts from the start " +
			"to the end on the GPU. start_known and end_known say whether a time is measured, bounded or estimated. " +
			"An operation whose start is unknown is an instant at the time of the call. A flow connects an " +
			"operation to its call",
	},
	{
		Key:   "GPU n, stream s (order of calls, not GPU time)",
		Title: "",
		Unit:  report.UnitText,
		About: "without GPU times: one instant for each successful launch, copy, memset and graph launch, at the " +
			"time of the call on the CPU. A flow connects it to the call. " +
			"For a graph launch the instant lists the nodes of the graph whose creation was recorded",
	},
	{
		Key:   "process, collectives of …",
		Title: "",
		Unit:  report.UnitText,
		About: "one track for each rank and communicator, with a slice for each call of an operation of NCCL: size, " +
			"type, peer and stack. A flow connects an operation on all recorded ranks in the order of their calls. " +
			"after_first_ns is the time since the first of them",
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

// Options are the options of WriteTrace.
type Options struct {
	query.Filter
	// MaxSlices is the largest number of slices and instants for calls; 0 means no limit. Further
	// calls are left out. Counters are not limited.
	MaxSlices int64
	// Next, if not nil, is called when MaxSlices is reached. WriteTrace continues with the writer
	// that Next returns, so no call is left out. The previous part is complete then. A call that
	// spans several parts is in each of them, with its full duration and the mark "continued".
	Next func() (io.Writer, error)
}

// TraceStats describe a trace that WriteTrace has written.
type TraceStats struct {
	Calls     int64 // calls in the trace
	Parts     int   // number of parts: 1 + calls of Next
	LeftOut   int64 // calls that were left out because of MaxSlices
	LeftOutNs int64 // start of the first call that was left out, Unix ns
	// LeftOutHost is the number of slices of class host that were left out.
	LeftOutHost int64
	Quality     report.Quality
	NoMatch     *query.NoMatchError // set if the filter selects no call
}

// WriteTrace writes the recording to out as a Perfetto trace, with packets in order of time. It
// needs memory only for the calls that overlap. It returns an error if it cannot read the recording
// or write to out.
func WriteTrace(t *timeline.Timeline, out io.Writer, opt Options) (*TraceStats, error) {
	t = t.NewView()
	p := newTraceBuilder(t, out, opt)
	var err error
	if p.graphs, err = graph.Read(t); err != nil {
		return nil, err
	}
	if p.kernelArgs, err = kernelargs.Read(t, nil); err != nil {
		return nil, err
	}
	if p.operations, err = newGPUOperations(p); err != nil {
		return nil, err
	}
	defer p.operations.stop()
	if p.collectives, err = newCollectiveCalls(p); err != nil {
		return nil, err
	}
	defer p.collectives.stop()
	if p.host, err = readHostSlices(p); err != nil {
		return nil, err
	}
	p.w.beginSequence(p.window.FromNs)
	steps, counts := replayMemorySteps(t, &p.filter)
	next, stop := iter.Pull(steps)
	defer stop()
	p.nextStep = next
	p.step, p.hasStep = next()
	if err := timeline.EachRowInOrder(slices.Concat(t.Memory, t.Calls), p.newCallStream(), p.writeCall); err != nil {
		return nil, t.WrapReadError(err)
	}
	p.writeEventsUntil(p.window.ToNs)
	if p.partErr != nil {
		return nil, p.partErr
	}
	p.writeLateOperations()
	p.endAllSlices()
	for p.hasStep { // run the replay to its end, so that its counts are complete
		p.step, p.hasStep = next()
	}
	if err := cmp.Or(counts.err, p.operations.err, p.collectives.err); err != nil {
		return nil, err
	}
	p.w.endSequence(p.window.ToNs)
	p.stats.Quality = quality.OfRecording(t, &counts.counts)
	if p.stats.Calls+p.stats.LeftOut == 0 && t.Scan.Events > 0 {
		p.stats.NoMatch = p.seen.ExplainNoMatch(&p.filter)
	}
	return &p.stats, p.w.err
}

// traceBuilder merges calls, memory levels, samples and marks into a Perfetto trace.
type traceBuilder struct {
	kernelArgs kernelargs.Messages // recorded arguments of kernel launches
	t          *timeline.Timeline
	w          *traceWriter
	filter     query.Filter
	window     query.Window
	stats      TraceStats
	seen       *query.SeenCallers
	max        int64 // largest number of slices in a part: Options.MaxSlices
	slices     int64 // slices and instants of calls in this part
	full       bool  // a call was left out, so all later calls are left out too
	next       func() (io.Writer, error)
	graphs     graph.GraphContents
	operations *gpuOperations
	host       []hostSlice // slices of class host that are not written yet
	// collectives has the operations of NCCL that are not written yet.
	collectives *collectiveCalls
	// partErr is the error of beginning another part of the trace for a slice that is no call of the driver.
	partErr error

	partTracks
	ends     []openSlice // heap of the open slices, the first to end at index 0
	levels   map[trackKey]counterValue
	launches map[launchAnnotations][]byte // cache of encoded annotations
	flows    uint64                       // id of the last flow

	nextStep func() (memoryStep, bool)
	step     memoryStep
	hasStep  bool
	samples  []facts.DeviceSample
	marks    []traceMark
}

// threadTrack is the track of a thread.
type threadTrack struct {
	uuid uint64
	open []int64 // ends of the open slices, Unix ns, the outermost slice first
}

// openSlice is an open slice, with the data to repeat it in the next part of the trace.
type openSlice struct {
	startNs, atNs  int64        // start and end, Unix ns
	thread         *threadTrack // nil if the slice was left out and only its wait is counted
	caller         origin.Thread
	name, category string
	stack          int32
	ownTrack       bool        // the slice is on a track of its own: see newOpenCallTrack
	waits          bool        // the thread waits for the GPU
	lane           *streamLane // lane of an operation of the GPU; nil for calls
	hostKind       string      // kind of the lane of a row of class host; "" for other slices
	// operations is the lane of an operation of NCCL; nil for other slices.
	operations *collectiveLane
}

// trackKey identifies a track of a GPU, or of a process if device is processTrackDevice.
type trackKey struct {
	device int32
	kind   string      // kind of lane, or name of the counter or track
	pid    int32       // set for lanes and for tracks of a process
	stream int64       // set for lanes
	copies activity.Op // set for lanes with copies
}

// traceMark is an instant of the trace that belongs to no call, such as an Xid error.
type traceMark struct {
	atNs  int64 // time of the instant, Unix ns
	write func()
}

// newTraceBuilder returns a trace without packets.
func newTraceBuilder(t *timeline.Timeline, out io.Writer, opt Options) *traceBuilder {
	p := &traceBuilder{
		t:      t,
		w:      newTraceWriter(out, &t.Stacks, t.Rec.Meta.ClockOffsetNs),
		filter: opt.Filter,
		window: opt.Filter.NarrowWindow(
			t.RecordingWindow(),
		),
		max:        opt.MaxSlices,
		next:       opt.Next,
		seen:       query.NewSeenCallers(),
		stats:      TraceStats{Parts: 1},
		partTracks: newPartTracks(),
		levels:     make(map[trackKey]counterValue),
		launches:   make(map[launchAnnotations][]byte),
		samples:    collectSamples(t),
	}
	for _, x := range t.Facts.Xids {
		p.marks = append(p.marks, traceMark{x.AtNs, func() {
			p.startInstant(p.findGPUTrack(x.Device, "Xid errors"), fmt.Sprintf("Xid %d: %s", x.Code, x.Text))
			p.w.finishEvent(x.AtNs)
		}})
	}
	for _, l := range t.Facts.Lost {
		p.marks = append(p.marks, traceMark{l.StartNs, func() {
			p.startInstant(p.findGpurecTrack(), fmt.Sprintf("%s %s calls lost", units.FormatCount(l.Calls), l.Class))
			p.w.addAnnotation("interval_ns", fieldAnnotationInt, uint64(l.DurNs))
			p.w.finishEvent(l.StartNs)
		}})
	}
	p.marks = append(p.marks, p.newSamplingMarks()...)
	slices.SortStableFunc(p.marks, func(a, b traceMark) int { return cmp.Compare(a.atNs, b.atNs) })
	return p
}

// writeEventsUntil writes all events other than calls up to atNs, in order of time. Events at the
// same time have this order: ends of slices, levels of memory, samples, operations of the GPU, operations of NCCL,
// states of threads, marks.
func (t *traceBuilder) writeEventsUntil(atNs int64) {
	for {
		next := int64(math.MaxInt64)
		if len(t.ends) > 0 {
			next = t.ends[0].atNs
		}
		if t.hasStep {
			next = min(next, t.step.atNs)
		}
		if len(t.samples) > 0 {
			next = min(next, t.samples[0].AtNs)
		}
		if len(t.marks) > 0 {
			next = min(next, t.marks[0].atNs)
		}
		if t.operations.has {
			next = min(next, t.operations.operation.startNs)
		}
		if t.collectives.has {
			next = min(next, t.collectives.operation.StartNs)
		}
		if len(t.host) > 0 {
			next = min(next, t.host[0].startNs)
		}
		if next > atNs || !t.hasPendingEvents() {
			return
		}
		t.writeNextEvent(next)
	}
}

// hasPendingEvents reports whether events other than calls are left to write.
func (t *traceBuilder) hasPendingEvents() bool {
	return len(t.ends) > 0 || t.hasStep || len(t.samples) > 0 || len(t.marks) > 0 || t.operations.has ||
		t.collectives.has || len(t.host) > 0
}

// writeNextEvent writes the first event whose time is ns.
func (t *traceBuilder) writeNextEvent(ns int64) {
	switch {
	case len(t.ends) > 0 && t.ends[0].atNs == ns:
		t.endFirstSlice()
	case t.hasStep && t.step.atNs == ns:
		t.writeMemoryStep(&t.step)
		t.step, t.hasStep = t.nextStep()
	case len(t.samples) > 0 && t.samples[0].AtNs == ns:
		t.writeSample(&t.samples[0])
		t.samples = t.samples[1:]
	case t.operations.has && t.operations.operation.startNs == ns:
		t.writeOperation()
	case t.collectives.has && t.collectives.operation.StartNs == ns:
		if err := t.writeCollective(); err != nil {
			t.partErr, t.collectives.has = err, false
		}
	case len(t.host) > 0 && t.host[0].startNs == ns:
		if err := t.writeHostSlice(); err != nil {
			t.partErr, t.host = err, nil
		}
	default:
		if t.isInWindow(ns) {
			t.marks[0].write()
		}
		t.marks = t.marks[1:]
	}
}

// isInWindow reports whether a time (Unix ns) is in the window.
func (t *traceBuilder) isInWindow(ns int64) bool { return ns >= t.window.FromNs && ns <= t.window.ToNs }

// beginSlice starts the event of a slice; the caller adds fields and finishes the event. It cuts
// the end of a slice to that of the enclosing slice, because clocks can differ slightly.
func (t *traceBuilder) beginSlice(e openSlice) {
	if n := len(e.thread.open); n > 0 {
		e.atNs = min(e.atNs, e.thread.open[n-1])
	}
	e.thread.open = append(e.thread.open, e.atNs)
	t.ends = stats.HeapPush(t.ends, e, openSlice.endsBefore)
	t.w.startEvent(eventTypeSliceBegin, e.thread.uuid)
}

// endsBefore reports whether a slice ends before another one.
func (s openSlice) endsBefore(o openSlice) bool { return s.atNs < o.atNs }

// endFirstSlice ends the open slice with the earliest end.
func (t *traceBuilder) endFirstSlice() {
	e := t.ends[0]
	t.ends = stats.HeapPop(t.ends, openSlice.endsBefore)
	if e.thread != nil {
		e.thread.open = e.thread.open[:len(e.thread.open)-1]
		t.w.startEvent(eventTypeSliceEnd, e.thread.uuid)
		t.w.finishPlainEvent(e.atNs)
	}
	if e.waits {
		t.countWaitingThread(e.atNs, e.caller.Pid, -1)
	}
}

// endAllSlices ends all open slices.
func (t *traceBuilder) endAllSlices() {
	for len(t.ends) > 0 {
		t.endFirstSlice()
	}
}

// startInstant starts an instant event; the caller may add fields, and must finish the event.
func (t *traceBuilder) startInstant(track uint64, name string) {
	t.w.startEvent(eventTypeInstant, track)
	t.w.setEventName(name)
}
