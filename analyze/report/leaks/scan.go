package leaks

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// Checkpoints is the number of intervals after the warm-up whose lowest live bytes are kept.
const Checkpoints = 20

// warmupShare is the share of the window in which a program sets itself up. Memory that is
// allocated there and stays is not a leak.
const warmupShare = 0.1

// Scan counts, by group, the memory that a program allocates and frees. It takes the changes of a
// replay (Consume) and then the memory at its end (Finish). It is not safe for concurrent use.
type Scan struct {
	t        *timeline.Timeline
	groups   []groupStats
	Grouping *group.Grouping
	Window   query.Window
	warmNs   int64 // end of the warm-up
	step     int   // checkpoints passed; -1 before the end of the warm-up
	nextNs   int64 // time of the next checkpoint
	live     int64
	peak     int64
	peakNs   int64
	matched  bool
	Frees    int64
	failed   int64
	done     bool
}

// NewScan returns a scan of the memory that opt.Filter lets through. It returns a
// *report.GroupError for an unknown opt.GroupBy.
func NewScan(t *timeline.Timeline, opt *query.Options) (*Scan, error) {
	by, err := group.New(t, opt.GroupBy, &opt.Filter)
	if err != nil {
		return nil, err
	}
	by.Suppress = group.NewSuppressor(t, opt.Suppressions)
	s := &Scan{t: t, Grouping: by, Window: t.Activity(&opt.Filter), step: -1}
	s.warmNs = s.Window.FromNs + int64(warmupShare*float64(s.Window.DurNs()))
	s.nextNs = s.warmNs
	return s, nil
}

// groupStats counts the allocations of one group, such as a call site.
type groupStats struct {
	allocs, frees int64
	allocBytes    int64
	LiveBytes     int64
	LiveCount     int64
	trackers      []floorTracker // by process
	last          int            // index of the tracker that changed last

	// Of the blocks that were never freed; complete after Finish.
	ages       []int64         // ns, sorted by Finish
	startBytes int64           // bytes allocated during the warm-up
	hostBytes  int64           // bytes of host memory
	exited     int64           // number of blocks that the end of their process or context freed
	stacks     map[int32]int64 // bytes by stack id
	Device     int32           // of all blocks, or mixedDevices
	memory     int32           // kind of all blocks, an index of origin.Table.Strings, or mixedKinds
	firstStack int32           // stack id of the first allocation
}

// floorTracker follows the live bytes of a group in one process. Processes are followed one by
// one because memory ends with its process: a job that frees nothing before it ends does not leak,
// however many such jobs follow each other.
type floorTracker struct {
	pid       int32
	liveBytes int64
	liveCount int64
	exited    int64 // of liveCount, blocks that the end of the process or its context freed
	exitNs    int64 // when that was, Unix ns
	// floor is the lowest live bytes since the last checkpoint. floors has one value per
	// checkpoint so far; it stays nil while all values are 0. The floor tells a leak from a
	// sawtooth: memory that is allocated and freed between two checkpoints does not raise it.
	floor  int64
	floors []int64
}

// tracker returns the tracker of a process.
func (g *groupStats) tracker(pid int32) *floorTracker {
	if g.last < len(g.trackers) && g.trackers[g.last].pid == pid {
		return &g.trackers[g.last]
	}
	if g.last = slices.IndexFunc(g.trackers, func(c floorTracker) bool { return c.pid == pid }); g.last < 0 {
		g.last = len(g.trackers)
		g.trackers = append(g.trackers, floorTracker{pid: pid})
	}
	return &g.trackers[g.last]
}

const (
	mixedDevices = -2 // the group has memory on several devices
	mixedKinds   = -1 // the group has memory of several kinds
)

// Consume takes the next change of a replay.
func (s *Scan) Consume(p *timeline.Program, c *livemem.Change) {
	if s.done {
		return
	}
	if c.AtNs > s.Window.ToNs {
		s.Finish(p)
		return
	}
	for c.AtNs > s.nextNs {
		s.checkpoint()
	}
	if c.Block.SinceNs < s.Window.FromNs {
		return
	}
	i, ok := s.Grouping.Of(c.Block.Origin, c.Block.Bytes)
	if !ok {
		if s.Grouping.Suppressed(c.Block.Origin, c.Block.Bytes) {
			s.matched = true
			if c.Kind == livemem.FreedByExit {
				s.suppress(&c.Block)
			}
		}
		return
	}
	s.matched = true
	for int(i) >= len(s.groups) {
		s.groups = append(s.groups, groupStats{Device: s.t.Origins.List[c.Block.Origin].Device})
	}
	s.change(&s.groups[i], c)
}

