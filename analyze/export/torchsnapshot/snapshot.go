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

// DefaultTraceEntries is the default of Options.MaxTraceEntries for the command line. Viewers keep
// all entries in memory.
const DefaultTraceEntries = 100_000

// Options are the options of New.
type Options struct {
	// Filter selects allocators by Pids and Devices. FromNs is the start of the trace, and ToNs the
	// end of the recording for the snapshot. MinBytes leaves smaller blocks out of the trace. All
	// other fields are ignored.
	query.Filter
	// At is the moment of the snapshot: query.AtEnd, query.AtTime, or query.AtPeak for the moment
	// with most allocated bytes. The trace ends there.
	At query.Moment
	// AtNs is the moment of the snapshot for query.AtTime, Unix ns.
	AtNs int64
	// MaxTraceEntries is the largest number of events in the trace of each device. Older events are
	// left out. 0 means no limit.
	MaxTraceEntries int64
	// Hide selects the frames that are left out of stacks; nil hides none.
	Hide *query.FrameRules
}

// ProcessesError is returned by New if the allocators that pass the filter do not belong to exactly
// one process.
type ProcessesError struct {
	// Pids are the processes with allocators in the recording, in ascending order.
	Pids []int32
	// Names are the names of Pids; "" if a name is unknown.
	Names []string
	// Filtered is set if no allocator passes the filter.
	Filtered bool
}

func (e *ProcessesError) Error() string {
	var list []string
	for i, pid := range e.Pids {
		text := fmt.Sprint(pid)
		if e.Names[i] != "" {
			text += " (" + units.OneLine(e.Names[i]) + ")"
		}
		list = append(list, text)
	}
	switch {
	case len(list) == 0:
		return "the recording has no events of PyTorch's caching allocator"
	case e.Filtered:
		return "no allocator passes the filter; the recording has allocators of " + units.Enumerated(list)
	}
	return fmt.Sprintf("the recording has allocators of %d processes: %s", len(list), units.Enumerated(list))
}

// Snapshot is the state of the caching allocators of one process at one moment, and the trace of
// the events before that moment. It has the data of torch.cuda.memory._snapshot().
type Snapshot struct {
	Pid  int32
	AtNs int64 // moment of the snapshot, Unix ns
	// Totals are the totals of all devices at the moment.
	Totals caching.Totals
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
	parts   []tracePart       // in order of their first event
}

// New reads the recording and returns the snapshot for the time in opt. It returns a
// *ProcessesError, or an error of reading the recording.
func New(t *timeline.Timeline, opt Options) (*Snapshot, error) {
	t = t.View()
	if opt.Hide == nil {
		opt.Hide = new(query.FrameRules)
	}
	s := &Snapshot{t: t, opt: opt, AtNs: opt.Window(t.Recording()).ToNs}
	var err error
	if s.Pid, err = allocatorProcess(t, &opt.Filter); err != nil {
		return nil, err
	}
	switch opt.At {
	case query.AtTime:
		s.AtNs = opt.AtNs
	case query.AtPeak:
		if err := s.findPeak(); err != nil {
			return nil, err
		}
	}
	scan := snapshotScan{s: s, devices: make(map[*caching.Allocator]*snapshotDevice)}
	l, all, err := t.ReplayAll(func(*livemem.Set, *livemem.Change) {}, scan.step)
	if err != nil {
		return nil, err
	}
	scan.finish(all)
	if err := s.countTrace(); err != nil {
		return nil, err
	}
	s.Quality = quality.OfRecording(t, &l.Counts)
	s.fillSummary()
	return s, nil
}

