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
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// DefaultTraceEntries is how many events of a device a snapshot has if nothing else is
// said: viewers hold all of them.
const DefaultTraceEntries = 100_000

// Options shape a snapshot.
type Options struct {
	// Filter's Pids and Devices choose allocators, FromNs is where the trace begins, ToNs
	// where the recording ends for the snapshot; MinBytes leaves smaller blocks out of
	// the trace. The rest does not count.
	query.Filter
	// At is the moment of the state; the trace goes up to it. MemoryAtPeak is when most
	// bytes were allocated.
	At query.Moment
	// AtNs is that moment for MemoryAtTime, Unix ns.
	AtNs int64
	// MaxTraceEntries bounds the trace of each device, to the newest; 0: no bound.
	MaxTraceEntries int64
	// Hide says which frames are left out; nil is none.
	Hide *query.FrameRules
}

// ProcessesError says that there are allocators of several processes, or of none that
// passes the filter, where one is needed.
type ProcessesError struct {
	// Pids are those of the recording, rising, Names their names where known.
	Pids  []int32
	Names []string
	// Filtered: the filter lets none of them through.
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
		return "no allocator passes the filter; the recording has those of " + units.Enumerated(list)
	}
	return fmt.Sprintf("the recording has allocators of %d processes: %s", len(list), units.Enumerated(list))
}

// Snapshot is the state of the caching allocators of one process, and what led
// there, as torch.cuda.memory._snapshot() has them. Write writes it.
type Snapshot struct {
	Pid  int32
	AtNs int64 // moment of the state, Unix ns
	// Totals are those of all devices at that moment.
	Totals caching.Totals
	// Segments and Blocks (not gaps) that it shows, TraceEntries that it has, and
	// LeftOut, older ones beyond MaxTraceEntries.
	Segments, Blocks, TraceEntries, LeftOut int64
	// Missing says in sentences what the snapshot lacks.
	Missing []string
	Quality report.Quality

	t       *timeline.Timeline
	opt     Options
	devices []*snapshotDevice // by number; nil: no allocator
	parts   []tracePart       // in order of their first event
}

// New finds the state that a snapshot is of. Errors are a *ProcessesError and
// those of reading the recording.
func New(t *timeline.Timeline, opt Options) (*Snapshot, error) {
	t = t.View()
	if opt.Hide == nil {
		opt.Hide = new(query.FrameRules)
	}
	s := &Snapshot{t: t, opt: opt, AtNs: opt.Window(t.Recording()).ToNs}
	var err error
	if s.Pid, err = oneAllocatorProcess(t, &opt.Filter); err != nil {
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
	s.sumUp()
	return s, nil
}

// oneAllocatorProcess returns the process whose allocators pass the filter.
func oneAllocatorProcess(t *timeline.Timeline, f *query.Filter) (int32, error) {
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

func (s *Snapshot) wants(pid, device int32) bool {
	return pid == s.Pid && s.opt.PassesAllocator(pid, device)
}

// findPeak sets AtNs to when most bytes were allocated on all devices together. What was
// there before the recording was there all the time, and does not move the peak. What an
// event did is exact with the next one of its allocator: of several devices, sums lag by
// one event.
func (s *Snapshot) findPeak() error {
	w := s.opt.Window(s.t.Recording())
	type level struct{ bytes, sinceNs int64 }
	levels := make(map[*caching.Allocator]*level)
	var sum, peak int64
	s.AtNs = w.FromNs
	see := func(a *caching.Allocator) { // what it has since its last event
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
				see(a)
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
			see(a)
		}
	})
	return nil
}

// sumUp fills in what the snapshot says of itself.
func (s *Snapshot) sumUp() {
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
		s.missing(number, d, shown)
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

// missing tells what was there before the recording and did not show.
func (s *Snapshot) missing(number int, d *snapshotDevice, shown caching.Totals) {
	if d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: its segments are put together from blocks that were "+
			"reported, %s of %s reserved; what looks free in them may not be; %s",
			number, units.Bytes(shown.Reserved), units.Bytes(d.totals.Reserved), caching.RecordSegments))
	} else if lacks := d.totals.Reserved - shown.Reserved; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s of %s reserved are in segments from before the "+
			"recording of which nothing is known",
			number, units.Bytes(lacks), units.Bytes(d.totals.Reserved)))
	}
	if d.inferred > 0 && !d.reports {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s in %s from before the recording, put together from "+
			"the blocks seen there; what looks free in it may not be",
			number, units.Bytes(d.inferred), units.Plural(d.inferredSegments, "segment")))
	}
	if lacks := d.totals.Allocated - shown.Allocated; lacks > 0 {
		s.Missing = append(s.Missing, fmt.Sprintf("device %d: %s of %s allocated are blocks that do not show: from "+
			"before the recording and not freed in it, or lost",
			number, units.Bytes(lacks), units.Bytes(d.totals.Allocated)))
	}
}

// Write writes the snapshot as Python's pickle. It reads the events again, once per
// device, and holds none of them.
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

// snapshotWriter writes the parts of a snapshot.
type snapshotWriter struct {
	*pickler
	s      *Snapshot
	frames map[int32]int32 // what is written already, by its number in the pickle
	stacks map[int32]int32
}

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

var blockStates = map[caching.PieceState]string{
	caching.IsHole:     "inactive",
	caching.IsBlock:    "active_allocated",
	caching.IsAwaiting: "active_pending_free",
}

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

// stackOf writes the stack of an origin.
func (w *snapshotWriter) stackOf(origin int32) {
	if origin == originpkg.None {
		w.stack(0)
		return
	}
	w.stack(w.s.t.Origins.List[origin].Stack)
}

// stack writes the frames of a stack, innermost first: a list that all its users share.
func (w *snapshotWriter) stack(id int32) {
	if n, ok := w.stacks[id]; ok {
		w.again(n)
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

func (w *snapshotWriter) frame(id int32) {
	if n, ok := w.frames[id]; ok {
		w.again(n)
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

// settings writes what the program was started with.
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
		maxSplit = -1 // as PyTorch has it
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

var SnapshotColumns = []report.Column{
	{
		Key: "segments", Title: "", Unit: report.UnitText,
		About: "segments, and contiguous stretches of expandable segments, with their blocks; address, size, " +
			"stream, pool and stack as the recording has them. Memory from before the recording is there as far as " +
			"blocks were seen in it, or its end",
	},
	{
		Key: "device_traces", Title: "", Unit: report.UnitText,
		About: "a list per CUDA device of the events until the moment: addr, size (of blocks as asked for), stream, " +
			"time_us (Unix) and frames, the innermost first; native frames without a source line are of file ??",
	},
	{
		Key: "allocator_settings", Title: "", Unit: report.UnitText,
		About: "PYTORCH_CUDA_ALLOC_CONF of the process, and what of it gpurec understands",
	},
	{Key: "external_annotations", Title: "", Unit: report.UnitText, About: "empty: annotations are not recorded"},
}
