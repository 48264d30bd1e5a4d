package calls

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Call is one call, for reports that look at calls one after the other. Its strings are numbers of Reader's names.
type Call struct {
	StartNs, EndNs          int64
	Stream, Ptr, Src, Bytes int64
	Pid, Tid, Device        int32
	Stack, Result, Flags    int32
	Name, Site, Kernel      int32
	CopyKind                int32
	Kind                    int8 // index into Reader.Of
	Nested                  bool
}

// Timed reports whether the call's duration is known. That of an open call is not: it goes on.
func (c *Call) Timed() bool { return c.Flags&timeline.NoResult == 0 }

// Failed reports whether the call is known to have returned an error.
func (c *Call) Failed() bool { return c.Flags&timeline.NoResult == 0 && c.Result != 0 }

func (c *Call) Thread() origin.Thread { return origin.Thread{Pid: c.Pid, Tid: c.Tid} }

func (c *Call) before(o *Call) bool {
	if c.StartNs != o.StartNs {
		return c.StartNs < o.StartNs
	}
	return cmp.Or(cmp.Compare(c.Pid, o.Pid), cmp.Compare(c.Tid, o.Tid), cmp.Compare(c.EndNs, o.EndNs)) < 0
}

// Reader reads calls of some kinds in the order in which they began, as far as the filter lets them
// through. It looks at calls that are no memory calls only, so that it can work while those are
// replayed.
type Reader struct {
	*Counter
	Of    []string // kinds
	Names origin.Names
	Sites SiteReader

	ptrs, srcs, Parent []int64
	copies             format.Strings
}

func NewReader(t *timeline.Timeline, f *query.Filter, kinds ...string) *Reader {
	r := &Reader{Counter: NewCounter(t, f), Of: kinds}
	r.Sites = SiteReader{T: t, Names: &r.Names}
	return r
}

// Each yields the calls. The row is valid until yield returns.
func (r *Reader) Each(yield func(*Call) error) error {
	return r.EachOf(func(s timeline.Span) *format.Group { return s.Group }, yield)
}

// EachOf is each with row groups that open returns.
func (r *Reader) EachOf(open func(timeline.Span) *format.Group, yield func(*Call) error) error {
	var spare [][]Call
	return r.T.Wrap(timeline.InOrder(r.T.Calls, timeline.Stream[Call]{
		Load: func(s timeline.Span) ([]Call, error) {
			var rows []Call
			if n := len(spare); n > 0 {
				rows, spare = spare[n-1][:0], spare[:n-1]
			}
			g := open(s)
			rows = r.load(g, rows)
			timeline.SortNearly(rows, (*Call).before)
			return rows, g.Err()
		},
		Release: func(_ timeline.Span, rows []Call) { spare = append(spare, rows) },
		At:      func(c *Call) int64 { return c.StartNs },
		Less:    (*Call).before,
	}, yield))
}

