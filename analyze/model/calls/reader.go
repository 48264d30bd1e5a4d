package calls

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Call is one recorded call. Name, Site, Kernel and CopyKind index Reader.Names. Times are Unix ns.
type Call struct {
	StartNs, EndNs          int64
	Stream, Ptr, Src, Bytes int64
	Pid, Tid, Device        int32
	Stack, Result, Flags    int32
	Name, Site, Kernel      int32
	CopyKind                int32
	Kind                    int8 // kind of the call, as an index into Reader.Kinds
	Nested                  bool // the call was made inside another recorded call
}

// HasDuration reports whether the call's duration is known. The duration of an open call is
// unknown: it had not returned when the recording ended.
func (c *Call) HasDuration() bool { return c.Flags&timeline.NoResultFlags == 0 }

// Failed reports whether the call returned an error. It is false if the result is unknown.
func (c *Call) Failed() bool { return c.Flags&timeline.NoResultFlags == 0 && c.Result != 0 }

// Thread returns the thread that made the call.
func (c *Call) Thread() origin.Thread { return origin.Thread{Pid: c.Pid, Tid: c.Tid} }

func (c *Call) startsBefore(o *Call) bool {
	if c.StartNs != o.StartNs {
		return c.StartNs < o.StartNs
	}
	return cmp.Or(cmp.Compare(c.Pid, o.Pid), cmp.Compare(c.Tid, o.Tid), cmp.Compare(c.EndNs, o.EndNs)) < 0
}

// CallReader reads calls of selected kinds in the order of their start, if they pass the filter. It
// reads only row groups without memory calls, so it can run while another goroutine replays those.
// A Reader is not safe for concurrent use.
type CallReader struct {
	*CallCounter
	Kinds []string             // the kinds of calls, as in the column kind
	Names origin.StringNumbers // names, sites and kernels that Call refers to
	Sites CallSiteReader       // resolves the call sites

	selected           []string // the kinds to read; nil: all of Kinds
	ptrs, srcs, Parent []int64
	copies             format.Strings
}

// SelectKinds makes the CallReader read only some of Kinds. The numbers of Call.Kind stay the same.
func (r *CallReader) SelectKinds(kinds []string) { r.selected = append([]string{}, kinds...) }

// NewCallReader returns a Reader for calls of the given kinds that pass the filter.
func NewCallReader(t *timeline.Timeline, f *query.Filter, kinds ...string) *CallReader {
	r := &CallReader{CallCounter: NewCallCounter(t, f), Kinds: kinds}
	r.Sites = CallSiteReader{T: t, Names: &r.Names}
	return r
}

// EachCall calls yield for every call, in the order of start. The pointer is valid until yield
// returns.
func (r *CallReader) EachCall(yield func(*Call) error) error {
	return r.EachCallFrom(func(s timeline.Span) *format.Group { return s.Group }, yield)
}

// EachCallFrom is EachCall with row groups that open returns.
func (r *CallReader) EachCallFrom(open func(timeline.Span) *format.Group, yield func(*Call) error) error {
	return r.newFeed(open, yield).Finish()
}

// CallFeed passes calls to a function as the recording grows: Extend adds rows to its Timeline, and Advance passes them
// on. Finish ends it. It uses the CallReader, which nothing else may use meanwhile. It is not safe for concurrent use,
// and not while Extend runs.
type CallFeed struct {
	reader *CallReader
	rows   *timeline.OrderedRows[Call]
	yield  func(*Call) error
	// hasAdvanced is set by the first Advance, and isFresh by Refresh.
	hasAdvanced, isFresh bool
}

// NewFeed returns a CallFeed that calls yield for every call, in the order of start. The pointer is valid until yield
// returns.
func (r *CallReader) NewFeed(yield func(*Call) error) *CallFeed {
	return r.newFeed(func(s timeline.Span) *format.Group { return s.Group }, yield)
}

