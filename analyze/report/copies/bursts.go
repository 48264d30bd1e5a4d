package copies

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// threadBursts follows the small copies of a thread.
type threadBursts struct {
	calls.BurstDetector
	burst *burst
}

type burstKey struct {
	Thread origin.Thread
	Site   int32
}

// burst sums up bursts of a thread that became bursts at one place.
type burst struct {
	Bursts, Copies, now, Most int64
	FirstNs, LastNs           int64
	Stack                     int32
}

// small follows a thread's small copies.
func (sc *Scan) addSmall(c *calls.Call) {
	crowd := sc.threads[c.Thread()]
	if crowd == nil {
		crowd = new(threadBursts)
		sc.threads[c.Thread()] = crowd
	}
	joined, began := crowd.Add(c.StartNs, burstCopies, burstNs)
	if joined == 0 {
		return
	}
	if began {
		key := burstKey{c.Thread(), c.Site}
		if sc.Bursts[key] == nil {
			sc.Bursts[key] = &burst{Stack: c.Stack, FirstNs: c.StartNs}
		}
		crowd.burst = sc.Bursts[key]
		crowd.burst.Bursts++
		crowd.burst.now = 0
	}
	b := crowd.burst
	b.LastNs = c.StartNs
	b.Copies += joined
	b.now += joined
	b.Most = max(b.Most, b.now)
}
