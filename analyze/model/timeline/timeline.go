package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Timeline is a recording prepared for reports: its facts, its stacks and where its
// calls are. It reads calls when a report asks for them, row group by row group, and
// keeps none of them.
//
// What Open read does not change, so several goroutines may use one Timeline: reports and
// exports work on a View of it. Whoever replays it directly takes a View, too. AddSource
// comes before all that.
type Timeline struct {
	Rec     *format.Recording
	Facts   facts.Facts
	Stacks  stack.Table
	Origins origin.Table
	Scan    CallScan
	API     APIScan

	weights  map[query.Window]*sampling.Weights // of windows that were asked for
	contexts contextDevices
	madeHere map[contextKey]bool // contexts that the program made with cuCtxCreate
	Events   []livemem.Event     // in order of time
	Free     []FreeSample        // in order of time
	Counts   *livemem.Counts     // of a replay, once calls.CountsWhile has made one

	Memory []Span // row groups of memory calls
	Calls  []Span // row groups of all other calls

	Allocations []Span // row groups of events of caching allocators
	Allocators  caching.Numbers
	// block.number of the driver's memory that is allocators' segments, once that was asked
	segments  *livemem.BlockSet
	teardowns map[int32]int64 // process → from when on it is ending, once that was asked
}

// Open reads the recording's facts and stacks and measures its calls. The recording
// must stay open while the Timeline is used.
func Open(rec *format.Recording) (*Timeline, error) {
	t := &Timeline{
		Rec:        rec,
		Origins:    origin.NewTable(),
		madeHere:   make(map[contextKey]bool),
		Allocators: caching.NewNumbers(),
	}
	t.Scan.Stacks = make(map[string]int64)
	f, err := facts.Read(rec)
	if err != nil {
		return nil, err
	}
	t.Facts = *f
	if err := Both(t.scanCalls, t.readStacks); err != nil { // the two share nothing
		return nil, err
	}
	if err := t.learnContexts(); err != nil {
		return nil, err
	}
	if err := t.readEvents(); err != nil {
		return nil, err
	}
	t.Free = t.freeSamples()
	if l := t.Coverage(); l.Sampled {
		t.Facts.Notes = append(t.Facts.Notes, l.Note())
	}
	return t, nil
}

// View returns a Timeline of the same recording for one goroutine: it numbers origins and
// allocators anew, and shares with t what is only read. It costs a few microseconds.
func (t *Timeline) View() *Timeline {
	v := *t
	v.Origins, v.Allocators = origin.NewTable(), caching.NewNumbers()
	v.weights = maps.Clone(t.weights)
	// Passes over row groups read columns into these again and again.
	v.Scan.start, v.Scan.flags, v.Scan.device, v.Scan.status = nil, nil, nil, format.Strings{}
	v.API = APIScan{Calls: t.API.Calls, uuids: t.API.uuids}
	return &v
}

// scanCalls notes where calls and allocators' events are.
func (t *Timeline) scanCalls() error {
	for i, g := range t.Rec.Groups() {
		switch g.Class() {
		case format.ClassMemory:
			t.Memory = append(t.Memory, t.Scan.add(g, i))
		case format.ClassCall:
			t.Calls = append(t.Calls, t.Scan.add(g, i))
			t.API.add(g)
		case format.ClassAllocator:
			t.scanAllocators(g, i)
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	t.API.sort()
	for _, told := range slices.SortedFunc(maps.Keys(t.API.uuids), toldUUID.compare) {
		t.Facts.LearnUUID(told.pid, told.ordinal, told.uuid)
	}
	return nil
}

// Recording returns the window of the whole recording: the recorder's own times, or
// where it left none (cut off before its first segment) those of the calls.
func (t *Timeline) Recording() query.Window {
	w := query.Window{FromNs: t.Rec.Meta.StartNs, ToNs: t.Rec.Meta.EndNs}
	if w.FromNs == 0 && t.Scan.Events+t.Scan.AllocatorEvents > 0 {
		w.FromNs = t.Scan.firstNs
	}
	if w.ToNs < w.FromNs || w.ToNs == 0 {
		w.ToNs = max(w.FromNs, t.Scan.LastNs)
	}
	return w
}

// Span is one row group of calls.
type Span struct {
	Group *format.Group
	Index int
	// FirstNs is the earliest start of a call in the group: no call of it takes
	// effect before.
	FirstNs int64
}

// CallScan is what one pass over a few columns of all calls tells.
type CallScan struct {
	Events          int64
	AllocatorEvents int64
	Open, Abandoned int64
	unreadable      int64
	firstNs, LastNs int64
	Stacks          map[string]int64 // calls by stack status
	unknownDevice   bool             // some call does not say its device

	start         []int64
	flags, device []int32
	status        format.Strings
}

func (s *CallScan) add(g *format.Group, index int) Span {
	s.start = g.Int64("start_ns", s.start)
	s.flags = g.Int32("flags", s.flags)
	sp := Span{Group: g, Index: index, FirstNs: math.MaxInt64}
	for _, ns := range s.start {
		sp.FirstNs = min(sp.FirstNs, ns)
		s.LastNs = max(s.LastNs, ns)
	}
	if s.Events+s.AllocatorEvents == 0 || sp.FirstNs < s.firstNs {
		s.firstNs = sp.FirstNs
	}
	s.Events += int64(len(s.start))
	for _, f := range s.flags {
		if f == 0 {
			continue
		}
		s.Open += int64(f & format.FlagOpen)
		s.Abandoned += int64(f & format.FlagAbandoned / format.FlagAbandoned)
		s.unreadable += int64(f & format.FlagUnreadable / format.FlagUnreadable)
	}
	s.device = g.Int32("device", s.device)
	s.unknownDevice = s.unknownDevice || len(s.device) > 0 && slices.Min(s.device) < 0
	s.status = g.StringsInto("stack_status", s.status)
	counts := make([]int64, len(s.status.Dict))
	for _, i := range s.status.Index {
		counts[i]++
	}
	for i, n := range counts {
		if n > 0 {
			s.Stacks[cmp.Or(s.status.Dict[i], format.StackNone)] += n
		}
	}
	return sp
}

// Wrap adds the recording's name to an error of reading it.
func (t *Timeline) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", t.Rec.Path, err)
}