// allocatorProcess returns the process whose allocators pass the filter. It returns a
// *ProcessesError if that is not exactly one process.
func allocatorProcess(t *timeline.Timeline, f *query.Filter) (int32, error) {
	pids, passing := make(map[int32]bool), make(map[int32]bool)
	var pid, device []int32
	for _, s := range t.Allocations {
		pid, device = s.Group.Int32("pid", pid), s.Group.Int32("device", device)
		if err := s.Group.Err(); err != nil {
			return 0, t.Wrap(err)
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
	e := &ProcessesError{Pids: slices.Sorted(maps.Keys(pids)), Filtered: len(passing) == 0}
	for _, p := range e.Pids {
		e.Names = append(e.Names, t.Facts.Processes[p].Name)
	}
	return 0, e
}

// wants reports whether the snapshot includes the allocator of a process and device.
func (s *Snapshot) wants(pid, device int32) bool {
	return pid == s.Pid && s.opt.PassesAllocator(pid, device)
}

// findPeak sets AtNs to the time when most bytes were allocated on all devices together. Memory
// from before the recording is constant and does not move the peak. An allocator's totals after an
// event are known at its next event, so the sum over several devices lags by one event.
func (s *Snapshot) findPeak() error {
	w := s.opt.Window(s.t.Recording())
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
	_, all, err := s.t.ReplayAll(
		func(*livemem.Set, *livemem.Change) {},
		func(a *caching.Allocator, c *caching.Change) {
			if !s.wants(a.Pid, a.Device) || c.Op == caching.BlockResized {
				return
			}
			if levels[a] != nil {
				update(a)
			} else {
				levels[a] = new(level)
			}
			levels[a].sinceNs = c.AtNs
			if c.Op == caching.AllocatorEnd {
				sum -= levels[a].bytes
				delete(levels, a)
			}
		},
	)
	if err != nil {
		return err
	}
	all.All(func(a *caching.Allocator) {
		if levels[a] != nil {
			update(a)
		}
	})
	return nil
}

// fillSummary sets the counts of the snapshot, and Missing.
func (s *Snapshot) fillSummary() {
	for number, d := range s.devices {
		if d == nil {
			continue
		}
		s.Totals = s.Totals.Plus(d.totals)
		var shown caching.Totals
		for i := range d.segments {
			g := &d.segments[i]
			shown.Reserved += g.bytes()
			for _, p := range g.pieces {
				if p.State != caching.IsHole {
					s.Blocks++
				}
				if p.State == caching.IsBlock {
					shown.Allocated += p.Size
				}
			}
		}
		s.Segments += int64(len(d.segments))
		s.addMissing(number, d, shown)
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
					units.Count(most),
					units.Count(d.events),
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

// addMissing appends to Missing the memory of a device that the snapshot lacks or infers. shown are
// the totals of the device's segments in the snapshot.
func (s *Snapshot) addMissing(number int, d *snapshotDevice, shown caching.Totals) {
	if d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: segments are inferred from reported blocks and cover "+
			"%s of %s reserved; memory that looks free in them may be in use; %s",
			number, units.Bytes(shown.Reserved), units.Bytes(d.totals.Reserved), caching.RecordSegments))
	} else if lacks := d.totals.Reserved - shown.Reserved; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s of %s reserved are in segments from before the "+
			"recording that no event shows",
			number, units.Bytes(lacks), units.Bytes(d.totals.Reserved)))
	}
	if d.inferred > 0 && !d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s in %s from before the recording are inferred from "+
			"their blocks; memory that looks free in them may be in use",
			number, units.Bytes(d.inferred), units.Plural(d.inferredSegments, "segment")))
	}
	if lacks := d.totals.Allocated - shown.Allocated; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: blocks with %s of %s allocated are missing: they are "+
			"from before the recording and were not freed in it, or their events were lost",
			number, units.Bytes(lacks), units.Bytes(d.totals.Allocated)))
	}
}

// Write writes the snapshot to out as a Python pickle. It reads the events from the recording
// again, once for each device, and does not keep them in memory.
func (s *Snapshot) Write(out io.Writer) error {
	w := snapshotWriter{pickler: newPickler(out), s: s, frames: make(map[int32]int32), stacks: make(map[int32]int32)}
	var err error
	w.dict(func() {
		w.str("segments")
		w.list(func(item func()) {
			for number, d := range s.devices {
				for i := range d.list() {
					item()
					w.segment(int64(number), &d.segments[i])
				}
			}
		})
		w.str("device_traces")
		w.list(func(item func()) {
			for number := range s.devices {
				item()
				err = cmp.Or(err, w.trace(int32(number)))
			}
		})
		w.str("allocator_settings")
		w.settings()
		w.str("external_annotations")
		w.list(func(func()) {})
	})
	return cmp.Or(err, w.finish())
}

// snapshotWriter writes the parts of a snapshot. It writes each frame and each stack once, and
// refers to it afterwards.
type snapshotWriter struct {
	*pickler
	s      *Snapshot
	frames map[int32]int32 // memo number in the pickle by frame id
	stacks map[int32]int32 // memo number in the pickle by stack id
}

