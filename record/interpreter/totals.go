//go:build linux

package interpreter

import (
	"maps"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/rows"
)

// totals are the counters of a process, since its first reading.
type totals struct {
	firstNs, lastNs   int64 // of readings, on CLOCK_MONOTONIC; in Unix ns in a clone
	reads, collecting int64
	collections       [cpython.Generations]int64
	hasGC             bool
	held, waited      map[int32]int64 // readings, by thread
}

func newTotals() totals {
	return totals{held: make(map[int32]int64), waited: make(map[int32]int64)}
}

// add adds a reading. last is the one before it.
func (t *totals) add(now, last *reading, hasLast bool, holder int32, waiting []int32) {
	if t.firstNs == 0 {
		t.firstNs = now.fromNs
	}
	t.lastNs = now.toNs
	t.reads++
	if holder != 0 {
		count(t.held, holder)
	}
	for _, tid := range waiting {
		count(t.waited, tid)
	}
	if !now.hasGC {
		return
	}
	t.hasGC = true
	if now.gc.Collecting {
		t.collecting++
	}
	for i, n := range now.gc.Collections {
		switch {
		case !hasLast: // what was before is not known
		case n >= last.gc.Collections[i]:
			t.collections[i] += int64(n - last.gc.Collections[i])
		default:
			t.collections[i] += int64(n) // after an exec
		}
	}
}

// count adds 1 to the counter of a thread.
func count(counters map[int32]int64, tid int32) {
	if _, ok := counters[tid]; ok || len(counters) < maxHolders {
		counters[tid]++
	}
}

// clone returns a copy with times in Unix ns.
func (t *totals) clone(c clock.Clock) totals {
	other := *t
	other.held, other.waited = maps.Clone(t.held), maps.Clone(t.waited)
	if t.firstNs != 0 {
		other.firstNs, other.lastNs = c.UnixNs(uint64(t.firstNs)), c.UnixNs(uint64(t.lastNs))
	}
	return other
}

// threadStart returns the time at which the counters of a thread began to count that are new since a
// report: the time of that report, or of the first reading.
func (t *totals) threadStart(reportedNs int64) int64 { return max(t.firstNs, reportedNs) }

// samples returns all counters as samples.
func (t *totals) samples(pid int32) []rows.Sample {
	all := []rows.Sample{{Pid: pid, Name: format.HostInterpreterReads, Value: float64(t.reads)}}
	if t.hasGC {
		all = append(all, rows.Sample{Pid: pid, Name: format.HostCollecting, Value: float64(t.collecting)})
		for i, name := range []string{
			format.HostCollections0, format.HostCollections1, format.HostCollections2,
		} {
			all = append(all, rows.Sample{Pid: pid, Name: name, Value: float64(t.collections[i])})
		}
	}
	for tid, n := range t.held {
		all = append(all, rows.Sample{Pid: pid, Tid: tid, Name: format.HostGILHeld, Value: float64(n)})
	}
	for tid, n := range t.waited {
		all = append(all, rows.Sample{Pid: pid, Tid: tid, Name: format.HostGILWaited, Value: float64(n)})
	}
	return all
}
