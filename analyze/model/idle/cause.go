package idle

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/stats"
)

const (
	// betweenNs is the longest pause between two operations in the queue. On an H200 it is 0.3 to 3 µs.
	betweenNs = 3000
	// afterWaitNs is the time after a wait that belongs to the wait: the thread wakes up, and launches.
	afterWaitNs = 50_000
)

// needsHost reports whether what the host did explains the gap. It sets the reason otherwise.
func (g *pendingGap) needsHost() bool {
	w := g.next
	switch {
	case g.Cause.Reason != ReasonUnknown:
		return false
	case w.callNs > g.FromNs:
		return true
	case w.hold != nil && w.hold.Kind != activity.HoldOrder:
		g.Cause.Reason = [...]Reason{
			activity.HoldEvent: ReasonEvent, activity.HoldValue: ReasonValue, activity.HoldHostFunc: ReasonHostFunc,
		}[w.hold.Kind]
		g.Cause.Stack, g.Cause.After, g.Cause.Stream = w.hold.Stack, w.hold.After.Stack, w.hold.Stream
		g.Cause.Label = w.hold.After.Label
	case g.LengthNs() <= betweenNs:
		g.Cause.Reason = ReasonBetween
	case !w.hasReturned(g.FromNs):
		g.Cause.Reason, g.Cause.Stack = ReasonLaunch, w.stack
	}
	return false
}

// setHostCause sets the cause from what the host did.
func (g *pendingGap) setHostCause(nameOf func(int32) string) {
	h, w := &g.host, g.next
	if !h.isKnown {
		return
	}
	if h.hasWait && w.callNs-h.waitEndNs < afterWaitNs {
		g.Cause.Reason, g.Cause.Name, g.Cause.Stack = ReasonWait, nameOf(h.wait.name), h.wait.stack
		g.Cause.After = w.stack
		return
	}
	call := h.longest()
	switch launchNs := g.ToNs - w.callNs; {
	case launchNs >= max(h.outsideNs, call.ns):
		g.Cause.Reason, g.Cause.Stack, g.Cause.After = ReasonLaunch, w.stack, h.after
	case call.ns > h.outsideNs:
		g.Cause.Reason, g.Cause.Name, g.Cause.Stack = ReasonCall, nameOf(call.name), call.stack
	default:
		g.Cause.Reason, g.Cause.Stack, g.Cause.After = ReasonOutside, w.stack, h.after
	}
}

// causeKey identifies a Cause. site is the text of the line.
type causeKey struct {
	reason     Reason
	name, site string
	stream     int32
}

// causes sums up the gaps of a device.
type causes struct {
	siteOf func(stack int32) string
	host   *hosttime.Breakdown // of the gaps in which the host was late; nil without rows of class host
	sums   map[causeKey]*Cause
	recent [1 << 8]recentCause // entries of sums, by a hash
	gaps   []Gap               // a heap of the longest, the shortest first
	most   int
}

// recentCause is the sum of a cause with a stack.
type recentCause struct {
	reason        Reason
	name          string
	stack, stream int32
	sum           *Cause
}

// sumOf returns the sum of gaps with a cause. Most gaps have a recent one.
func (c *causes) sumOf(of *Cause) *Cause {
	recent := &c.recent[(uint32(of.Stack)*0x9e3779b1^uint32(of.Reason)<<28^uint32(of.Stream)<<24)>>24]
	if recent.sum != nil && recent.reason == of.Reason && recent.stack == of.Stack && recent.stream == of.Stream &&
		recent.name == of.Name {
		return recent.sum
	}
	key := causeKey{of.Reason, of.Name, "", of.Stream}
	if of.Stack != 0 {
		key.site = c.siteOf(of.Stack)
	}
	sum := c.sums[key]
	if sum == nil {
		copied := *of
		sum = &copied
		c.sums[key] = sum
	}
	*recent = recentCause{of.Reason, of.Name, of.Stack, of.Stream, sum}
	return sum
}

// add adds an explained gap, whose sum is set.
func (c *causes) add(g *Gap) {
	sum := g.sum
	sum.Gaps++
	sum.Time.add(Estimate{float64(g.MinNs), float64(g.LengthNs()), float64(g.MaxNs)})
	if g.LengthNs() > sum.LongestNs {
		sum.LongestNs, sum.LongestFromNs = g.LengthNs(), g.FromNs
		sum.Stack, sum.After, sum.Label = g.Cause.Stack, g.Cause.After, g.Cause.Label
	}
	if g.Cause.Reason == ReasonBetween {
		return
	}
	shorter := func(a, b Gap) bool { return b.compareLength(&a) < 0 }
	if len(c.gaps) < c.most {
		c.gaps = stats.HeapPush(c.gaps, *g, shorter)
	} else if c.most > 0 && g.compareLength(&c.gaps[0]) < 0 {
		c.gaps[0] = *g
		stats.HeapFix(c.gaps, shorter)
	}
}

// compareLength compares gaps by length, the longest first.
func (g *Gap) compareLength(o *Gap) int {
	return cmp.Or(cmp.Compare(o.LengthNs(), g.LengthNs()), cmp.Compare(g.FromNs, o.FromNs))
}

// finish gives a device its causes and its longest gaps.
func (c *causes) finish(d *Device) {
	unsureNs := max(0, d.Time.Idle.MaxNs-d.Time.Idle.ProbableNs)
	for _, sum := range c.sums {
		if sum.Reason.IsIdle() { // all that is unsure may have this cause
			sum.Time.MaxNs = min(sum.Time.MaxNs, sum.Time.ProbableNs+unsureNs)
		}
		d.Causes = append(d.Causes, sum)
	}
	slices.SortFunc(d.Causes, func(a, b *Cause) int {
		return cmp.Or(cmp.Compare(b.Time.ProbableNs, a.Time.ProbableNs), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Stream, b.Stream))
	})
	slices.SortFunc(c.gaps, func(a, b Gap) int { return a.compareLength(&b) })
	d.Gaps = c.gaps
	if c.host != nil {
		c.finishHost(d)
	}
}

// finishHost gives a device the breakdown of the gaps in which the host was late. CPU time in a gap without
// samples has the line of the most samples in gaps with the same cause.
func (c *causes) finishHost(d *Device) {
	for i := range d.Gaps {
		g := &d.Gaps[i]
		if g.Host.Stack != 0 {
			continue
		}
		if at, ok := c.host.LineOf(g.sum, g.Host.Cause); ok {
			g.Host.Place = at
		}
	}
	d.HostNs = c.host.TotalNs
	d.Host = c.host.Finish()
}

// HostExplainedPct returns the share of the time in which the host was late whose cause on the host is known, in
// percent.
func (d *Device) HostExplainedPct() float64 {
	unknown := 0.0
	for _, e := range d.Host {
		if !e.Cause.IsKnown() {
			unknown += e.Ns
		}
	}
	return 100 * (1 - unknown/max(1, d.HostNs))
}

// ExplainedPct returns the share of the probable idle time whose cause is known, in percent.
func (d *Device) ExplainedPct() float64 {
	var known, all float64
	for _, c := range d.Causes {
		if c.Reason.IsIdle() {
			all += c.Time.ProbableNs
			if c.Reason != ReasonUnknown {
				known += c.Time.ProbableNs
			}
		}
	}
	return 100 * known / max(1, all)
}
