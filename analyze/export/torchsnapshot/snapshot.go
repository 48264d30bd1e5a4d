package torchsnapshot

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// DefaultMaxTraceEntries is the default of Options.MaxTraceEntries for the command line. Viewers
// keep all entries in memory.
const DefaultMaxTraceEntries = 100_000

// Options are the options of NewSnapshot.
type Options struct {
	// Filter selects allocators by Pids and Devices. FromNs is the start of the trace, and ToNs the
	// end of the recording for the snapshot. MinBytes leaves smaller blocks out of the trace. All
	// other fields are ignored.
	query.Filter
	// At is the moment of the snapshot: query.MomentEnd, query.MomentGivenTime, or query.MomentPeak
	// for the moment with most allocated bytes. The trace ends there.
	At query.ReportMoment
	// AtNs is the moment of the snapshot for query.MomentGivenTime, Unix ns.
	AtNs int64
	// MaxTraceEntries is the largest number of events in the trace of each device. Older events are
	// left out. 0 means no limit.
	MaxTraceEntries int64
	// Hide selects the frames that are left out of stacks; nil hides none.
	Hide *query.FrameRules
}

// ProcessCountError is returned by NewSnapshot if the allocators that pass the filter do not belong
// to exactly one process.
type ProcessCountError struct {
	// Pids are the processes with allocators in the recording, in ascending order.
	Pids []int32
	// Names are the names of Pids; "" if a name is unknown.
	Names []string
	// Filtered is set if no allocator passes the filter.
	Filtered bool
}

func (e *ProcessCountError) Error() string {
	var list []string
	for i, pid := range e.Pids {
		text := fmt.Sprint(pid)
		if e.Names[i] != "" {
			text += " (" + units.SanitizeText(e.Names[i]) + ")"
		}
		list = append(list, text)
	}
	switch {
	case len(list) == 0:
		return "the recording has no events of PyTorch's caching allocator"
	case e.Filtered:
		return "no allocator passes the filter; the recording has allocators of " + units.JoinWithAnd(list)
	}
	return fmt.Sprintf("the recording has allocators of %d processes: %s", len(list), units.JoinWithAnd(list))
}

// Snapshot is the state of the caching allocators of one process at one moment, and the trace of
// the events before that moment. It has the data of torch.cuda.memory._snapshot().
type Snapshot struct {
	Pid  int32
	AtNs int64 // moment of the snapshot, Unix ns
	// Totals are the totals of all devices at the moment.
	Totals caching.AllocatorTotals
	// Segments is the number of segments, Blocks that of blocks (without unused gaps).
	Segments, Blocks int64
	// TraceEntries is the number of events in the traces, LeftOut the number of older events that
	// MaxTraceEntries leaves out.
	TraceEntries, LeftOut int64
	// Missing describes, in sentences, the memory and the events that the snapshot lacks.
	Missing []string
	Quality report.Quality

	t       *timeline.Timeline
	opt     Options
	devices []*snapshotDevice // by CUDA device; nil for a device without allocator
	parts   []traceRowGroup   // in order of their first event
}

// NewSnapshot reads the recording and returns the snapshot for the time in opt. It returns a
// *ProcessCountError, or an error of reading the recording.
func NewSnapshot(t *timeline.Timeline, opt Options) (*Snapshot, error) {
	t = t.NewView()
	if opt.Hide == nil {
		opt.Hide = new(query.FrameRules)
	}
	s := &Snapshot{t: t, opt: opt, AtNs: opt.NarrowWindow(t.RecordingWindow()).ToNs}
	var err error
	if s.Pid, err = findAllocatorProcess(t, &opt.Filter); err != nil {
		return nil, err
	}
	switch opt.At {
	case query.MomentGivenTime:
		s.AtNs = opt.AtNs
	case query.MomentPeak:
		if err := s.findPeak(); err != nil {
			return nil, err
		}
	}
	scan := snapshotScan{s: s, devices: make(map[*caching.Allocator]*snapshotDevice)}
	l, all, err := t.ReplayMemoryAndAllocators(func(*livemem.Set, *livemem.Change) {}, scan.consumeChange)
	if err != nil {
		return nil, err
	}
	scan.setDevices(all)
	if err := s.countTraceEvents(); err != nil {
		return nil, err
	}
	s.Quality = quality.OfRecording(t, &l.Counts)
	s.summarizeContents()
	return s, nil
}

