package trigger

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/liveset"
)

// Parts of the window in which memory must grow.
const (
	growthParts    = 5
	bucketsPerPart = 4
	growthBuckets  = growthParts * bucketsPerPart
	// shareOfPart divides an even growth: each part must add half of an even share.
	shareOfPart = 2 * (growthParts - 1)
)

// growth finds steady growth of an amount of memory. It keeps the smallest amount of each twentieth of the window,
// so that memory of a moment does not count, and compares the smallest amounts of its fifths. Each fifth must add to
// the one before, so that a warm-up and a full cache do not count. The amount must also exceed the highest one before
// the window: a sawtooth reaches its old height only. Its memory does not depend on time.
type growth struct {
	untilNs int64 // end of the current bucket; 0: no value yet
	low     int64 // smallest amount in the current bucket
	lows    [growthBuckets]int64
	buckets int   // complete buckets; the latest ones are in lows
	highest int64 // largest amount of a bucket before the window
}

// grown is a growth from one amount to another, in bytes.
type grown struct{ from, to int64 }

// add adds the smallest amount since the last call, at a time in Unix ns. It reports a growth over the window that is
// large enough.
func (g *growth) add(nowNs, bytes int64, limits *Thresholds) (found grown, ok bool) {
	length := max(1, limits.Leak.Nanoseconds()/growthBuckets)
	switch {
	case g.untilNs == 0 || nowNs-g.untilNs > limits.Leak.Nanoseconds(): // nothing is known about the time between
		*g = growth{untilNs: nowNs + length, low: bytes, highest: g.highest}
		return found, false
	case nowNs < g.untilNs:
		g.low = min(g.low, bytes)
		return found, false
	}
	for ; nowNs >= g.untilNs; g.untilNs += length {
		if g.buckets >= growthBuckets {
			g.highest = max(g.highest, g.lows[g.buckets%growthBuckets])
		}
		g.lows[g.buckets%growthBuckets] = g.low
		g.buckets++
	}
	g.low = bytes
	if g.buckets < growthBuckets {
		return found, false
	}
	return g.judge(limits)
}

// judge compares the parts of the window. After a growth the next window begins.
func (g *growth) judge(limits *Thresholds) (found grown, ok bool) {
	var levels [growthParts]int64
	for i := range levels {
		first := g.buckets + i*bucketsPerPart // of the part: growthBuckets buckets ago
		levels[i] = g.lows[first%growthBuckets]
		for j := range bucketsPerPart {
			levels[i] = min(levels[i], g.lows[(first+j)%growthBuckets])
		}
	}
	from, to := levels[0], levels[growthParts-1]
	for i := 1; i < growthParts; i++ {
		if levels[i]-levels[i-1] < max(1, (to-from)/shareOfPart) {
			return found, false
		}
	}
	// A cache may have become full in the last part.
	if last := g.lows[(g.buckets-1)%growthBuckets]; last-to < max(1, (to-from)/(2*shareOfPart)) {
		return found, false
	}
	above := to - max(from, g.highest)
	if above < limits.LeakBytes || float64(above)*100 < limits.LeakPct*float64(from) {
		return found, false
	}
	g.buckets, g.highest = 0, to
	return grown{from, to}, true
}

// allocatorDevice identifies the allocator of a process on a device.
type allocatorDevice struct{ pid, device int32 }

// allocated is the memory that PyTorch has given to a program: the smallest amount since the last check, and the latest.
type allocated struct {
	low, bytes int64
	growth     growth
}

// leaks finds processes whose memory grows.
type leaks struct {
	live   *liveset.Set // nil: driver memory is not followed
	driver map[int32]*growth
	torch  map[allocatorDevice]*allocated

	last      *allocated // of lastOf: most events are of one device
	lastOf    allocatorDevice
	processes map[int32]bool // seen in one check; kept to be used again
}

func newLeaks() leaks {
	return leaks{
		driver: make(map[int32]*growth), torch: make(map[allocatorDevice]*allocated),
		processes: make(map[int32]bool),
	}
}

// onAllocator notes the totals of an allocator event.
func (l *leaks) onAllocator(row *format.Row) {
	if row.AllocatedBytes <= 0 {
		return // unknown, or nothing
	}
	of := allocatorDevice{row.Pid, row.Device}
	if l.last == nil || l.lastOf != of {
		a := l.torch[of]
		if a == nil {
			if len(l.torch) == maxEntries {
				return
			}
			a = &allocated{low: row.AllocatedBytes}
			l.torch[of] = a
		}
		l.last, l.lastOf = a, of
	}
	l.last.bytes = row.AllocatedBytes
	l.last.low = min(l.last.low, row.AllocatedBytes)
}

// forget forgets a process.
func (l *leaks) forget(pid int32) {
	delete(l.driver, pid)
	for of := range l.torch {
		if of.pid == pid {
			delete(l.torch, of)
		}
	}
	l.last = nil
}

// findLeaks fires for processes whose memory grows.
func (r *Rows) findLeaks(nowNs int64) {
	l := &r.leaks
	for of, a := range l.torch {
		if found, ok := a.growth.add(nowNs, a.low, &r.limits); ok {
			r.fireLeak(nowNs, of.pid, fmt.Sprintf("PyTorch's allocated memory of process %d on device %d",
				of.pid, of.device), found)
		}
		a.low = a.bytes
	}
	if l.live == nil {
		return
	}
	clear(l.processes)
	l.live.EachProcess(func(pid int32, low int64) {
		l.processes[pid] = true
		g := l.driver[pid]
		if g == nil {
			g = new(growth)
			l.driver[pid] = g
		}
		if found, ok := g.add(nowNs, low, &r.limits); ok {
			r.fireLeak(nowNs, pid, fmt.Sprintf("the driver memory of process %d", pid), found)
		}
	})
	for pid := range l.driver {
		if !l.processes[pid] {
			delete(l.driver, pid)
		}
	}
}

// fireLeak fires for a growth.
func (r *Rows) fireLeak(nowNs int64, pid int32, what string, found grown) {
	r.fire(Event{
		Kind: Leak, AtNs: nowNs, Pid: pid, Subject: fmt.Sprint(pid),
		Evidence: fmt.Sprintf("%s grew steadily from %s to %s in %v", what, bytesText(found.from),
			bytesText(found.to), r.limits.Leak.Round(time.Millisecond)),
	})
}