// newFeed is NewFeed, but gets its row groups from open.
func (r *CallReader) newFeed(open func(timeline.Span) *format.Group, yield func(*Call) error) *CallFeed {
	return &CallFeed{reader: r, rows: timeline.NewOrderedRows(nil, r.newStream(open)), yield: yield}
}

// newStream returns the functions with which timeline.OrderedRows reads the calls.
func (r *CallReader) newStream(open func(timeline.Span) *format.Group) timeline.RowStream[Call] {
	var spare [][]Call
	return timeline.RowStream[Call]{
		Load: func(s timeline.Span) ([]Call, error) {
			var rows []Call
			if n := len(spare); n > 0 {
				rows, spare = spare[n-1][:0], spare[:n-1]
			}
			g := open(s)
			rows = r.loadGroup(g, rows)
			timeline.SortNearlySorted(rows, (*Call).startsBefore)
			return rows, g.Err()
		},
		Release: func(_ timeline.Span, rows []Call) { spare = append(spare, rows) },
		At:      func(c *Call) int64 { return c.StartNs },
		Less:    (*Call).startsBefore,
	}
}

// Advance passes on the calls that started before untilNs, Unix ns. It must not decrease. No call that is added to the
// Timeline later may have started before it. It returns the first error of reading the recording or of yield; then the
// feed does not continue.
func (c *CallFeed) Advance(untilNs int64) error {
	c.hasAdvanced, c.isFresh = true, false
	c.reader.Window = c.reader.windowOfRecording()
	return c.passRows(untilNs)
}

// Refresh brings Window and Weights of the CallReader up to date with a Timeline that was extended. Finish does so, too,
// unless the last call was Refresh.
func (c *CallFeed) Refresh() {
	if c.hasAdvanced && !c.isFresh {
		c.reader.Window = c.reader.windowOfRecording()
		c.reader.Weights = c.reader.T.LaunchWeights(c.reader.Window)
		c.isFresh = true
	}
}

// Finish passes on all remaining calls. CallCounter.Weights count all sampled launches only from then on. It returns the
// first error of reading the recording or of yield.
func (c *CallFeed) Finish() error {
	defer c.rows.Close()
	c.Refresh()
	return c.passRows(math.MaxInt64)
}

func (c *CallFeed) passRows(limitNs int64) error {
	r := c.reader
	c.rows.Grow(r.T.Calls, limitNs)
	return r.T.WrapReadError(c.rows.EachRow(c.yield))
}

func (r *CallReader) loadGroup(g *format.Group, rows []Call) []Call {
	if !slices.ContainsFunc(g.Kinds(), r.readsKind) {
		return rows
	}
	r.readColumns(g)
	if g.Err() != nil {
		return rows
	}
	r.Kernel = format.Strings{}
	if r.readsKind(format.KindLaunch) || r.Filter.Kernel != nil {
		r.Kernel = g.StringsInto("kernel", r.Kernel)
	}
	wanted := make([]int8, len(r.Kind.Dict))
	for i, k := range r.Kind.Dict {
		wanted[i] = -1
		if r.readsKind(k) {
			wanted[i] = int8(slices.Index(r.Kinds, k))
		}
	}
	pass := r.NewRowFilter(g, r.Kind, r.Kernel)
	names, kernels := r.Names.NumbersOf(r.Name.Dict), r.Names.NumbersOf(r.Kernel.Dict)
	copies := r.Names.NumbersOf(r.copies.Dict)
	rows = slices.Grow(rows, countWanted(r.Kind.Index, wanted))
	for i, start := range r.Start {
		kind := wanted[r.Kind.Index[i]]
		if kind < 0 || start < r.Window.FromNs || start > r.Window.ToNs || !pass(i) {
			continue
		}
		rows = append(rows, Call{
			StartNs: start,
			EndNs:   units.EndOfRange(start, r.Dur[i]),
			Stream:  r.Stream[i],
			Ptr:     r.ptrs[i],
			Src:     r.srcs[i],
			Bytes:   max(0, r.Bytes[i]),
			Pid:     r.Pid[i],
			Tid:     r.Tid[i],
			Device:  r.T.DeviceOfCall(r.Pid[i], r.Context[i], r.Device[i]),
			Stack:   r.Sites.Stack[i],
			Result:  r.Result[i],
			Flags:   r.Flags[i],
			Name:    names[r.Name.Index[i]],
			Site:    r.Sites.SiteOfRow(i),
			Kind:    kind,
			Nested:  r.Parent[i] != 0,
		})
		row := &rows[len(rows)-1]
		if len(kernels) > 0 {
			row.Kernel = kernels[r.Kernel.Index[i]]
		}
		if len(copies) > 0 {
			row.CopyKind = copies[r.copies.Index[i]]
		}
	}
	return rows
}

