package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// callRow is one call, for reports that look at calls one after the other. Its strings are numbers of callReader's names.
type callRow struct {
	startNs, endNs          int64
	stream, ptr, src, bytes int64
	pid, tid, device        int32
	stack, result, flags    int32
	name, site, kernel      int32
	copyKind                int32
	kind                    int8 // index into callReader.of
	nested                  bool
}

// timed reports whether the call's duration is known. That of an open call is not: it goes on.
func (c *callRow) timed() bool { return c.flags&noResult == 0 }

// failed reports whether the call is known to have returned an error.
func (c *callRow) failed() bool { return c.flags&noResult == 0 && c.result != 0 }

func (c *callRow) thread() origin.Thread { return origin.Thread{Pid: c.pid, Tid: c.tid} }

func (c *callRow) before(o *callRow) bool {
	if c.startNs != o.startNs {
		return c.startNs < o.startNs
	}
	return cmp.Or(cmp.Compare(c.pid, o.pid), cmp.Compare(c.tid, o.tid), cmp.Compare(c.endNs, o.endNs)) < 0
}

// callReader reads calls of some kinds in the order in which they began, as far as the filter lets them through. It looks at calls
// that are no memory calls only, so that it can work while those are replayed.
type callReader struct {
	*callUse
	of    []string // kinds
	names origin.Names
	sites siteReader

	ptrs, srcs, parent []int64
	copies             format.Strings
}

func (t *Timeline) newCallReader(f *query.Filter, kinds ...string) *callReader {
	r := &callReader{callUse: t.newCallUse(f), of: kinds}
	r.sites = siteReader{t: t, names: &r.names}
	return r
}

// each yields the calls. The row is valid until yield returns.
func (r *callReader) each(yield func(*callRow) error) error {
	return r.eachOf(func(s span) *format.Group { return s.group }, yield)
}

// eachOf is each with row groups that open returns.
func (r *callReader) eachOf(open func(span) *format.Group, yield func(*callRow) error) error {
	var spare [][]callRow
	return r.t.wrap(inOrder(r.t.calls, stream[callRow]{
		load: func(s span) ([]callRow, error) {
			var rows []callRow
			if n := len(spare); n > 0 {
				rows, spare = spare[n-1][:0], spare[:n-1]
			}
			g := open(s)
			rows = r.load(g, rows)
			sortNearly(rows, (*callRow).before)
			return rows, g.Err()
		},
		release: func(_ span, rows []callRow) { spare = append(spare, rows) },
		at:      func(c *callRow) int64 { return c.startNs },
		less:    (*callRow).before,
	}, yield))
}

func (r *callReader) load(g *format.Group, rows []callRow) []callRow {
	if !slices.ContainsFunc(g.Kinds(), r.reads) {
		return rows
	}
	r.read(g)
	if g.Err() != nil {
		return rows
	}
	r.kernel = format.Strings{}
	if r.reads(format.KindLaunch) || r.filter.Kernel != nil {
		r.kernel = g.StringsInto("kernel", r.kernel)
	}
	wanted := make([]int8, len(r.kind.Dict))
	for i, k := range r.kind.Dict {
		wanted[i] = int8(slices.Index(r.of, k))
	}
	pass := r.passes(g, r.kind, r.kernel)
	names, kernels, copies := r.names.All(r.name.Dict), r.names.All(r.kernel.Dict), r.names.All(r.copies.Dict)
	for i, start := range r.start {
		kind := wanted[r.kind.Index[i]]
		if kind < 0 || start < r.window.FromNs || start > r.window.ToNs || !pass(i) {
			continue
		}
		rows = append(rows, callRow{startNs: start, endNs: units.EndOf(start, r.dur[i]), stream: r.stream[i], ptr: r.ptrs[i], src: r.srcs[i], bytes: max(0, r.bytes[i]),
			pid: r.pid[i], tid: r.tid[i], device: r.t.deviceOf(r.pid[i], r.context[i], r.device[i]), stack: r.sites.stack[i], result: r.result[i], flags: r.flags[i],
			name: names[r.name.Index[i]], site: r.sites.at(i), kind: kind, nested: r.parent[i] != 0})
		row := &rows[len(rows)-1]
		if len(kernels) > 0 {
			row.kernel = kernels[r.kernel.Index[i]]
		}
		if len(copies) > 0 {
			row.copyKind = copies[r.copies.Index[i]]
		}
	}
	return rows
}

