package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// Memory is the memory of the recorded processes at one moment, exactly as far as
// the recording goes, and what led there. It is what tests compare with the books of
// a simulated driver.
type Memory struct {
	// Live are the allocations that exist, in order of process, kind and pointer.
	Live []Allocation
	// Left are those that ended with their process or with the last context it used:
	// no call freed them.
	Left []Allocation
	// Totals has a row for each process and kind of memory, one for all of a process
	// on devices (kind MemoryAll), and the same for all processes together (pid 0), in
	// order of process and kind.
	Totals []MemoryTotal

	UnmatchedFrees int64 // of memory that was not seen allocated: frees, releases, unmaps
	LostFrees      int64 // frees and unmaps that must have happened, but are not recorded
	UnknownAllocs  int64 // allocations of which the pointer is not known
	NestedCalls    int64 // calls that did again what a call inside or around them did

	// Borrowed memory is in nothing above, nor is that of graphs.
	BorrowedOpened, BorrowedReturned int64
	GraphAllocs, GraphBytes          int64
}

// Allocation is one piece of memory.
type Allocation struct {
	Pid     int32
	Kind    string // memory_kind of the call that allocated it
	Ptr     int64  // address, or handle of an array or of physical memory
	Bytes   int64
	Device  int32
	Context int64
	SinceNs int64 // when the allocation returned, Unix ns
	StackID int32
}

// MemoryAll is the kind of a MemoryTotal that sums up all kinds on devices: all but
// host and registered memory.
const MemoryAll = AllMemory

// MemoryTotal sums up memory.
type MemoryTotal struct {
	Pid                   int32 // 0: all processes
	Kind                  string
	LiveBytes, LiveBlocks int64
	PeakBytes             int64 // most bytes live at a time
	Allocs, AllocBytes    int64 // that succeeded
	Frees, FreedBytes     int64 // all ends of memory, those with a context or process included
	FailedAllocs          int64
}

// ReadMemory replays the recording until untilNs (Unix ns, included; 0: all of it) and
// returns what it comes to. The error is one of reading the recording.
func ReadMemory(t *timeline.Timeline, untilNs int64) (*Memory, error) {
	s := new(Memory)
	totals := make(map[TotalKey]*MemoryTotal)
	done := false
	finish := func(l *livemem.Set) {
		done = true
		l.Each(func(ptr int64, b livemem.Block) { s.Live = append(s.Live, allocation(t, ptr, b)) })
		s.count(l)
	}
	l, err := t.Replay(func(l *livemem.Set, c *livemem.Change) {
		switch {
		case done:
			return
		case untilNs != 0 && c.AtNs > untilNs:
			finish(l)
			return
		case c.Kind == livemem.FreedByExit:
			s.Left = append(s.Left, allocation(t, c.Ptr, c.Block))
		}
		for _, key := range TotalKeysOf(t, c.Block.Origin) {
			if totals[key] == nil {
				totals[key] = &MemoryTotal{Pid: key.Pid, Kind: key.Kind}
			}
			totals[key].change(c)
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
	for _, list := range [][]Allocation{s.Live, s.Left} {
		slices.SortFunc(list, func(a, b Allocation) int {
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

// Total returns the sums of a process (0: of all) and kind of memory; zeros if there
// was no such memory.
func (s *Memory) Total(pid int32, kind string) MemoryTotal {
	for _, t := range s.Totals {
		if t.Pid == pid && t.Kind == kind {
			return t
		}
	}
	return MemoryTotal{Pid: pid, Kind: kind}
}

func (s *Memory) count(l *livemem.Set) {
	c := &l.Counts
	s.UnmatchedFrees, s.LostFrees = c.UnmatchedFrees, c.LostFrees
	s.UnknownAllocs, s.NestedCalls = c.UnknownAllocs, c.Nested
	s.GraphAllocs, s.GraphBytes = c.GraphAllocs, c.GraphBytes
	borrowed := l.BorrowTotals()
	s.BorrowedOpened, s.BorrowedReturned = borrowed.Opened, borrowed.Returned
}

func allocation(t *timeline.Timeline, ptr int64, b livemem.Block) Allocation {
	o := &t.Origins.List[b.Origin]
	return Allocation{
		Pid:     o.Pid,
		Kind:    t.Origins.Memory(b.Origin),
		Ptr:     ptr,
		Bytes:   b.Bytes,
		Device:  o.Device,
		Context: o.Context,
		SinceNs: b.SinceNs,
		StackID: o.Stack,
	}
}

type TotalKey struct {
	Pid  int32
	Kind string
}

// TotalKeysOf are the totals that memory of an origin belongs to.
func TotalKeysOf(t *timeline.Timeline, origin int32) []TotalKey {
	pid, kind := t.Origins.List[origin].Pid, t.Origins.Memory(origin)
	keys := []TotalKey{{pid, kind}, {0, kind}}
	if !livemem.IsHost(kind) {
		keys = append(keys, TotalKey{pid, MemoryAll}, TotalKey{0, MemoryAll})
	}
	return keys
}

func (m *MemoryTotal) change(c *livemem.Change) {
	switch c.Kind {
	case livemem.Allocated:
		m.Allocs++
		m.AllocBytes += c.Block.Bytes
		m.LiveBlocks++
		m.LiveBytes += c.Block.Bytes
		m.PeakBytes = max(m.PeakBytes, m.LiveBytes)
	case livemem.AllocFailed:
		m.FailedAllocs++
	default:
		m.Frees++
		m.FreedBytes += c.Block.Bytes
		m.LiveBlocks--
		m.LiveBytes -= c.Block.Bytes
	}
}

// AllMemory is the level of all memory on a device; the host's is not.
const AllMemory = "all"