// segment writes a segment with its blocks.
func (w *snapshotWriter) segment(device int64, g *snapshotSegment) {
	var sum caching.Totals
	large := g.bytes() != caching.SmallSegment
	if g.expandable {
		large = g.bytes()%caching.LargeSegment == 0
	}
	for _, p := range g.pieces {
		if p.State == caching.IsHole {
			continue
		}
		large = p.Size > caching.SmallRequest
		sum.Active += p.Size
		sum.Requested += p.Requested
		if p.State == caching.IsBlock {
			sum.Allocated += p.Size
		}
	}
	w.dict(func() {
		w.intItem("device", device)
		w.intItem("address", g.from)
		w.intItem("total_size", g.bytes())
		w.intItem("allocated_size", sum.Allocated)
		w.intItem("active_size", sum.Active)
		w.intItem("requested_size", sum.Requested)
		w.intItem("stream", g.stream)
		w.strItem("segment_type", map[bool]string{false: "small", true: "large"}[large])
		w.str("segment_pool_id")
		w.pair(max(0, -g.pool), max(0, g.pool))
		w.boolItem("is_expandable", g.expandable)
		w.str("frames")
		w.stackOf(g.origin)
		w.str("blocks")
		w.list(func(item func()) {
			for i := range g.pieces {
				item()
				w.block(&g.pieces[i])
			}
		})
	})
}

// blockStates are PyTorch's names of the states of a block.
var blockStates = map[caching.PieceState]string{
	caching.IsHole:     "inactive",
	caching.IsBlock:    "active_allocated",
	caching.IsAwaiting: "active_pending_free",
}

// block writes a block or a gap of a segment.
func (w *snapshotWriter) block(p *caching.Piece) {
	w.dict(func() {
		w.intItem("address", p.Ptr)
		w.intItem("size", p.Size)
		w.intItem("requested_size", p.Requested)
		w.strItem("state", blockStates[p.State])
		w.str("frames")
		w.stackOf(p.Origin)
	})
}

// stackOf writes the stack of the origin with a number; an empty stack for origin.None.
func (w *snapshotWriter) stackOf(id int32) {
	if id == origin.None {
		w.stack(0)
		return
	}
	w.stack(w.s.t.Origins.List[id].Stack)
}

// stack writes a list with the frames of a stack, the innermost first.
func (w *snapshotWriter) stack(id int32) {
	if n, ok := w.stacks[id]; ok {
		w.writeMemo(n)
		return
	}
	w.list(func(item func()) {
		for _, frame := range w.s.t.Stacks.Visible(id, w.s.opt.Hide) {
			item()
			w.frame(frame)
		}
	})
	w.stacks[id] = w.memoize()
}

// frame writes a frame.
func (w *snapshotWriter) frame(id int32) {
	if n, ok := w.frames[id]; ok {
		w.writeMemo(n)
		return
	}
	f := &w.s.t.Stacks.Frames[id]
	w.dict(func() {
		w.strItem("name", query.FrameName(f))
		w.strItem("filename", cmp.Or(f.File, "??"))
		w.intItem("line", int64(f.Line))
	})
	w.frames[id] = w.memoize()
}

// settings writes the allocator settings of the process: PYTORCH_CUDA_ALLOC_CONF, and the values in
// it that gpurec understands.
func (w *snapshotWriter) settings() {
	var conf string
	for _, a := range w.s.t.Facts.Allocators {
		if a.Pid == w.s.Pid && a.Allocator == format.MemoryTorch {
			conf = a.Conf
		}
	}
	rules := caching.ParseRules(conf)
	maxSplit := rules.MaxSplit
	if maxSplit == 0 {
		maxSplit = -1 // PyTorch's value for no limit
	}
	powers := make([]string, len(rules.Divisions))
	for i := range powers {
		powers[i] = fmt.Sprint(1 << i) // MiB
	}
	w.dict(func() {
		w.strItem("PYTORCH_CUDA_ALLOC_CONF", strings.TrimSpace(conf))
		w.intItem("max_split_size", maxSplit)
		w.boolItem("expandable_segments", rules.Expandable)
		w.numbersItem("roundup_power2_divisions", powers, rules.Divisions[:])
	})
}

// snapshotColumns describe the keys of a snapshot.
var snapshotColumns = []report.Column{
	{
		Key: "segments", Title: "", Unit: report.UnitText,
		About: "segments, and contiguous parts of expandable segments, with their blocks. Each has address, size, " +
			"stream, pool and stack. A segment from before the recording is included as far as the recording shows " +
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