// findAllocatorProcess returns the process whose allocators pass the filter. It returns a
// *ProcessCountError if that is not exactly one process.
func findAllocatorProcess(t *timeline.Timeline, f *query.Filter) (int32, error) {
	pids, passing := make(map[int32]bool), make(map[int32]bool)
	for _, s := range t.Facts.EarlierStates {
		if s.Refused == "" {
			pids[s.Pid] = true
			if f.PassesAllocator(s.Pid, s.Device) {
				passing[s.Pid] = true
			}
		}
	}
	var pid, device []int32
	for _, s := range t.Allocations {
		pid, device = s.Group.Int32("pid", pid), s.Group.Int32("device", device)
		if err := s.Group.Err(); err != nil {
			return 0, t.WrapReadError(err)
		}
		for i, p := range pid {
			pids[p] = true
			if f.PassesAllocator(p, device[i]) {
				passing[p] = true
			}
		}
	}
	if len(passing) == 1 {
		for p := range passing {
			return p, nil
		}
	}
	e := &ProcessCountError{Pids: slices.Sorted(maps.Keys(pids)), Filtered: len(passing) == 0}
	for _, p := range e.Pids {
		e.Names = append(e.Names, t.Facts.Processes[p].Name)
	}
	return 0, e
}

// includesAllocator reports whether the snapshot includes the allocator of a process and device.
func (s *Snapshot) includesAllocator(pid, device int32) bool {
	return pid == s.Pid && s.opt.PassesAllocator(pid, device)
}

// findPeak sets AtNs to the time when most bytes were allocated on all devices together. Memory
// from before the recording is constant and does not move the peak. An allocator's totals after an
// event are known at its next event, so the sum over several devices lags by one event.
func (s *Snapshot) findPeak() error {
	w := s.opt.NarrowWindow(s.t.RecordingWindow())
	type level struct{ bytes, sinceNs int64 }
	levels := make(map[*caching.Allocator]*level)
	var sum, peak int64
	s.AtNs = w.FromNs
	update := func(a *caching.Allocator) { // adds the totals of a since its last event to sum
		l := levels[a]
		sum += a.Seen.Allocated - l.bytes
		l.bytes = a.Seen.Allocated
		if l.sinceNs < w.FromNs || l.sinceNs <= w.ToNs && sum > peak {
			peak, s.AtNs = sum, max(l.sinceNs, w.FromNs)
		}
	}
	_, all, err := s.t.ReplayMemoryAndAllocators(
		func(*livemem.Set, *livemem.Change) {},
		func(a *caching.Allocator, c *caching.AllocatorChange) {
			if !s.includesAllocator(a.Pid, a.Device) || c.Op == caching.OpBlockResized {
				return
			}
			if levels[a] != nil {
				update(a)
			} else {
				levels[a] = new(level)
			}
			levels[a].sinceNs = c.AtNs
			if c.Op == caching.OpAllocatorEnd {
				sum -= levels[a].bytes
				delete(levels, a)
			}
		},
	)
	if err != nil {
		return err
	}
	all.EachAllocator(func(a *caching.Allocator) {
		if levels[a] != nil {
			update(a)
		}
	})
	return nil
}

// summarizeContents sets the counts of the snapshot, and Missing.
func (s *Snapshot) summarizeContents() {
	for number, d := range s.devices {
		if d == nil {
			continue
		}
		s.Totals = s.Totals.AddTotals(d.totals)
		var shown caching.AllocatorTotals
		for i := range d.segments {
			g := &d.segments[i]
			shown.Reserved += g.bytes()
			for _, p := range g.pieces {
				if p.State != caching.PieceHole {
					s.Blocks++
				}
				if p.State == caching.PieceBlock {
					shown.Allocated += p.Size
				}
			}
		}
		s.Segments += int64(len(d.segments))
		s.addMissingMemory(number, d, shown)
		s.TraceEntries += d.events
		if most := s.opt.MaxTraceEntries; most > 0 && d.events > most {
			d.leftOut = d.events - most
			s.LeftOut += d.leftOut
			s.TraceEntries -= d.leftOut
			s.Missing = append(
				s.Missing,
				fmt.Sprintf(
					"device %d: the trace has the last %s of %s events",
					number,
					units.FormatCount(most),
					units.FormatCount(d.events),
				),
			)
		}
	}
	for _, a := range s.t.Facts.Allocators {
		for _, text := range []string{a.Missing, a.Limits} {
			if a.Pid == s.Pid && text != "" && !slices.Contains(s.Missing, text) {
				s.Missing = append(s.Missing, text)
			}
		}
	}
}