func (r *Reader) load(g *format.Group, rows []Call) []Call {
	if !slices.ContainsFunc(g.Kinds(), r.reads) {
		return rows
	}
	r.read(g)
	if g.Err() != nil {
		return rows
	}
	r.Kernel = format.Strings{}
	if r.reads(format.KindLaunch) || r.Filter.Kernel != nil {
		r.Kernel = g.StringsInto("kernel", r.Kernel)
	}
	wanted := make([]int8, len(r.Kind.Dict))
	for i, k := range r.Kind.Dict {
		wanted[i] = int8(slices.Index(r.Of, k))
	}
	pass := r.Passes(g, r.Kind, r.Kernel)
	names, kernels, copies := r.Names.All(r.Name.Dict), r.Names.All(r.Kernel.Dict), r.Names.All(r.copies.Dict)
	for i, start := range r.Start {
		kind := wanted[r.Kind.Index[i]]
		if kind < 0 || start < r.Window.FromNs || start > r.Window.ToNs || !pass(i) {
			continue
		}
		rows = append(rows, Call{
			StartNs: start,
			EndNs:   units.EndOf(start, r.Dur[i]),
			Stream:  r.Stream[i],
			Ptr:     r.ptrs[i],
			Src:     r.srcs[i],
			Bytes:   max(0, r.Bytes[i]),
			Pid:     r.Pid[i],
			Tid:     r.Tid[i],
			Device:  r.T.DeviceOf(r.Pid[i], r.Context[i], r.Device[i]),
			Stack:   r.Sites.Stack[i],
			Result:  r.Result[i],
			Flags:   r.Flags[i],
			Name:    names[r.Name.Index[i]],
			Site:    r.Sites.At(i),
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

// reads reports whether calls of a kind are read.
func (r *Reader) reads(kind string) bool { return slices.Contains(r.Of, kind) }

// read reads the columns of a row group.
func (r *Reader) read(g *format.Group) {
	r.Kind, r.Name = g.StringsInto("kind", r.Kind), g.StringsInto("name", r.Name)
	r.Start, r.Dur = g.Int64("start_ns", r.Start), g.Int64("dur_ns", r.Dur)
	r.Pid, r.Tid, r.Device = g.Int32("pid", r.Pid), g.Int32("tid", r.Tid), g.Int32("device", r.Device)
	r.Context, r.Stream = g.Int64("context", r.Context), g.Int64("stream", r.Stream)
	r.Result, r.Flags = g.Int32("result", r.Result), g.Int32("flags", r.Flags)
	r.ptrs, r.srcs, r.Bytes = g.Int64("ptr", r.ptrs), g.Int64("src_ptr", r.srcs), g.Int64("bytes", r.Bytes)
	r.Parent = g.Int64("parent_start_ns", r.Parent)
	r.copies = format.Strings{}
	if r.reads(format.KindMemcpy) {
		r.copies = g.StringsInto("copy_kind", r.copies)
	}
	r.Sites.Read(g)
}

// SiteReader tells the places in the program that the calls of a row group came from, as numbers of names.
type SiteReader struct {
	T       *timeline.Timeline
	Names   *origin.Names
	byStack map[int32]int32

	Stack []int32
	site  format.Strings
	ids   []int32 // of the group's dictionary; -1: the stack says it
}

func (s *SiteReader) Read(g *format.Group) {
	s.Stack, s.site = g.Int32("stack_id", s.Stack), g.StringsInto("site", s.site)
	s.ids = s.ids[:0]
	for _, site := range s.site.Dict {
		id := int32(-1)
		if site != "" && s.T.Stacks.Placed == nil {
			id = s.Names.ID(site)
		}
		s.ids = append(s.ids, id)
	}
}

// At is the place of row i.
func (s *SiteReader) At(i int) int32 {
	if id := s.ids[s.site.Index[i]]; id >= 0 {
		return id
	}
	if site := s.site.At(i); site != "" { // stacks have source lines, not all of them
		return s.Names.ID(s.T.SiteOfCall(s.Stack[i], site))
	}
	id, ok := s.byStack[s.Stack[i]]
	if !ok {
		if s.byStack == nil {
			s.byStack = make(map[int32]int32)
		}
		id = s.Names.ID(s.T.SiteOf(s.Stack[i]))
		s.byStack[s.Stack[i]] = id
	}
	return id
}

// CountsWhile replays memory calls for the quality block while read looks at other calls: the two
// share no row group, and what they share of the Timeline neither changes.
func CountsWhile(t *timeline.Timeline, read func() error) (*livemem.Counts, error) {
	if t.Counts != nil { // they are the same in every replay
		return t.Counts, read()
	}
	var l *livemem.Set
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		l, failed = t.Replay(func(*livemem.Set, *livemem.Change) {})
	}()
	err := read()
	<-done
	if err := cmp.Or(err, failed); err != nil {
		return nil, err
	}
	t.Counts = &l.Counts
	return t.Counts, nil
}

// BurstDetector tells when events come in crowds: at least `most` of them within withinNs.
type BurstDetector struct {
	starts []int64 // a ring of the last ones
	next   int
	fresh  int // not yet told
	inside bool
}

// Add notes an event and returns how many have turned out to belong to a crowd, and whether that is a new one.
func (c *BurstDetector) Add(atNs int64, most int, withinNs int64) (joined int64, began bool) {
	c.fresh++
	if len(c.starts) < most {
		c.starts = append(c.starts, atNs)
	} else {
		c.starts[c.next] = atNs
		c.next = (c.next + 1) % most
	}
	was := c.inside
	if c.inside = len(c.starts) == most && atNs-c.starts[c.next] <= withinNs; !c.inside {
		return 0, false
	}
	joined = int64(min(c.fresh, most))
	c.fresh = 0
	return joined, !was
}
