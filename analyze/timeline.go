package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// Timeline is a recording prepared for reports: its facts, its stacks and where its
// calls are. It reads calls when a report asks for them, row group by row group, and
// keeps none of them. A Timeline is not safe for concurrent use.
type Timeline struct {
	rec     *format.Recording
	facts   facts
	stacks  stackTable
	origins originTable
	scan    callScan
	api     apiScan

	weights  map[Window]*launchWeights // of windows that were asked for
	contexts contextDevices
	madeHere map[contextKey]bool // contexts that the program made with cuCtxCreate
	events   []memoryEvent       // in order of time
	free     []freeSample        // in order of time
	counts   *replayCounts       // of a replay, once countsWhile has made one

	memory []span // row groups of memory calls
	calls  []span // row groups of all other calls

	allocations []span // row groups of events of caching allocators
	allocators  allocatorNumbers
	segments    *numberSet      // block.number of the driver's memory that is allocators' segments, once that was asked
	teardowns   map[int32]int64 // process → from when on it is ending, once that was asked
}

// Window is a stretch of time in Unix ns, both ends included.
type Window struct{ FromNs, ToNs int64 }

// DurNs returns the window's length, never negative.
func (w Window) DurNs() int64 { return max(0, w.ToNs-w.FromNs) }

// New reads the recording's facts and stacks and measures its calls. The recording
// must stay open while the Timeline is used.
func New(rec *format.Recording) (*Timeline, error) {
	t := &Timeline{rec: rec, origins: newOriginTable(), madeHere: make(map[contextKey]bool), allocators: newAllocatorNumbers()}
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
	if l := t.launchSampling(); l.sampled {
		t.facts.notes = append(t.facts.notes, l.note())
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
func (t *Timeline) Recording() Window {
	w := Window{t.rec.Meta.StartNs, t.rec.Meta.EndNs}
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

// endOf returns start+dur, where negative durations are none and a sum beyond the
// range stays inside it: both occur only in damaged files.
func endOf(startNs, durNs int64) int64 {
	if durNs <= 0 {
		return startNs
	}
	if startNs > math.MaxInt64-durNs {
		return math.MaxInt64
	}
	return startNs + durNs
}
