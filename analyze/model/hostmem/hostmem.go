package hostmem

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// hostBlock is recorded memory that the CPU can access: pinned, registered or managed. Times are
// Unix ns.
type hostBlock struct {
	ptr, endPtr  int64
	fromNs, toNs int64
	pid          int32
	managed      bool
}

// HostBlocks answers which kind of host memory a pointer refers to. Queries must come in order of
// time. It is not safe for concurrent use.
type HostBlocks struct { // in order of fromNs after the replay
	list   []hostBlock // all host blocks, in order of allocation time
	open   map[hostPointer]int32
	next   int               // index in list of the first block that is not live yet
	ending []int32           // heap of the live blocks, by the time of their end
	live   map[int32][]int32 // live blocks in order of address, by pid
}

type hostPointer struct {
	pid int32
	ptr int64
}

// Read replays the memory calls of a recording. It returns the host memory over time and the counts
// of the replay.
func Read(t *timeline.Timeline) (*HostBlocks, *livemem.ReplayCounts, error) {
	h := NewHostBlocks()
	l, err := t.ReplayMemory(func(l *livemem.Set, c *livemem.Change) { h.AddChange(t, c) })
	if err != nil {
		return nil, nil, err
	}
	return h, &l.Counts, nil
}

// NewHostBlocks returns Blocks without memory. Call AddChange for each change of a replay.
func NewHostBlocks() *HostBlocks {
	return &HostBlocks{open: make(map[hostPointer]int32), live: make(map[int32][]int32)}
}

// AddChange records a change of driver memory. All calls of Note must come before the first call of
// At.
func (h *HostBlocks) AddChange(t *timeline.Timeline, c *livemem.Change) {
	memory := t.Origins.MemoryKindOf(c.Block.Origin)
	if !livemem.IsHostKind(memory) && memory != format.MemoryManaged {
		return
	}
	key := hostPointer{t.Origins.List[c.Block.Origin].Pid, c.Ptr}
	switch c.Kind {
	case livemem.ChangeAllocFailed:
	case livemem.ChangeAllocated:
		h.open[key] = int32(len(h.list))
		h.list = append(
			h.list,
			hostBlock{
				c.Ptr,
				units.EndOfRange(c.Ptr, c.Block.Bytes),
				c.AtNs,
				units.EndOfRange(c.AtNs, 1<<62),
				key.pid,
				memory == format.MemoryManaged,
			},
		)
	default:
		if i, ok := h.open[key]; ok {
			h.list[i].toNs = c.AtNs
			delete(h.open, key)
		}
	}
}

// Kinds of host memory on the host side of a copy.
const (
	HostKindPinned  = "pinned"
	HostKindManaged = "managed"
	HostKindUnknown = "unknown"
)

// KindAt returns the kind of host memory at a process's address at atNs (Unix ns). Later calls must
// not pass an earlier time.
func (h *HostBlocks) KindAt(atNs int64, pid int32, ptr int64) string {
	h.advanceTo(atNs)
	live := h.live[pid]
	i := sort.Search(len(live), func(i int) bool { return h.list[live[i]].ptr > ptr })
	if i == 0 || ptr >= h.list[live[i-1]].endPtr {
		return HostKindUnknown
	}
	if h.list[live[i-1]].managed {
		return HostKindManaged
	}
	return HostKindPinned
}

// advanceTo updates the live blocks to the time atNs.
func (h *HostBlocks) advanceTo(atNs int64) {
	sooner := func(a, b int32) bool {
		return cmp.Or(cmp.Compare(h.list[a].toNs, h.list[b].toNs), cmp.Compare(a, b)) < 0
	}
	for ; h.next < len(h.list) && h.list[h.next].fromNs <= atNs; h.next++ {
		// the address may belong to a block that ended just before
		h.removeEnded(h.list[h.next].fromNs, sooner)
		b := &h.list[h.next]
		live := h.live[b.pid]
		i := sort.Search(len(live), func(i int) bool { return h.list[live[i]].ptr >= b.ptr })
		h.live[b.pid] = slices.Insert(live, i, int32(h.next))
		h.ending = stats.HeapPush(h.ending, int32(h.next), sooner)
	}
	h.removeEnded(atNs, sooner)
}

// removeEnded removes the blocks that ended at or before atNs.
func (h *HostBlocks) removeEnded(atNs int64, sooner func(a, b int32) bool) {
	for len(h.ending) > 0 && h.list[h.ending[0]].toNs <= atNs {
		ended := h.ending[0]
		h.ending = stats.HeapPop(h.ending, sooner)
		pid := h.list[ended].pid
		if i := slices.Index(h.live[pid], ended); i >= 0 {
			h.live[pid] = slices.Delete(h.live[pid], i, i+1)
		}
	}
}