// addMissingMemory appends to Missing the memory of a device that the snapshot lacks or infers.
// shown are the totals of the device's segments in the snapshot.
func (s *Snapshot) addMissingMemory(number int, d *snapshotDevice, shown caching.AllocatorTotals) {
	if d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf(
			"device %d: segments are inferred from reported blocks and cover "+
				"%s of %s reserved; memory that looks free in them may be in use; %s",
			number,
			units.FormatBytes(shown.Reserved),
			units.FormatBytes(d.totals.Reserved),
			caching.RecordSegmentsAdvice,
		))
	} else if lacks := d.totals.Reserved - shown.Reserved; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s of %s reserved are in segments from before the "+
			"recording that no event shows",
			number, units.FormatBytes(lacks), units.FormatBytes(d.totals.Reserved)))
	}
	if d.inferred > 0 && !d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s in %s from before the recording are inferred from "+
			"their blocks; memory that looks free in them may be in use",
			number, units.FormatBytes(d.inferred), units.CountWithNoun(d.inferredSegments, "segment")))
	}
	if lacks := d.totals.Allocated - shown.Allocated; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: blocks with %s of %s allocated are missing: they are "+
			"from before the recording and were not freed in it, or their events were lost",
			number, units.FormatBytes(lacks), units.FormatBytes(d.totals.Allocated)))
	}
}

// Write writes the snapshot to out as a Python pickle. It reads the events from the recording
// again, once for each device, and does not keep them in memory.
func (s *Snapshot) Write(out io.Writer) error {
	w := snapshotWriter{pickler: newPickler(out), s: s, frames: make(map[int32]int32), stacks: make(map[int32]int32)}
	var err error
	w.writeDict(func() {
		w.writeString("segments")
		w.writeList(func(item func()) {
			for number, d := range s.devices {
				for i := range d.listSegments() {
					item()
					w.writeSegment(int64(number), &d.segments[i])
				}
			}
		})
		w.writeString("device_traces")
		w.writeList(func(item func()) {
			for number := range s.devices {
				item()
				err = cmp.Or(err, w.writeTrace(int32(number)))
			}
		})
		w.writeString("allocator_settings")
		w.writeSettings()
		w.writeString("external_annotations")
		w.writeList(func(func()) {})
	})
	return cmp.Or(err, w.finishPickle())
}

// snapshotWriter writes the parts of a snapshot. It writes each frame and each stack once, and
// refers to it afterwards.
type snapshotWriter struct {
	*pickler
	s      *Snapshot
	frames map[int32]int32 // memo number in the pickle by frame id
	stacks map[int32]int32 // memo number in the pickle by stack id
}

// writeSegment writes a segment with its blocks.
func (w *snapshotWriter) writeSegment(device int64, g *snapshotSegment) {
	var sum caching.AllocatorTotals
	large := g.bytes() != caching.SmallSegmentBytes
	if g.expandable {
		large = g.bytes()%caching.LargeSegmentBytes == 0
	}
	for _, p := range g.pieces {
		if p.State == caching.PieceHole {
			continue
		}
		large = p.Size > caching.MaxSmallRequestBytes
		sum.Active += p.Size
		sum.Requested += p.Requested
		if p.State == caching.PieceBlock {
			sum.Allocated += p.Size
		}
	}
	w.writeDict(func() {
		w.writeIntItem("device", device)
		w.writeIntItem("address", g.from)
		w.writeIntItem("total_size", g.bytes())
		w.writeIntItem("allocated_size", sum.Allocated)
		w.writeIntItem("active_size", sum.Active)
		w.writeIntItem("requested_size", sum.Requested)
		w.writeIntItem("stream", g.stream)
		w.writeStringItem("segment_type", map[bool]string{false: "small", true: "large"}[large])
		w.writeString("segment_pool_id")
		w.writeIntPair(max(0, -g.pool), max(0, g.pool))
		w.writeBoolItem("is_expandable", g.expandable)
		w.writeString("frames")
		w.writeOriginStack(g.origin, g.isEarlier, g.isUnseen)
		w.writeString("blocks")
		w.writeList(func(item func()) {
			for i := range g.pieces {
				item()
				w.writeBlock(&g.pieces[i])
			}
		})
	})
}

// torchBlockStates are PyTorch's names of the states of a block.
var torchBlockStates = map[caching.PieceState]string{
	caching.PieceHole:         "inactive",
	caching.PieceBlock:        "active_allocated",
	caching.PieceAwaitsStream: "active_pending_free",
}

// writeBlock writes a block or a gap of a segment.
func (w *snapshotWriter) writeBlock(p *caching.SegmentPiece) {
	w.writeDict(func() {
		w.writeIntItem("address", p.Ptr)
		w.writeIntItem("size", p.Size)
		w.writeIntItem("requested_size", p.Requested)
		w.writeStringItem("state", torchBlockStates[p.State])
		w.writeString("frames")
		w.writeOriginStack(p.Origin, p.IsEarlier, p.IsUnseen)
	})
}

