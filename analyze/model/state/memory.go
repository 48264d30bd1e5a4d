package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// MemoryState is the driver memory of the recorded processes at a point in time, and the totals up
// to then. Tests compare it with the ledger of a simulated driver.
type MemoryState struct {
	// Live are the live allocations, in order of process, kind and address.
	Live []LiveAllocation
	// Left are the allocations that ended with their process or its last context, without a call
	// that freed them.
	Left []LiveAllocation
	// Totals has one row for each process and memory kind, and one for all device memory of a
	// process (kind AllDeviceMemory). The rows with pid 0 sum up all processes. Rows are in order
	// of process and kind.
	Totals []MemoryTotal

	UnmatchedFrees int64 // frees, releases and unmaps of memory whose allocation was not recorded
	LostFrees      int64 // frees and unmaps that must have happened, but were not recorded
	UnknownAllocs  int64 // allocations whose address is unknown
	NestedCalls    int64 // calls that repeat a call inside or around them

	// Borrowed memory and memory of graphs are not part of the fields above.
	BorrowedOpened, BorrowedReturned int64
	GraphAllocs, GraphBytes          int64
}

// LiveAllocation is one live allocation.
type LiveAllocation struct {
	Pid     int32
	Kind    string // memory kind, as in the column memory_kind
	Ptr     int64  // address, or handle of an array or of physical memory
	Bytes   int64
	Device  int32
	Context int64
	SinceNs int64 // when the allocation returned, Unix ns
	StackID int32
}

// AllDeviceMemory is the kind of a MemoryTotal that sums up all device memory: all kinds except
// host and registered memory.
const AllDeviceMemory = AllMemoryKind

// MemoryTotal sums up the memory of one process and kind.
type MemoryTotal struct {
	Pid                   int32 // pid 0: the sum of all processes
	Kind                  string
	LiveBytes, LiveBlocks int64
	PeakBytes             int64 // maximum of LiveBytes over time
	Allocs, AllocBytes    int64 // number and bytes of successful allocations
	// all blocks that ended, including those that ended with their context or process
	Frees, FreedBytes int64
	FailedAllocs      int64
}

// ReadMemory replays the recording up to untilNs (Unix ns, inclusive; 0: to its end), and returns
// the memory at that time. It returns errors of reading the recording.
func ReadMemory(t *timeline.Timeline, untilNs int64) (*MemoryState, error) {
	s := new(MemoryState)
	totals := make(map[MemoryTotalKey]*MemoryTotal)
	done := false
	finish := func(l *livemem.Set) {
		done = true
		l.EachBlock(func(ptr int64, b livemem.Block) { s.Live = append(s.Live, newLiveAllocation(t, ptr, b)) })
		s.addReplayCounts(l)
	}
	l, err := t.ReplayMemory(func(l *livemem.Set, c *livemem.Change) {
		switch {
		case done:
			return
		case untilNs != 0 && c.AtNs > untilNs:
			finish(l)
			return
		case c.Kind == livemem.ChangeFreedByExit:
			s.Left = append(s.Left, newLiveAllocation(t, c.Ptr, c.Block))
		}
		for _, key := range TotalKeysOfOrigin(t, c.Block.Origin) {
			if totals[key] == nil {
				totals[key] = &MemoryTotal{Pid: key.Pid, Kind: key.Kind}
			}
			totals[key].applyChange(c)
		}
	})
	if err != nil {
		return nil, err
	}
	if !done {
		finish(l)
	}
	for _, total := range totals {
		s.Totals = append(s.Totals, *total)
	}
	slices.SortFunc(s.Totals, func(a, b MemoryTotal) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), strings.Compare(a.Kind, b.Kind))
	})
	for _, list := range [][]LiveAllocation{s.Live, s.Left} {
		slices.SortFunc(list, func(a, b LiveAllocation) int {
			return cmp.Or(
				cmp.Compare(a.Pid, b.Pid),
				strings.Compare(a.Kind, b.Kind),
				cmp.Compare(a.Ptr, b.Ptr),
				cmp.Compare(a.SinceNs, b.SinceNs),
			)
		})
	}
	return s, nil
}

// TotalOf returns the totals of a process (0: all) and memory kind. Its counts are zero if there
// was no such memory.
func (s *MemoryState) TotalOf(pid int32, kind string) MemoryTotal {
	for _, t := range s.Totals {
		if t.Pid == pid && t.Kind == kind {
			return t
		}
	}
	return MemoryTotal{Pid: pid, Kind: kind}
}

func (s *MemoryState) addReplayCounts(l *livemem.Set) {
	c := &l.Counts
	s.UnmatchedFrees, s.LostFrees = c.UnmatchedFrees, c.LostFrees
	s.UnknownAllocs, s.NestedCalls = c.UnknownAllocs, c.Nested
	s.GraphAllocs, s.GraphBytes = c.GraphAllocs, c.GraphBytes
	borrowed := l.SumBorrowed()
	s.BorrowedOpened, s.BorrowedReturned = borrowed.Opened, borrowed.Returned
}

func newLiveAllocation(t *timeline.Timeline, ptr int64, b livemem.Block) LiveAllocation {
	o := &t.Origins.List[b.Origin]
	return LiveAllocation{
		Pid:     o.Pid,
		Kind:    t.Origins.MemoryKindOf(b.Origin),
		Ptr:     ptr,
		Bytes:   b.Bytes,
		Device:  o.Device,
		Context: o.Context,
		SinceNs: b.SinceNs,
		StackID: o.Stack,
	}
}

// MemoryTotalKey identifies a MemoryTotal.
type MemoryTotalKey struct {
	Pid  int32
	Kind string
}

// TotalKeysOfOrigin returns the totals to which memory of an origin contributes.
func TotalKeysOfOrigin(t *timeline.Timeline, origin int32) []MemoryTotalKey {
	pid, kind := t.Origins.List[origin].Pid, t.Origins.MemoryKindOf(origin)
	keys := []MemoryTotalKey{{pid, kind}, {0, kind}}
	if !livemem.IsHostKind(kind) {
		keys = append(keys, MemoryTotalKey{pid, AllDeviceMemory}, MemoryTotalKey{0, AllDeviceMemory})
	}
	return keys
}

func (m *MemoryTotal) applyChange(c *livemem.Change) {
	switch c.Kind {
	case livemem.ChangeAllocated:
		if !c.Block.IsEarlier() {
			m.Allocs++
			m.AllocBytes += c.Block.Bytes
		}
		m.LiveBlocks++
		m.LiveBytes += c.Block.Bytes
		m.PeakBytes = max(m.PeakBytes, m.LiveBytes)
	case livemem.ChangeAllocFailed:
		m.FailedAllocs++
	default:
		m.Frees++
		m.FreedBytes += c.Block.Bytes
		m.LiveBlocks--
		m.LiveBytes -= c.Block.Bytes
	}
}

// AllMemoryKind is the kind that sums up all device memory.
const AllMemoryKind = "all"
