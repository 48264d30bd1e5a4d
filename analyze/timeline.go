package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Timeline is a recording prepared for reports: its facts, its stacks and where its
// calls are. It reads calls when a report asks for them, row group by row group, and
// keeps none of them. A Timeline is not safe for concurrent use.
type Timeline struct {
	rec     *format.Recording
	facts   facts
	stacks  stack.Table
	origins origin.Table
	scan    callScan
	api     apiScan

	weights  map[query.Window]*sampling.Weights // of windows that were asked for
	contexts contextDevices
	madeHere map[contextKey]bool // contexts that the program made with cuCtxCreate
	events   []ledger.Event      // in order of time
	free     []freeSample        // in order of time
	counts   *ledger.Counts      // of a replay, once countsWhile has made one

	memory []span // row groups of memory calls
	calls  []span // row groups of all other calls

	allocations []span // row groups of events of caching allocators
	allocators  caching.Numbers
	segments    *ledger.BlockSet // block.number of the driver's memory that is allocators' segments, once that was asked
	teardowns   map[int32]int64  // process → from when on it is ending, once that was asked
}

// New reads the recording's facts and stacks and measures its calls. The recording
// must stay open while the Timeline is used.
func New(rec *format.Recording) (*Timeline, error) {
	t := &Timeline{rec: rec, origins: origin.NewTable(), madeHere: make(map[contextKey]bool), allocators: caching.NewNumbers()}
	t.scan.stacks = make(map[string]int64)
	if err := t.readFacts(); err != nil {
		return nil, err
	}
	if err := both(t.scanCalls, t.readStacks); err != nil { // the two share nothing
		return nil, err
	}
	if err := t.learnContexts(); err != nil {
		return nil, err
	}
	if err := t.readEvents(); err != nil {
		return nil, err
	}
	t.free = t.freeSamples()
	if l := t.launchSampling(); l.Sampled {
		t.facts.notes = append(t.facts.notes, l.Note())
	}
	return t, nil
}

// scanCalls notes where calls and allocators' events are.
func (t *Timeline) scanCalls() error {
	for i, g := range t.rec.Groups() {
		switch g.Class() {
		case format.ClassMemory:
			t.memory = append(t.memory, t.scan.add(g, i))
		case format.ClassCall:
			t.calls = append(t.calls, t.scan.add(g, i))
			t.api.add(g)
		case format.ClassAllocator:
			t.scanAllocators(g, i)
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	t.api.sort()
	for _, told := range slices.SortedFunc(maps.Keys(t.api.uuids), toldUUID.compare) {
		t.facts.learnUUID(told.pid, told.ordinal, told.uuid)
	}
	return nil
}

// Recording returns the window of the whole recording: the recorder's own times, or
// where it left none (cut off before its first segment) those of the calls.
func (t *Timeline) Recording() query.Window {
	w := query.Window{FromNs: t.rec.Meta.StartNs, ToNs: t.rec.Meta.EndNs}
	if w.FromNs == 0 && t.scan.events+t.scan.allocatorEvents > 0 {
		w.FromNs = t.scan.firstNs
	}
	if w.ToNs < w.FromNs || w.ToNs == 0 {
		w.ToNs = max(w.FromNs, t.scan.lastNs)
	}
	return w
}

// span is one row group of calls.
type span struct {
	group *format.Group
	index int
	// firstNs is the earliest start of a call in the group: no call of it takes
	// effect before.
	firstNs int64
}

// callScan is what one pass over a few columns of all calls tells.
type callScan struct {
	events          int64
	allocatorEvents int64
	open, abandoned int64
	unreadable      int64
	firstNs, lastNs int64
	stacks          map[string]int64 // calls by stack status
	unknownDevice   bool             // some call does not say its device

	start         []int64
	flags, device []int32
	status        format.Strings
}

func (s *callScan) add(g *format.Group, index int) span {
	s.start = g.Int64("start_ns", s.start)
	s.flags = g.Int32("flags", s.flags)
	sp := span{group: g, index: index, firstNs: math.MaxInt64}
	for _, ns := range s.start {
		sp.firstNs = min(sp.firstNs, ns)
		s.lastNs = max(s.lastNs, ns)
	}
	if s.events+s.allocatorEvents == 0 || sp.firstNs < s.firstNs {
		s.firstNs = sp.firstNs
	}
	s.events += int64(len(s.start))
	for _, f := range s.flags {
		if f == 0 {
			continue
		}
		s.open += int64(f & format.FlagOpen)
		s.abandoned += int64(f & format.FlagAbandoned / format.FlagAbandoned)
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
			s.stacks[cmp.Or(s.status.Dict[i], format.StackNone)] += n
		}
	}
	return sp
}

// wrap adds the recording's name to an error of reading it.
func (t *Timeline) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", t.rec.Path, err)
}