// change counts a change of a block of the group.
func (s *Scan) change(g *groupStats, c *livemem.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	in := g.tracker(o.Pid)
	switch c.Kind {
	case livemem.Allocated:
		if g.allocs == 0 {
			g.firstStack, g.memory = o.Stack, o.Memory
		} else if g.memory != o.Memory {
			g.memory = mixedKinds
		}
		g.allocs++
		g.allocBytes += c.Block.Bytes
		g.LiveCount++
		g.LiveBytes += c.Block.Bytes
		in.liveCount++
		in.liveBytes += c.Block.Bytes
		s.live += c.Block.Bytes
		if s.live > s.peak {
			s.peak, s.peakNs = s.live, c.AtNs
		}
	case livemem.Freed, livemem.FreeLost, livemem.FreedWithCtx:
		g.frees++
		s.Frees++
		g.LiveCount--
		g.LiveBytes -= c.Block.Bytes
		in.liveCount--
		in.liveBytes -= c.Block.Bytes
		in.floor = min(in.floor, in.liveBytes)
		s.live -= c.Block.Bytes
	case livemem.FreedByExit:
		// The program did not free the block: it stays live in this report.
		g.exited++
		in.exited++
		in.exitNs = max(in.exitNs, c.AtNs)
		s.live -= c.Block.Bytes
		s.addUnfreed(g, &c.Block, c.AtNs)
	case livemem.AllocFailed:
		s.failed++
	}
}

// checkpointNs returns the time of checkpoint i, Unix ns. Checkpoint 0 is the end of the warm-up.
func (s *Scan) checkpointNs(i int) int64 {
	return s.warmNs + int64(float64(s.Window.ToNs-s.warmNs)*float64(i)/Checkpoints)
}

// checkpoint ends an interval for all groups. The first interval is the warm-up.
func (s *Scan) checkpoint() {
	for i := range s.groups {
		for k := range s.groups[i].trackers {
			s.groups[i].trackers[k].checkpoint(s.step)
		}
	}
	s.step++
	s.nextNs = math.MaxInt64
	if s.step < Checkpoints {
		s.nextNs = s.checkpointNs(s.step + 1)
	}
}

// checkpoint keeps the floor of the interval that ends, unless that is the warm-up.
func (c *floorTracker) checkpoint(step int) {
	if step >= 0 && (c.floors != nil || c.floor != 0) {
		if c.floors == nil {
			c.floors = make([]int64, step, Checkpoints)
		}
		c.floors = append(c.floors, c.floor)
	}
	c.floor = c.liveBytes
}

// addUnfreed counts a block that the program had not freed at atNs, Unix ns.
func (s *Scan) addUnfreed(g *groupStats, b *livemem.Block, atNs int64) {
	o := &s.t.Origins.List[b.Origin]
	g.ages = append(g.ages, max(0, atNs-b.SinceNs))
	if b.SinceNs <= s.warmNs {
		g.startBytes += b.Bytes
	}
	if s.t.OnHost(b.Origin) {
		g.hostBytes += b.Bytes
	}
	if g.Device != o.Device {
		g.Device = mixedDevices
	}
	if g.stacks == nil {
		g.stacks = make(map[int32]int64)
	}
	g.stacks[o.Stack] += b.Bytes
}

// suppress counts an unfreed block that a suppression hides.
func (s *Scan) suppress(b *livemem.Block) {
	which, _ := s.Grouping.Suppress.Of(b.Origin)
	s.Grouping.Suppress.Count(which, b)
}

// Finish ends the window: p is the program's memory at its end. Later calls do nothing.
func (s *Scan) Finish(p *timeline.Program) {
	if s.done {
		return
	}
	s.done = true
	for s.step < Checkpoints {
		s.checkpoint()
	}
	p.Each(func(_ int64, b livemem.Block) {
		if b.SinceNs < s.Window.FromNs {
			return
		}
		i, ok := s.Grouping.Of(b.Origin, b.Bytes)
		if ok && int(i) < len(s.groups) {
			s.addUnfreed(&s.groups[i], &b, s.Window.ToNs)
		} else if !ok && s.Grouping.Suppressed(b.Origin, b.Bytes) {
			s.suppress(&b)
		}
	})
	for i := range s.groups {
		slices.Sort(s.groups[i].ages)
	}
}

// series returns the floors up to the end of the process.
func (s *Scan) series(c *floorTracker) []int64 {
	if c.liveCount == 0 || c.exited < c.liveCount {
		return c.floors
	}
	for n := range c.floors {
		if s.checkpointNs(n+1) > c.exitNs {
			return c.floors[:n]
		}
	}
	return c.floors
}

// allExited reports whether the end of processes or contexts freed all that the group had not
// freed itself.
func (g *groupStats) allExited() bool { return g.LiveCount > 0 && g.exited == g.LiveCount }

// Stack returns the id of the stack with most of the unfreed bytes, or of the first allocation if
// all was freed.
func (g *groupStats) Stack() int32 {
	best, most := g.firstStack, int64(-1)
	for id, bytes := range g.stacks {
		if bytes > most || bytes == most && id < best {
			best, most = id, bytes
		}
	}
	return best
}
