package copies

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// threadBursts finds the bursts of a thread.
type threadBursts struct {
	calls.BurstDetector
	burst *burst // that the last copy was part of
}

// burstKey is the thread of bursts, and the call site of the copy that made them bursts.
type burstKey struct {
	Thread origin.Thread
	Site   int32
}

// burst sums up the bursts of a thread that became bursts at one call site.
type burst struct {
	Bursts, Copies, now, Most int64
	FirstNs, LastNs           int64
	Stack                     int32
}

// addSmall counts a small copy if it is part of a burst.
func (sc *Scan) addSmall(c *calls.Call) {
	th := sc.threads[c.Thread()]
	if th == nil {
		th = new(threadBursts)
		sc.threads[c.Thread()] = th
	}
	joined, began := th.Add(c.StartNs, burstCopies, burstNs)
	if joined == 0 {
		return
	}
	if began {
		key := burstKey{c.Thread(), c.Site}
		if sc.Bursts[key] == nil {
			sc.Bursts[key] = &burst{Stack: c.Stack, FirstNs: c.StartNs}
		}
		th.burst = sc.Bursts[key]
		th.burst.Bursts++
		th.burst.now = 0
	}
	b := th.burst
	b.LastNs = c.StartNs
	b.Copies += joined
	b.now += joined
	b.Most = max(b.Most, b.now)
}
