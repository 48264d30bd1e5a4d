package fault

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// PointerState says what is at an address at the time of a launch.
type PointerState uint8

const (
	// PointerLive: in memory that was allocated at the launch, and until the moment of interest.
	PointerLive PointerState = iota
	// PointerFreed: in memory that was freed before the launch, and not allocated again.
	PointerFreed
	// PointerUnknown: in no memory that a recorded call allocated, but near such memory.
	PointerUnknown
	// PointerFreedLater: in memory that was freed after the launch in the order of another stream, or unmapped.
	PointerFreedLater
	// PointerCached: in a block of a caching allocator that was freed before the launch. Its memory is still mapped.
	PointerCached
	// PointerNull: 0. Whether it is a pointer is unknown.
	PointerNull
	// PointerNumber: not near any known memory. It is probably a number.
	PointerNumber
	// NumPointerStates is the number of states.
	NumPointerStates
)

// String returns the state in words.
func (s PointerState) String() string {
	return [...]string{
		"live", "freed", "no known memory", "freed while the kernel may run", "freed to the cache", "null", "number",
	}[s]
}

// PointerUse is a word in the arguments of a launch.
type PointerUse struct {
	Pid      int32
	Word     int64
	Stream   int64
	LaunchNs int64 // start of the launch, Unix ns
	UntilNs  int64 // the kernel may run until then, Unix ns
}

// PointerFinding describes the memory at a PointerUse.
type PointerFinding struct {
	State PointerState
	// Start and Block are the memory that contains the address, if a recorded call allocated it. Offset is the
	// distance of the address from its start, bytes.
	Start, Offset int64
	Block         livemem.Block
	Memory        string // kind of memory, as the column memory_kind
	// FreedNs and By are time (Unix ns) and origin of the free. By is origin.NoOrigin if the context or the
	// process ended.
	FreedNs int64
	By      int32
}

// ownership is a change of the memory at an address: it begins or ends to belong to a block.
type ownership struct {
	atNs     int64
	isBegin  bool
	isCached bool  // a block of a caching allocator
	isWaited bool  // the free waits for the work of the context
	stream   int64 // the stream in whose order the memory is freed, for other frees
	start    int64
	block    livemem.Block
	by       int32
	memory   string
}

// maxOwnerships bounds the changes that are kept for an address. Older ones are forgotten.
const maxOwnerships = 256

// minAddress is the lowest word that can be an unknown address: CUDA gives out no lower ones, and many numbers are
// smaller.
const minAddress = 1 << 32

// regionShift is the binary logarithm of the size of a region: addresses near memory of a process are in the
// same 64 GiB.
const regionShift = 36

// pointerScan replays memory to find what was at some addresses.
type pointerScan struct {
	t       *timeline.Timeline
	words   map[int32][]int64             // by process, sorted
	history map[freedResource][]ownership // by word
	regions map[int32]map[int64]bool
	untilNs int64
}

// FindPointers returns what is known about each of the uses, in their order. It replays the memory of the
// recording once. It returns errors of reading the recording.
func FindPointers(t *timeline.Timeline, uses []PointerUse) ([]PointerFinding, error) {
	if len(uses) == 0 {
		return nil, nil
	}
	s := &pointerScan{
		t: t, words: make(map[int32][]int64), history: make(map[freedResource][]ownership),
		regions: make(map[int32]map[int64]bool),
	}
	for _, u := range uses {
		s.words[u.Pid] = append(s.words[u.Pid], u.Word)
		s.untilNs = max(s.untilNs, u.UntilNs)
	}
	for pid, list := range s.words {
		slices.Sort(list)
		s.words[pid] = slices.Compact(list)
		s.regions[pid] = make(map[int64]bool)
	}
	_, _, err := t.ReplayMemoryAndAllocators(s.addChange, s.addAllocatorChange)
	if err == nil {
		err = s.readMappings()
	}
	if err != nil {
		return nil, err
	}
	for _, list := range s.history {
		slices.SortStableFunc(list, func(a, b ownership) int { return compareTimes(a.atNs, b.atNs) })
	}
	found := make([]PointerFinding, len(uses))
	for i := range uses {
		found[i] = s.find(&uses[i])
	}
	return found, nil
}