// earlierStack is the number of the stack of memory from before the recording: one frame that says so. unseenStack is that
// of memory whose allocation was not recorded because --max-overhead left it out.
const earlierStack, unseenStack = -1, -2

// textFrames are the names of the frames of such stacks.
var textFrames = map[int32]string{earlierStack: "[before the recording]", unseenStack: "[site not seen]"}

// writeOriginStack writes the stack of the origin with a number. Without a number, memory from before the recording that
// was read from the process gets earlierStack, unseen memory unseenStack, and other memory an empty stack.
func (w *snapshotWriter) writeOriginStack(id int32, isEarlier, isUnseen bool) {
	switch {
	case id != origin.NoOrigin:
		w.writeStack(w.s.t.Origins.List[id].Stack)
	case isEarlier:
		w.writeStack(earlierStack)
	case isUnseen:
		w.writeStack(unseenStack)
	default:
		w.writeStack(0)
	}
}

// writeStack writes a list with the frames of a stack, the innermost first.
func (w *snapshotWriter) writeStack(id int32) {
	if n, ok := w.stacks[id]; ok {
		w.writeMemoReference(n)
		return
	}
	w.writeList(func(item func()) {
		if name, ok := textFrames[id]; ok {
			item()
			w.writeDict(func() {
				w.writeStringItem("name", name)
				w.writeStringItem("filename", "??")
				w.writeIntItem("line", 0)
			})
			return
		}
		for _, frame := range w.s.t.Stacks.VisibleFrames(id, w.s.opt.Hide) {
			item()
			w.writeFrame(frame)
		}
	})
	w.stacks[id] = w.memoizeLast()
}

// writeFrame writes a stack frame: function, file and line.
func (w *snapshotWriter) writeFrame(id int32) {
	if n, ok := w.frames[id]; ok {
		w.writeMemoReference(n)
		return
	}
	f := &w.s.t.Stacks.Frames[id]
	w.writeDict(func() {
		w.writeStringItem("name", query.FrameName(f))
		w.writeStringItem("filename", cmp.Or(f.File, "??"))
		w.writeIntItem("line", int64(f.Line))
	})
	w.frames[id] = w.memoizeLast()
}

// writeSettings writes the allocator settings of the process: PYTORCH_CUDA_ALLOC_CONF, and the
// values in it that gpurec understands.
func (w *snapshotWriter) writeSettings() {
	var conf string
	for _, a := range w.s.t.Facts.Allocators {
		if a.Pid == w.s.Pid && a.Allocator == format.MemoryTorch {
			conf = a.Conf
		}
	}
	rules := caching.ParseAllocatorRules(conf)
	maxSplit := rules.MaxSplit
	if maxSplit == 0 {
		maxSplit = -1 // PyTorch's value for no limit
	}
	powers := make([]string, len(rules.Divisions))
	for i := range powers {
		powers[i] = fmt.Sprint(1 << i) // MiB
	}
	w.writeDict(func() {
		w.writeStringItem("PYTORCH_CUDA_ALLOC_CONF", strings.TrimSpace(conf))
		w.writeIntItem("max_split_size", maxSplit)
		w.writeBoolItem("expandable_segments", rules.Expandable)
		w.writeIntDictItem("roundup_power2_divisions", powers, rules.Divisions[:])
	})
}

// snapshotKeyColumns describe the keys of a snapshot.
var snapshotKeyColumns = []report.Column{
	{
		Key: "segments", Title: "", Unit: report.UnitText,
		About: "segments, and contiguous parts of expandable segments, with their blocks. Each has address, size, " +
			"stream, pool and stack. Blocks and segments from before the recording have the frame [before the " +
			"recording] if they were read from the process. Otherwise a segment is included if the recording shows " +
			"blocks in it, or its end",
	},
	{
		Key: "device_traces", Title: "", Unit: report.UnitText,
		About: "one list for each CUDA device with the events before the moment: addr, size (requested size of a " +
			"block), stream, time_us (Unix) and frames, the innermost first. Native frames without a source line " +
			"have the file ??",
	},
	{
		Key: "allocator_settings", Title: "", Unit: report.UnitText,
		About: "PYTORCH_CUDA_ALLOC_CONF of the process, and the settings in it that gpurec understands",
	},
	{
		Key: "external_annotations", Title: "", Unit: report.UnitText,
		About: "always empty: gpurec does not record annotations",
	},
}
