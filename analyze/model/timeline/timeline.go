package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Timeline is a recording prepared for reports: its facts, its stacks, and the positions of its
// calls. It reads calls row group by row group when a report needs them, and keeps none of them.
//
// The data that Open reads changes only in Extend, so several goroutines may use one Timeline. Reports,
// exports and direct replays each work on a View. AddSourceLines must be called before that.
type Timeline struct {
	Rec     *format.Recording
	Facts   facts.Facts
	Stacks  stack.StackTable
	Origins origin.OriginTable
	Scan    CallScan
	API     APIScan

	weights         map[query.Window]*sampling.LaunchWeights // cache of launch weights by window
	contexts        contextDevices
	createdContexts map[contextKey]bool   // contexts that the program created with cuCtxCreate
	Events          []livemem.MemoryEvent // ends of processes and contexts, in order of time
	Free            []FreeMemorySample    // results of cuMemGetInfo, in order of time

	Pieces []*format.Recording // Rec, and before it the earlier pieces: see Extend
	Groups []*format.Group     // all row groups of all pieces
	Memory []Span              // row groups of memory calls
	Calls  []Span              // row groups of all other calls

	Allocations []Span // row groups of events of caching allocators
	Allocators  caching.AllocatorNumbers
	Progress    []*format.Group // row groups of progress rows
	Host        []*format.Group // row groups of class host
	Arguments   []*format.Group // row groups of arguments of kernel launches
	Blocks      []*format.Group // row groups of readings of blocks
	collectives []int64         // sorted starts of the calls of NCCL, Unix ns
	// earlierStates are the states of allocators from before the recording, in order of time.
	earlierStates []*caching.EarlierState
	// readings has the readings of blocks of a recording without some allocator events; nil: there is none.
	readings *blockreadings.Index
	totals   []Span // row groups of the allocators' own totals in such a recording
	// segments has the Block.Number of driver memory that allocators use for segments. It is nil
	// before FindSegments.
	segments  *livemem.BlockNumberSet
	memo      *memo
	opened    *Timeline       // state after Open, Extend or AddSourceLines, which no replay changes
	teardowns map[int32]int64 // by pid: start of the teardown, Unix ns; nil before the first use

	// The fields below remember how much of a growing recording was read.
	extended    int                    // how often Extend was called
	frameIDs    map[format.Frame]int32 // index in Stacks.Frames; nil before the first Extend
	learned     scannedSpans           // row groups that learnContexts has read
	areas       *deviceAreas           // nil before the first use
	votes       contextVotes
	uses        contextUses
	lastAllocs  lastAllocs
	blockAllocs lastAllocs
}

// scannedSpans counts the row groups that a search has read.
type scannedSpans struct{ memory, calls int }

// lastAllocs has the last allocation of each process.
type lastAllocs struct {
	spans int             // row groups that were read
	ns    map[int32]int64 // by pid, Unix ns
}

// Open reads the facts and stacks of a recording and scans its calls. The recording must stay open
// while the Timeline is used. It returns errors of reading the recording.
func Open(rec *format.Recording) (*Timeline, error) {
	t, err := readFacts(rec)
	if err != nil {
		return nil, err
	}
	if err := t.addRows(make(map[format.Frame]int32)); err != nil {
		return nil, err
	}
	return t, nil
}

// addRows reads the stacks of Rec and scans its calls, and brings up to date what follows from all rows.
func (t *Timeline) addRows(frameIDs map[format.Frame]int32) error {
	readStacks := func() error { return t.readStacks(frameIDs) }
	if err := RunParallel(t.scanCalls, readStacks); err != nil { // calls and stacks share no data
		return err
	}
	if err := t.learnContexts(); err != nil {
		return err
	}
	if t.Scan.unknownDevice {
		if err := t.learnContextsByMemory(); err != nil {
			return err
		}
	}
	if err := t.readEarlierStates(); err != nil {
		return err
	}
	if err := t.indexReadings(); err != nil {
		return err
	}
	if err := t.readEvents(); err != nil {
		return err
	}
	t.Free = t.freeMemorySamples()
	if l := t.SamplingCoverage(); l.Sampled {
		t.Facts.Notes = append(t.Facts.Notes, l.FormatNote())
	}
	if c := t.AllocatorCoverage(); c.Sampled {
		t.Facts.Notes = append(t.Facts.Notes, c.FormatNote())
	}
	t.keepOpened()
	return nil
}

// readFacts returns a Timeline with the facts of a recording only.
func readFacts(rec *format.Recording) (*Timeline, error) {
	t := &Timeline{
		Rec:             rec,
		Pieces:          []*format.Recording{rec},
		Origins:         origin.NewOriginTable(),
		memo:            new(memo),
		contexts:        make(contextDevices),
		createdContexts: make(map[contextKey]bool),
		Allocators:      caching.NewAllocatorNumbers(),
	}
	t.Scan.Stacks = make(map[string]int64)
	t.Stacks.Stacks, t.Stacks.About = make(map[int32][]int32), make(map[int32]stack.StackInfo)
	f, err := facts.Read(rec)
	if err != nil {
		return nil, err
	}
	t.Facts = *f
	return t, nil
}