func compareTimes(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// add adds a change of the memory [start, start+bytes) of a process to the words in it.
func (s *pointerScan) add(pid int32, start, bytes int64, o *ownership) {
	words := s.words[pid]
	if len(words) == 0 || o.atNs > s.untilNs || start == 0 {
		return
	}
	end := units.EndOfRange(start, max(bytes, 1))
	if o.isBegin {
		regions := s.regions[pid]
		for r := start >> regionShift; r <= (end-1)>>regionShift && len(regions) < 1<<16; r++ {
			regions[r] = true
		}
	}
	first, _ := slices.BinarySearch(words, start)
	for _, word := range words[first:] {
		if word >= end {
			return
		}
		key := freedResource{ptr: word, pid: pid}
		list := s.history[key]
		if len(list) == maxOwnerships {
			list = slices.Delete(list, 0, 1)
		}
		s.history[key] = append(list, *o)
	}
}

// addChange adds a change of driver memory.
func (s *pointerScan) addChange(_ *livemem.Set, c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocFailed {
		return
	}
	from := &s.t.Origins.List[c.Block.Origin]
	memory := s.t.Origins.MemoryKindOf(c.Block.Origin)
	if target, _ := freeTargetOf(format.KindFree, memory); target != freeTargetPointer {
		return // a handle; readMappings finds the addresses of physical memory
	}
	o := ownership{
		atNs:    c.AtNs,
		isBegin: c.Kind == livemem.ChangeAllocated,
		start:   c.Ptr,
		block:   c.Block,
		by:      c.By,
		memory:  memory,
	}
	if c.Kind >= livemem.ChangeFreedWithContext {
		o.by = origin.NoOrigin
	}
	if c.Kind == livemem.ChangeFreed {
		// cuMemFree waits. cuMemFreeAsync does not, nor does the end of a registration.
		o.isWaited = s.t.Origins.MemoryKindOf(c.By) != format.MemoryAsync
		o.stream = s.t.Origins.List[c.By].Stream
	}
	s.add(from.Pid, c.Ptr, c.Block.Bytes, &o)
}

// addAllocatorChange adds a change of a caching allocator.
func (s *pointerScan) addAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	switch c.Op {
	case caching.OpBlockAllocated, caching.OpBlockFreeRequested, caching.OpBlockFound:
	case caching.OpBlockLost:
		if !c.IsUnseen {
			return
		}
	default:
		return
	}
	b := &c.Block
	o := ownership{
		atNs:     c.AtNs,
		isBegin:  c.Op == caching.OpBlockAllocated || c.Op == caching.OpBlockFound,
		isCached: true,
		start:    b.Ptr,
		by:       c.Origin,
		block:    livemem.Block{Bytes: b.Requested, SinceNs: b.SinceNs, Origin: b.Origin},
		memory:   format.MemoryTorch,
	}
	s.add(a.Pid, b.Ptr, max(b.Size, b.Requested), &o)
}

// readMappings adds the mappings of virtual memory management, and memory of other processes.
func (s *pointerScan) readMappings() error {
	err := timeline.EachRowInOrder(s.t.Memory, s.t.NewMemoryStream(), func(m *livemem.MemoryCall) error {
		switch m.Op {
		case livemem.OpMapHandle, livemem.OpUnmap, livemem.OpOpenBorrowed, livemem.OpCloseBorrowed:
			if m.Space == livemem.SpaceExternal {
				return nil // a handle
			}
			o := ownership{
				atNs: m.AtNs, isBegin: m.Op == livemem.OpMapHandle || m.Op == livemem.OpOpenBorrowed, start: m.Ptr,
				block:  livemem.Block{Bytes: m.Bytes, SinceNs: m.AtNs, Origin: m.Origin},
				by:     m.Origin,
				memory: s.t.Origins.MemoryKindOf(m.Origin),
			}
			s.add(s.t.Origins.List[m.Origin].Pid, m.Ptr, m.Bytes, &o)
		}
		return nil
	})
	return s.t.WrapReadError(err)
}

// find returns what is known about a use. Driver memory decides first: a block of a cache is in it.
func (s *pointerScan) find(u *PointerUse) PointerFinding {
	if u.Word == 0 {
		return PointerFinding{State: PointerNull, By: origin.NoOrigin}
	}
	list := s.history[freedResource{ptr: u.Word, pid: u.Pid}]
	driver := findOwner(list, u, false)
	cached := s.omitGuess(findOwner(list, u, true), u)
	switch {
	case driver == nil && cached == nil:
		if u.Word >= minAddress && s.regions[u.Pid][u.Word>>regionShift] {
			return PointerFinding{State: PointerUnknown, By: origin.NoOrigin}
		}
		return PointerFinding{State: PointerNumber, By: origin.NoOrigin}
	case driver != nil && driver.State == PointerFreed:
		return *driver
	case cached != nil && cached.State == PointerFreed:
		cached.State = PointerCached
		return *cached
	case driver != nil && driver.State == PointerFreedLater:
		return *driver
	case cached != nil:
		cached.State = PointerLive
		return *cached
	}
	return *driver
}

// omitGuess returns what is known about a use of a caching allocator's block. It returns nil for a freed block if events
// of allocators were not recorded between the free and the use: another block may be at its address then.
func (s *pointerScan) omitGuess(f *PointerFinding, u *PointerUse) *PointerFinding {
	if f != nil && f.State == PointerFreed && s.t.UnrecordedAllocatorNs(f.FreedNs-1, u.LaunchNs) > 0 {
		return nil
	}
	return f
}

// findOwner returns what the changes of driver memory, or of caching allocators, say about a use. It returns nil
// if there are none before the launch.
func findOwner(list []ownership, u *PointerUse, isCached bool) *PointerFinding {
	var last, begin *ownership
	var later *ownership
	for i := range list {
		o := &list[i]
		switch {
		case o.isCached != isCached:
		case o.atNs <= u.LaunchNs:
			last = o
			if o.isBegin {
				begin = o
			}
		case o.atNs <= u.UntilNs && !o.isBegin && later == nil:
			later = o
		}
	}
	if last == nil {
		return nil
	}
	if begin == nil { // the memory is from before the recording
		begin = last
	}
	f := &PointerFinding{
		Start: last.start, Offset: u.Word - last.start, Block: begin.block, Memory: begin.memory, By: origin.NoOrigin,
	}
	switch {
	case !last.isBegin:
		f.State, f.FreedNs, f.By = PointerFreed, last.atNs, last.by
	case later != nil && !later.isWaited && !isCached && later.stream != u.Stream:
		f.State, f.FreedNs, f.By = PointerFreedLater, later.atNs, later.by
	}
	return f
}
