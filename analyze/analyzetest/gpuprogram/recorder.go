package gpuprogram

import (
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/activity"
)

// makeGaps draws the windows in which calls are lost or launches are not recorded.
func (g *Program) makeGaps() {
	if !g.Lost && !g.Sampled {
		return
	}
	length, pause := int64(2_000_000), int64(40_000_000)
	if g.Sampled {
		length, pause = 30_000_000, 250_000_000
	}
	for at := startNs + pause; at < g.EndNs; at += length + pause/2 + g.random.Int64N(pause) {
		g.Gaps = append(g.Gaps, activity.Window{FromNs: at, ToNs: at + length})
	}
}

func (g *Program) inGap(ns int64) bool {
	i := sort.Search(len(g.Gaps), func(i int) bool { return g.Gaps[i].ToNs >= ns })
	return i < len(g.Gaps) && g.Gaps[i].FromNs <= ns
}

// loseCalls removes the calls that the recorder did not record, and returns of launches.
func (g *Program) loseCalls() {
	g.Calls = slices.DeleteFunc(g.Calls, func(c activity.Call) bool {
		isWait := c.Op == activity.OpWaitStream || c.Op == activity.OpWaitContext || c.Op == activity.OpWaitEvent
		switch {
		case g.NoWaits && isWait:
			return true
		case !g.inGap(c.StartNs):
			return false
		case g.Sampled:
			return c.Op == activity.OpKernel
		}
		return c.Op != activity.OpEndStream && g.random.IntN(3) == 0
	})
	for i := range g.Calls {
		if c := &g.Calls[i]; g.NoReturns && c.Op == activity.OpKernel && c.StartNs/100_000_000%10 != 0 {
			c.EndNs = activity.UnknownNs
		}
	}
}

// clockOf returns a time of the GPU's clock: it is off by 0.4 ms and drifts by 9 ppm.
func clockOf(ns int64) int64 {
	return (ns - 400_000 - (ns-startNs)*9/1_000_000) / 32 * 32
}

// poll samples all channels.
func (g *Program) poll() {
	for _, c := range g.gpus {
		g.Channels = append(g.Channels, activity.Channel{
			Number: c.number, Pid: c.pid, Device: -1, FromNs: c.fromNs, ToNs: c.toNs,
		})
		found := 0
		for found < len(c.words) && c.shown[found] <= c.fromNs {
			found++
		}
		g.Channels[len(g.Channels)-1].FirstCounter = c.base + int64(found)
		var times []int64
		if g.Full {
			times = g.busyPolls(c)
		} else {
			times = g.sparsePolls(c)
		}
		read, last := 0, c.base+int64(found)
		for _, ns := range times {
			for read < len(c.words) && c.shown[read] <= ns {
				read++
			}
			if read == 0 || c.base+int64(read) == last || ns > min(c.toNs, g.EndNs) {
				continue
			}
			last = c.base + int64(read)
			s := activity.Sample{
				SeenNs: ns, Channel: c.number, Counter: last, GPUTimeNs: clockOf(c.words[read-1]),
			}
			if read > 1 && g.random.Float64() < g.TornShare {
				s.GPUTimeNs = clockOf(c.words[read-2])
				g.torn[tornSample{c.number, s.Counter}] = true
			}
			g.Samples = append(g.Samples, s)
		}
	}
}

// busyPolls are the reads of a poller with a core of its own. Reads that see no change are left out.
func (g *Program) busyPolls(c *gpuChannel) (times []int64) {
	pausedTo := int64(0)
	for _, shown := range c.shown {
		at := max(shown+g.random.Int64N(900), pausedTo)
		if g.random.Float64() < 0.001 {
			pausedTo = at + g.random.Int64N(200_000)
		}
		times = append(times, at)
	}
	slices.Sort(times)
	return times
}

// sparsePolls are the reads of a poller at 1 kHz, and those at launches, at most one in 50 us.
func (g *Program) sparsePolls(c *gpuChannel) (times []int64) {
	for at := c.fromNs + g.random.Int64N(1_000_000); at < g.EndNs; at += 1_000_000 + g.random.Int64N(60_000) {
		times = append(times, at+g.random.Int64N(30_000))
	}
	last := int64(0)
	for _, at := range c.launches {
		if at-last >= 50_000 && !(g.Sampled && g.inGap(at)) {
			times = append(times, at+100)
			last = at
		}
	}
	slices.Sort(times)
	return times
}

// Replay is an activity.Source of the recording.
func (g *Program) Replay(to activity.Consumer) error {
	i := 0
	for k := range g.Samples {
		for ; i < len(g.Calls) && g.Calls[i].StartNs <= g.Samples[k].SeenNs; i++ {
			to.AddCall(&g.Calls[i])
		}
		to.AddSample(&g.Samples[k])
	}
	for ; i < len(g.Calls); i++ {
		to.AddCall(&g.Calls[i])
	}
	return nil
}