// countWanted returns how many rows have a kind that is read.
func countWanted(kinds []int32, wanted []int8) (n int) {
	for _, kind := range kinds {
		if wanted[kind] >= 0 {
			n++
		}
	}
	return n
}

// readsKind reports whether the Reader reads calls of a kind.
func (r *CallReader) readsKind(kind string) bool {
	if r.selected != nil {
		return slices.Contains(r.selected, kind)
	}
	return slices.Contains(r.Kinds, kind)
}

// readColumns reads the columns of a row group that Call needs.
func (r *CallReader) readColumns(g *format.Group) {
	r.Kind, r.Name = g.StringsInto("kind", r.Kind), g.StringsInto("name", r.Name)
	r.Start, r.Dur = g.Int64("start_ns", r.Start), g.Int64("dur_ns", r.Dur)
	r.Pid, r.Tid, r.Device = g.Int32("pid", r.Pid), g.Int32("tid", r.Tid), g.Int32("device", r.Device)
	r.Context, r.Stream = g.Int64("context", r.Context), g.Int64("stream", r.Stream)
	r.Result, r.Flags = g.Int32("result", r.Result), g.Int32("flags", r.Flags)
	r.ptrs, r.srcs, r.Bytes = g.Int64("ptr", r.ptrs), g.Int64("src_ptr", r.srcs), g.Int64("bytes", r.Bytes)
	r.Parent = r.T.DriverParents(g.Int64("parent_start_ns", r.Parent))
	r.copies = format.Strings{}
	if r.readsKind(format.KindMemcpy) {
		r.copies = g.StringsInto("copy_kind", r.copies)
	}
	r.Sites.ReadGroup(g)
}

// CallSiteReader resolves the call site of each row of a row group to a number in Names.
type CallSiteReader struct {
	T       *timeline.Timeline
	Names   *origin.StringNumbers
	byStack numbersByStack  // numbers of SiteOfRow
	byPart  map[int32]int32 // numbers of PartOfRow by stack
	byVia   map[int32]int32 // numbers of ViaOfRow by stack

	Stack []int32
	via   []int32
	site  format.Strings
	ids   []int32 // call site numbers by dictionary entry; -1: the site comes from the stack
}

// ReadGroup prepares the CallSiteReader for the rows of a row group.
func (s *CallSiteReader) ReadGroup(g *format.Group) {
	s.Stack, s.site = g.Int32("stack_id", s.Stack), g.StringsInto("site", s.site)
	s.ids = s.ids[:0]
	for _, site := range s.site.Dict {
		id := int32(-1)
		if site != "" && s.T.Stacks.Sites == nil {
			id = s.Names.NumberOf(site)
		}
		s.ids = append(s.ids, id)
	}
}

// ReadVias prepares ViaOfRow for the rows of a row group.
func (s *CallSiteReader) ReadVias(g *format.Group) { s.via = g.Int32("via_stack_id", s.via) }

// ViaOfRow returns the number in Names of the line of the program for which an autograd thread made row i, see
// timeline.ViaOfStack. ok is false if there is none. It needs ReadVias.
func (s *CallSiteReader) ViaOfRow(i int) (number int32, ok bool) {
	stack := s.via[i]
	if stack == 0 {
		return 0, false
	}
	number, known := s.byVia[stack]
	if !known {
		number = -1
		if line := s.T.ViaOfStack(stack); line != "" {
			number = s.Names.NumberOf(line)
		}
		if s.byVia == nil {
			s.byVia = make(map[int32]int32)
		}
		s.byVia[stack] = number
	}
	return number, number >= 0
}