// reads reports whether calls of a kind are read.
func (r *callReader) reads(kind string) bool { return slices.Contains(r.of, kind) }

// read reads the columns of a row group.
func (r *callReader) read(g *format.Group) {
	r.kind, r.name = g.StringsInto("kind", r.kind), g.StringsInto("name", r.name)
	r.start, r.dur = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur)
	r.pid, r.tid, r.device = g.Int32("pid", r.pid), g.Int32("tid", r.tid), g.Int32("device", r.device)
	r.context, r.stream = g.Int64("context", r.context), g.Int64("stream", r.stream)
	r.result, r.flags = g.Int32("result", r.result), g.Int32("flags", r.flags)
	r.ptrs, r.srcs, r.bytes = g.Int64("ptr", r.ptrs), g.Int64("src_ptr", r.srcs), g.Int64("bytes", r.bytes)
	r.parent = g.Int64("parent_start_ns", r.parent)
	r.copies = format.Strings{}
	if r.reads(format.KindMemcpy) {
		r.copies = g.StringsInto("copy_kind", r.copies)
	}
	r.sites.read(g)
}

// siteReader tells the places in the program that the calls of a row group came from, as numbers of names.
type siteReader struct {
	t       *Timeline
	names   *origin.Names
	byStack map[int32]int32

	stack []int32
	site  format.Strings
	ids   []int32 // of the group's dictionary; -1: the stack says it
}

func (s *siteReader) read(g *format.Group) {
	s.stack, s.site = g.Int32("stack_id", s.stack), g.StringsInto("site", s.site)
	s.ids = s.ids[:0]
	for _, site := range s.site.Dict {
		id := int32(-1)
		if site != "" && s.t.stacks.Placed == nil {
			id = s.names.ID(site)
		}
		s.ids = append(s.ids, id)
	}
}

// at is the place of row i.
func (s *siteReader) at(i int) int32 {
	if id := s.ids[s.site.Index[i]]; id >= 0 {
		return id
	}
	if site := s.site.At(i); site != "" { // stacks have source lines, not all of them
		return s.names.ID(s.t.siteOfCall(s.stack[i], site))
	}
	id, ok := s.byStack[s.stack[i]]
	if !ok {
		if s.byStack == nil {
			s.byStack = make(map[int32]int32)
		}
		id = s.names.ID(s.t.siteOf(s.stack[i]))
		s.byStack[s.stack[i]] = id
	}
	return id
}

// countsWhile replays memory calls for the quality block while read looks at other calls: the two share no row group, and what they
// share of the Timeline neither changes.
func (t *Timeline) countsWhile(read func() error) (*ledger.Counts, error) {
	if t.counts != nil { // they are the same in every replay
		return t.counts, read()
	}
	var l *ledger.Ledger
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		l, failed = t.replay(func(*ledger.Ledger, *ledger.Change) {})
	}()
	err := read()
	<-done
	if err := cmp.Or(err, failed); err != nil {
		return nil, err
	}
	t.counts = &l.Counts
	return t.counts, nil
}

// crowd tells when events come in crowds: at least `most` of them within withinNs.
type crowd struct {
	starts []int64 // a ring of the last ones
	next   int
	fresh  int // not yet told
	inside bool
}

// add notes an event and returns how many have turned out to belong to a crowd, and whether that is a new one.
func (c *crowd) add(atNs int64, most int, withinNs int64) (joined int64, began bool) {
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

// threadLabel is a thread as people know it: process if there are several, number and name.
func (t *Timeline) threadLabel(th origin.Thread) string {
	label := fmt.Sprint(th.Tid)
	if len(t.facts.processes) > 1 {
		label = fmt.Sprintf("%d/%d", th.Pid, th.Tid)
	}
	if name := t.facts.threads[th]; name != "" {
		label += " " + name
	}
	return label
}
