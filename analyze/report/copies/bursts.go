package copies

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// threadBursts detects the bursts of one thread.
type threadBursts struct {
	calls.BurstDetector
	burst *burstStats // statistics of the thread's last burst
}

// burstKey is the thread of a burst, and the call site of the copy that completed the burst
// condition.
type burstKey struct {
	Thread origin.Thread
	Site   int32
}

// burstStats has the statistics of the bursts with the same burstKey.
type burstStats struct {
	Bursts, Copies, current, Most int64 // bursts; copies in all, in the current and in the largest burst
	FirstNs, LastNs               int64 // times of the first burst and of the last copy, Unix ns
	Stack                         int32 // stack id of the first burst
}

// addSmallCopy adds a small copy, if it is part of a burst.
func (sc *Scan) addSmallCopy(c *calls.Call) {
	th := sc.threads[c.Thread()]
	if th == nil {
		th = new(threadBursts)
		sc.threads[c.Thread()] = th
	}
	joined, began := th.AddEvent(c.StartNs, minBurstCopies, burstWindowNs)
	if joined == 0 {
		return
	}
	if began {
		key := burstKey{c.Thread(), c.Site}
		if sc.Bursts[key] == nil {
			sc.Bursts[key] = &burstStats{Stack: c.Stack, FirstNs: c.StartNs}
		}
		th.burst = sc.Bursts[key]
		th.burst.Bursts++
		th.burst.current = 0
	}
	b := th.burst
	b.LastNs = c.StartNs
	b.Copies += joined
	b.current += joined
	b.Most = max(b.Most, b.current)
}