// SiteOfRow returns the number of row i's call site in Names.
func (s *CallSiteReader) SiteOfRow(i int) int32 {
	if id := s.ids[s.site.Index[i]]; id >= 0 {
		return id
	}
	// some stacks have sites from source lines, others keep the recorded site
	if site := s.site.At(i); site != "" {
		return s.Names.NumberOf(s.T.SiteOfCall(s.Stack[i], site))
	}
	stack := s.Stack[i]
	id, ok := s.byStack.get(stack)
	if !ok {
		id = s.Names.NumberOf(s.T.SiteOfStack(stack))
		s.byStack.set(stack, id)
	}
	return id
}

// numbersByStack are numbers by the id of a stack. Ids count from 1, so most are in the list.
type numbersByStack struct {
	list  []int32 // 1 + number; 0: not set
	other map[int32]int32
}

// maxListedStacks bounds the list, because the ids of a damaged file may be of any size.
const maxListedStacks = 1 << 18

func (n *numbersByStack) get(stack int32) (number int32, ok bool) {
	if stack >= 0 && int(stack) < len(n.list) {
		number = n.list[stack] - 1
		return number, number >= 0
	}
	number, ok = n.other[stack]
	return number, ok
}

func (n *numbersByStack) set(stack, number int32) {
	if stack >= 0 && stack < maxListedStacks {
		if more := int(stack) + 1 - len(n.list); more > 0 {
			n.list = append(n.list, make([]int32, more)...)
		}
		n.list[stack] = number + 1
		return
	}
	if n.other == nil {
		n.other = make(map[int32]int32)
	}
	n.other[stack] = number
}

// PartOfRow returns the number in Names of the part of a PyTorch program that row i is of. by is one of
// stack.OperatorGroups, always the same.
func (s *CallSiteReader) PartOfRow(i int, by string) int32 { return s.PartOfStack(s.Stack[i], by) }

// PartOfStack returns the number in Names of the part of a PyTorch program that a stack is of, as PartOfRow.
func (s *CallSiteReader) PartOfStack(stack int32, by string) int32 {
	id, ok := s.byPart[stack]
	if !ok {
		if s.byPart == nil {
			s.byPart = make(map[int32]int32)
		}
		id = s.Names.NumberOf(s.T.Stacks.OperatorLabel(stack, by))
		s.byPart[stack] = id
	}
	return id
}

// CountReplayWhile calls read, and replays the memory calls in another goroutine at the same time, unless another
// report has done so. It returns the counts of the replay for the quality block. The two share no row group, and
// neither changes the Timeline.
func CountReplayWhile(t *timeline.Timeline, read func() error) (counts *livemem.ReplayCounts, err error) {
	err = timeline.RunParallel(read, func() (err error) {
		counts, err = t.ReplayCounts()
		return err
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// BurstDetector finds bursts of events: at least `most` events within withinNs. Events must come in
// order of time.
type BurstDetector struct {
	starts []int64 // ring of the latest event times, Unix ns
	next   int     // index of the oldest event in starts
	fresh  int     // events that no result of AddEvent has counted yet
	inside bool    // the latest event was part of a burst
}

// AddEvent records an event at atNs. It returns how many events it newly counts as part of a burst,
// and whether this event starts a burst.
func (d *BurstDetector) AddEvent(atNs int64, most int, withinNs int64) (joined int64, began bool) {
	d.fresh++
	if len(d.starts) < most {
		d.starts = append(d.starts, atNs)
	} else {
		d.starts[d.next] = atNs
		d.next = (d.next + 1) % most
	}
	was := d.inside
	if d.inside = len(d.starts) == most && atNs-d.starts[d.next] <= withinNs; !d.inside {
		return 0, false
	}
	joined = int64(min(d.fresh, most))
	d.fresh = 0
	return joined, !was
}
