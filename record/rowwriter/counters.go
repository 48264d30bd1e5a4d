//go:build linux

package rowwriter

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

// CallClassNames are the names of bpf.CudaCallClass in Meta.Calls and in rows of kind lost.
var CallClassNames = [bpf.CudaCallClassCLASS_COUNT]string{
	bpf.CudaCallClassCLASS_MEMORY: "memory",
	bpf.CudaCallClassCLASS_LAUNCH: "launch",
	bpf.CudaCallClassCLASS_COPY:   "copy",
	bpf.CudaCallClassCLASS_SYNC:   "sync",
	bpf.CudaCallClassCLASS_API:    "api",

	bpf.CudaCallClassCLASS_ALLOCATOR:  "allocator",
	bpf.CudaCallClassCLASS_COLLECTIVE: "collective",
}

// lossReasonTexts are the texts of bpf.CudaLossReason in rows of kind lost.
var lossReasonTexts = [bpf.CudaLossReasonLOSS_REASONS]string{
	bpf.CudaLossReasonLOSS_RING_FULL: "ring buffer full",
	bpf.CudaLossReasonLOSS_THREADS:   "too many threads",
	bpf.CudaLossReasonLOSS_DEPTH:     "calls nested too deep",
}

// counterReadInterval is the time between two reads of the loss counters, and so the precision of
// the times in rows of kind lost.
const counterReadInterval = 100 * time.Millisecond

// callCounters compares the kernel's counters of seen and lost calls with the written rows.
type callCounters struct {
	probes *probe.Probes
	clock  clock.Clock
	// last has the kernel's counters at the last read, by class.
	last   [bpf.CudaCallClassCLASS_COUNT]bpf.CudaClassStats
	lastNs int64 // Unix time of the last read
	// endNs is the Unix time in ns at which the probes were stopped, 0: not yet. No event is later.
	// The Session sets endNs while the row writer's goroutine runs.
	endNs  atomic.Int64
	counts []callCount // numbers of calls that are only counted, at the last read
	// written counts rows passed to the segment writer, by class of call.
	written   [bpf.CudaCallClassCLASS_COUNT]int64
	open      [bpf.CudaCallClassCLASS_COUNT]int64
	abandoned [bpf.CudaCallClassCLASS_COUNT]int64
	counted   [bpf.CudaCallClassCLASS_COUNT]int64
	noTable   [bpf.CudaCallClassCLASS_COUNT]int64
	unwritten [bpf.CudaCallClassCLASS_COUNT]int64 // rows that could not be written to disk
	dropped   callTotals                          // calls in deleted rotations of a ring
	// full is set when the recording has reached its size limit. after and lostAfter count calls
	// and losses after that time.
	full             bool
	after, lostAfter [bpf.CudaCallClassCLASS_COUNT]int64
}

func newCallCounters(p *probe.Probes, c clock.Clock) *callCounters {
	cc := &callCounters{probes: p, clock: c, lastNs: c.NowNs()}
	for cookie := range bpf.NumDriverCookies() {
		if call, name, _, _ := bpf.FunctionByCookie(uint16(cookie)); call.CountOnly {
			cc.counts = append(cc.counts, callCount{cookie: uint32(cookie), class: call.Class, name: name})
		}
	}
	return cc
}

// callCount is the number of calls of a function, by attach cookie.
type callCount struct {
	cookie uint32
	class  bpf.CudaCallClass
	name   string
	calls  uint64
}

// readKernelCounters reads the kernel's counters. It returns rows of kind lost and count for the
// changes since the last read.
func (cc *callCounters) readKernelCounters() ([]format.Row, error) {
	now := cc.clock.NowNs()
	if end := cc.endNs.Load(); end != 0 {
		now = end
	}
	cc.lastNs = min(cc.lastNs, now) // the last read may be later than the end
	var rows []format.Row
	for class := range cc.last {
		var perCPU []bpf.CudaClassStats
		if err := cc.probes.Objects.Stats.Lookup(uint32(class), &perCPU); err != nil {
			return nil, fmt.Errorf("read loss counters: %w", err)
		}
		sum := sumClassStats(perCPU)
		for why, n := range sum.Lost {
			d := n - cc.last[class].Lost[why]
			if cc.full {
				cc.lostAfter[class] += int64(d)
			} else if d > 0 {
				rows = append(rows, format.Row{
					Kind: format.KindLost, Name: CallClassNames[class], Message: lossReasonTexts[why],
					StartNs: cc.lastNs, DurNs: now - cc.lastNs, Value: float64(d), Device: -1,
				})
			}
		}
		cc.last[class] = sum
	}
	counted, err := cc.readCallCounts(now)
	cc.lastNs = now
	return append(rows, counted...), err
}

func sumClassStats(perCPU []bpf.CudaClassStats) bpf.CudaClassStats {
	var sum bpf.CudaClassStats
	for _, s := range perCPU {
		sum.Seen += s.Seen
		sum.Emitted += s.Emitted
		sum.Abandoned += s.Abandoned
		for why, n := range s.Lost {
			sum.Lost[why] += n
		}
	}
	return sum
}

// readCallCounts returns rows of kind count for the calls that are only counted.
func (cc *callCounters) readCallCounts(now int64) ([]format.Row, error) {
	var rows []format.Row
	for i := range cc.counts {
		c := &cc.counts[i]
		var perCPU []uint64
		if err := cc.probes.Objects.Counts.Lookup(c.cookie, &perCPU); err != nil {
			return nil, fmt.Errorf("read call counts: %w", err)
		}
		var sum uint64
		for _, n := range perCPU {
			sum += n
		}
		if d := sum - c.calls; d > 0 && !cc.full {
			rows = append(rows, format.Row{
				Kind:    format.KindCount,
				Name:    c.name,
				StartNs: cc.lastNs,
				DurNs:   now - cc.lastNs,
				Value:   float64(d),
				Device:  -1,
			})
			cc.counted[c.class] += int64(d)
		}
		c.calls = sum
	}
	return rows, nil
}

// endAt ends the counting of calls at a time, as if the probes had been removed then.
func (cc *callCounters) endAt(atNs int64) {
	cc.full = true
	cc.endNs.Store(atNs)
}

// currentTotals returns the cumulative counts of calls so far, including deleted rotations of a
// ring recording.
func (cc *callCounters) currentTotals() callTotals {
	b := callTotals{
		written:   cc.written,
		open:      cc.open,
		abandoned: cc.abandoned,
		counted:   cc.counted,
		noTable:   cc.noTable,
	}
	for class := range cc.last {
		b.lost[class] = cc.unwritten[class] - cc.lostAfter[class]
		for _, n := range cc.last[class].Lost {
			b.lost[class] += int64(n)
		}
	}
	return b
}

// callCounts returns the counts for Meta.Calls at the last read, by name of class.
func (cc *callCounters) callCounts() map[string]format.CallCount {
	calls := make(map[string]format.CallCount)
	b, d := cc.currentTotals(), &cc.dropped
	b.add(d, -1)
	for class, name := range CallClassNames {
		c := format.CallCount{
			Seen:      int64(cc.last[class].Seen) - cc.after[class] - cc.lostAfter[class],
			Recorded:  b.written[class],
			Open:      b.open[class],
			Abandoned: b.abandoned[class],
			Lost:      b.lost[class],
			Counted:   b.counted[class],
			NoTable:   b.noTable[class],
			Dropped:   d.written[class] + d.lost[class],
		}
		calls[name] = c
	}
	maps.DeleteFunc(calls, func(_ string, c format.CallCount) bool { return c == format.CallCount{} })
	return calls
}
