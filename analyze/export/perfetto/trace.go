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

// DefaultMaxSlices is how many slices the Perfetto UI shows with comfort: loading
// 4.2 million took it 15 s and 1.3 GB.
const DefaultMaxSlices = 2_000_000

var PerfettoColumns = []report.Column{
	{
		Key: "process, thread", Title: "", Unit: report.UnitText,
		About: "a slice per call, from its entry to its return, on the thread that made it, with its stack, " +
			"arguments and result; an instant where the return was not recorded, so that its duration is not known; " +
			"a call that had not returned ends where the recording does and is marked open",
	},
	{
		Key: "process, … has not returned", Title: "", Unit: report.UnitText,
		About: "each call that was open at the end of the recording once more, on a track of its own",
	},
	{
		Key: "process, threads waiting for the GPU", Title: "", Unit: report.UnitCount,
		About: "threads inside of a call that waits for the GPU (cuStreamSynchronize and the like; questions are none)",
	},
	{
		Key: "GPU n, stream s", Title: "", Unit: report.UnitText,
		About: "an instant per launch, copy, memset and graph launch that did not fail, when the CPU asked for it, " +
			"in that order, tied to the call by a flow; when it ran on the GPU is not known. A graph says what it " +
			"holds, as far as its making was recorded",
	},
	{
		Key: "GPU n, captured on stream s", Title: "", Unit: report.UnitText,
		About: "the same for what was put into a graph and did not run",
	},
	{
		Key: "GPU n, live memory", Title: "", Unit: report.UnitBytes,
		About: "bytes allocated and not freed, replayed from the calls; memory allocated before the recording is " +
			"not in it",
	},
	{
		Key: "GPU n, PyTorch …", Title: "", Unit: report.UnitBytes,
		About: "what PyTorch's caching allocator has handed out (allocated), has from the driver (reserved), and " +
			"was asked for (requested); at most a thousand values a second",
	},
	{Key: "GPU n, NVML …", Title: "", Unit: report.UnitText, About: "samples of NVML, of the whole device"},
	{
		Key: "GPU n, device free (cuMemGetInfo)", Title: "", Unit: report.UnitBytes,
		About: "what programs were told is free on the whole device, when they asked",
	},
	{Key: "GPU n, failed allocations; Xid errors", Title: "", Unit: report.UnitText, About: "an instant each"},
	{
		Key: "gpurec", Title: "", Unit: report.UnitText,
		About: "intervals in which calls were lost, where launches, or their stacks, were not recorded because of " +
			"--max-overhead, where slices end because of --max-slices, and with --split which part this is",
	},
}

// Options shape a trace.
type Options struct {
	query.Filter
	// MaxSlices bounds slices and instants; 0 is no bound. Beyond it calls are left
	// out, counters are not.
	MaxSlices int64
	// Next, if set, is asked for where to write the next part of the trace when MaxSlices is
	// reached: nothing is left out then. What it returned before is complete when it is called
	// again. Calls that reach into a part are in it, whole and marked.
	Next func() (io.Writer, error)
}

// Stats say what a trace holds.
type Stats struct {
	Calls   int64
	Parts   int   // 1, and one more for each call of Next
	LeftOut int64 // calls beyond MaxSlices
	// LeftOutNs is the start of the first of those, Unix ns.
	LeftOutNs int64
	Quality   report.Quality
	NoMatch   *query.NoMatch
}

// Write writes the recording as a trace for ui.perfetto.dev. It streams: packets
// are in order of time and memory is bounded by the calls that overlap. The error is
// one of reading the recording or of out.
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
	for p.hasStep { // the replay's counts are whole only at its end
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

// trace is a Perfetto trace being written.
type trace struct {
	t      *timeline.Timeline
	w      *traceWriter
	filter query.Filter
	window query.Window
	stats  Stats
	seen   *query.Callers
	max    int64
	slices int64 // slices and instants of calls, of this part
	full   bool  // a call was left out: so are all after it
	more   func() (io.Writer, error)
	graphs graph.Contents

	traceTracks
	ends     []sliceEnd // heap: slices that are open, the first to end in front
	levels   map[trackKey]levelNow
	launches map[launchNotes][]byte // their annotations, encoded
	flows    uint64

	nextStep func() (memoryStep, bool)
	step     memoryStep
	hasStep  bool
	samples  []facts.Sample
	marks    []mark
}

// threadTrack is a thread with the ends of the slices that are open on it, outermost
// first.
type threadTrack struct {
	uuid uint64
	open []int64
}

// sliceEnd is a slice that is open, and what the next part of the trace needs to show it again.
type sliceEnd struct {
	startNs, atNs  int64
	thread         *threadTrack // nil: only what follows ends
	who            origin.Thread
	name, category string
	stack          int32
	opens          bool // it is on a track of its own
	waits          bool // the thread waits for the GPU
}

// trackKey names a track under a GPU, or with processTracks under a process; pid and stream are set
// for those of streams.
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

func newTrace(t *timeline.Timeline, out io.Writer, opt Options) *trace {
	p := &trace{
		t:      t,
		w:      newTraceWriter(out, &t.Stacks, t.Rec.Meta.ClockOffsetNs),
		filter: opt.Filter,
		window: opt.Filter.Window(
			t.Recording(),
		),
		max:         opt.MaxSlices,
		more:        opt.Next,
		seen:        query.NewCallers(),
		stats:       Stats{Parts: 1},
		traceTracks: newTraceTracks(),
		levels:      make(map[trackKey]levelNow),
		launches:    make(map[launchNotes][]byte),
		samples:     allSamples(t),
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

func (p *trace) inWindow(ns int64) bool { return ns >= p.window.FromNs && ns <= p.window.ToNs }

// beginSlice opens a slice and leaves the event open for more fields. A slice never
// reaches beyond the one around it, whatever two clocks say.
func (p *trace) beginSlice(e sliceEnd) {
	if n := len(e.thread.open); n > 0 {
		e.atNs = min(e.atNs, e.thread.open[n-1])
	}
	e.thread.open = append(e.thread.open, e.atNs)
	p.ends = stats.HeapPush(p.ends, e, sliceEnd.before)
	p.w.start(eventSliceBegin, e.thread.uuid)
}

func (e sliceEnd) before(o sliceEnd) bool { return e.atNs < o.atNs }

func (p *trace) endSlice() {
	e := p.ends[0]
	p.ends = stats.HeapPop(p.ends, sliceEnd.before)
	if e.thread != nil {
		e.thread.open = e.thread.open[:len(e.thread.open)-1]
		p.w.start(eventSliceEnd, e.thread.uuid)
		p.w.finishPlain(e.atNs)
	}
	if e.waits {
		p.wait(e.atNs, e.who.Pid, -1)
	}
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