// keepOpened keeps the present state for NewView.
func (t *Timeline) keepOpened() {
	opened := *t
	opened.opened, opened.weights = nil, maps.Clone(t.weights)
	t.opened = &opened
}

// NewView returns a Timeline of the same recording for another goroutine. It has its own numbers of
// origins and allocators, and shares read-only data with t. It costs a few microseconds. It may be called
// while another goroutine replays t.
func (t *Timeline) NewView() *Timeline {
	v := *t.opened
	v.opened = t.opened
	v.Origins, v.Allocators = origin.NewOriginTable(), caching.NewAllocatorNumbers()
	v.weights = maps.Clone(v.weights)
	// Each View needs column buffers of its own.
	v.Scan.start, v.Scan.flags, v.Scan.device, v.Scan.status = nil, nil, nil, format.Strings{}
	v.API = APIScan{Calls: t.API.Calls, uuids: t.API.uuids}
	v.blockAllocs = lastAllocs{}
	return &v
}

// scanCalls records the positions of the row groups with calls and allocator events.
func (t *Timeline) scanCalls() error {
	first := len(t.Groups)
	t.Groups = append(t.Groups, t.Rec.Groups()...)
	for i, g := range t.Groups[first:] {
		i += first
		switch g.Class() {
		case format.ClassMemory:
			t.Memory = append(t.Memory, t.Scan.addGroup(g, i))
		case format.ClassCall:
			t.Calls = append(t.Calls, t.Scan.addGroup(g, i))
			t.API.addGroup(g)
		case format.ClassAllocator:
			t.scanAllocators(g, i)
		case format.ClassProgress:
			t.Progress = append(t.Progress, g)
		case format.ClassHost:
			t.Host = append(t.Host, g)
		case format.ClassCollective:
			t.addCollectives(g)
		case format.ClassArguments:
			t.Arguments = append(t.Arguments, g)
		case format.ClassBlock:
			t.Blocks = append(t.Blocks, g)
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	slices.Sort(t.collectives)
	t.API.sortCalls()
	for _, u := range slices.SortedFunc(maps.Keys(t.API.uuids), deviceUUID.compare) {
		t.Facts.LearnUUID(u.pid, u.ordinal, u.uuid)
	}
	return nil
}

// BlockGroups returns the row groups of readings of blocks.
func (t *Timeline) BlockGroups() []*format.Group { return t.Blocks }

// ProcessExitNs returns the end of a process, Unix ns, or 0 if it is not in the recording.
func (t *Timeline) ProcessExitNs(pid int32) int64 { return t.Facts.Processes[pid].ExitNs }

// RecordingWindow returns the window of the whole recording. If the recorder ended before it wrote
// its times, the window is that of the calls.
func (t *Timeline) RecordingWindow() query.Window {
	w := query.Window{FromNs: t.Rec.Meta.StartNs, ToNs: t.Rec.Meta.EndNs}
	if w.FromNs == 0 && t.Scan.Events+t.Scan.AllocatorEvents > 0 {
		w.FromNs = t.Scan.firstNs
	}
	if w.ToNs < w.FromNs || w.ToNs == 0 {
		w.ToNs = max(w.FromNs, t.Scan.LastNs)
	}
	return w
}

// Span is the position of one row group of calls.
type Span struct {
	Group *format.Group
	Index int
	// FirstNs is the earliest start of a call in the row group, Unix ns. No call of the group takes
	// effect earlier.
	FirstNs int64
	// LastNs is the latest start of a call in the row group, Unix ns.
	LastNs int64
}

// CallScan has the counts from one pass over a few columns of all calls.
type CallScan struct {
	Events          int64
	AllocatorEvents int64
	Open, Abandoned int64
	unreadable      int64
	firstNs, LastNs int64
	Stacks          map[string]int64 // number of calls, by stack status
	unknownDevice   bool             // some recorded call lacks its device

	start         []int64
	flags, device []int32
	status        format.Strings
}

func (s *CallScan) addGroup(g *format.Group, index int) Span {
	s.start = g.Int64("start_ns", s.start)
	s.flags = g.Int32("flags", s.flags)
	sp := Span{Group: g, Index: index, FirstNs: math.MaxInt64}
	for _, ns := range s.start {
		sp.FirstNs, sp.LastNs = min(sp.FirstNs, ns), max(sp.LastNs, ns)
	}
	s.LastNs = max(s.LastNs, sp.LastNs)
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

// WrapReadError adds the path of the recording to a read error. It returns nil for nil.
func (t *Timeline) WrapReadError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", t.Rec.Path, err)
}
