package analyzetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// ReplayResult is the result of a replay: its live memory and counts.
type ReplayResult struct {
	Live      map[string]int64 // live bytes by "pid kind address"
	Left      int64            // allocations that ended with their process or its last context
	Peak      int64            // maximum of the live bytes of all memory
	Unmatched int64
	LostFrees int64
	Unknown   int64
	Failed    int64
	Nested    int64
	Allocs    int64
	Frees     int64
	Borrowed  int64
	Returned  int64
}

// CheckReplay replays a recording and returns the outcome. It checks that changes come in order
// of time.
func CheckReplay(t *testing.T, tl *timeline.Timeline) ReplayResult {
	t.Helper()
	o := ReplayResult{Live: make(map[string]int64)}
	var live int64
	last := int64(math.MinInt64)
	l, err := tl.ReplayMemory(func(l *livemem.Set, c *livemem.Change) {
		if c.AtNs < last {
			t.Fatalf("change at %d after one at %d", c.AtNs, last)
		}
		last = c.AtNs
		switch c.Kind {
		case livemem.ChangeAllocated:
			live += c.Block.Bytes
		case livemem.ChangeFreed, livemem.ChangeFreeLost, livemem.ChangeFreedWithContext, livemem.ChangeFreedByExit:
			live -= c.Block.Bytes
		}
		if c.Kind == livemem.ChangeFreedByExit {
			o.Left++
		}
		if live < 0 {
			t.Fatal("negative live bytes")
		}
		o.Peak = max(o.Peak, live)
	})
	if err != nil {
		t.Fatal(err)
	}
	for pid, i := range tl.Origins.Pids {
		if int(i) < len(l.Processes) {
			l.Processes[i].EachBlock(func(ptr int64, b livemem.Block) {
				o.Live[LiveBlockKey(pid, tl.Origins.MemoryKindOf(b.Origin), ptr)] = b.Bytes
			})
		}
	}
	c := l.Counts
	o.Unmatched, o.LostFrees, o.Unknown, o.Failed = c.UnmatchedFrees, c.LostFrees, c.UnknownAllocs, c.Failed
	o.Nested, o.Allocs, o.Frees = c.Nested, c.Allocs, c.Frees
	borrowed := l.SumBorrowed()
	o.Borrowed, o.Returned = borrowed.Opened, borrowed.Returned
	return o
}

// AddRandomProgram simulates threads of several processes on one allocator. The allocator reuses a
// pointer as soon as it is free inside the driver, which is during the call that frees it. It adds
// rows in the order of calls.
func AddRandomProgram(recording *TestRecording, r *rand.Rand, calls int) {
	type pointer struct{ pid, ptr int64 }
	returned := make(map[pointer]int64) // live pointer → return of its allocation
	released := make(map[pointer]int64) // freed pointer → time at which the driver freed it
	threads := []origin.Thread{{Pid: 42, Tid: 42}, {Pid: 42, Tid: 43}, {Pid: 42, Tid: 44}, {Pid: 77, Tid: 77}}
	clocks := make(map[origin.Thread]int64)
	for _, th := range threads {
		clocks[th] = r.Int64N(1000)
	}
	for range calls {
		th := threads[0] // the thread with the earliest clock makes the next call
		for _, o := range threads {
			if clocks[o] < clocks[th] {
				th = o
			}
		}
		start, dur := clocks[th]+1+r.Int64N(50), 2+r.Int64N(200)
		clocks[th] = start + dur
		var usable []pointer
		for p, ns := range returned {
			if p.pid == int64(th.Pid) && ns < start {
				usable = append(usable, p)
			}
		}
		slices.SortFunc(usable, func(a, b pointer) int { return int(a.ptr - b.ptr) })
		var row *format.Row
		switch k := r.IntN(20); {
		case k == 0:
			row = recording.AddAlloc(start, dur, 0, 1<<40)
			row.Result = 2
		case k == 1:
			// a free of memory allocated before the recording
			row = recording.AddFree(start, dur, 0x1000+r.Int64N(1<<20)*16)
		case k < 11 || len(usable) == 0:
			p := pointer{int64(th.Pid), 0x7f0000000000}
			for ; ; p.ptr += 512 {
				if _, live := returned[p]; !live && released[p] < start+dur {
					break
				}
			}
			returned[p] = start + dur
			row = recording.AddAlloc(start, dur, p.ptr, 1+r.Int64N(1<<20))
		default:
			p := usable[r.IntN(len(usable))]
			delete(returned, p)
			released[p] = start + 1 + r.Int64N(dur-1)
			row = recording.AddFree(start, dur, p.ptr)
		}
		row.Pid, row.Tid, row.Device = th.Pid, th.Tid, r.Int32N(2)
	}
}

// LiveBlockKey returns the key of a block in ReplayResult.Live.
func LiveBlockKey(pid int32, kind string, ptr int64) string {
	return fmt.Sprintf("%d %s %x", pid, kind, ptr)
}
