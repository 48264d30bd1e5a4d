package leaks

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// Checkpoints is how many times live memory is looked at after the warm-up.
const Checkpoints = 20

// warmupShare is the part of the window in which a program sets itself up: what is
// allocated there and stays is no leak.
const warmupShare = 0.1

// Scan feeds groups from the replay.
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

// NewScan returns a scan that wants every change of a replay (consume) and, at
// its end, what is live (finish).
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

// groupStats is what the memory allocated at one place did.
type groupStats struct {
	allocs, frees int64
	allocBytes    int64
	LiveBytes     int64
	LiveCount     int64
	trackers      []floorTracker // by process
	last          int            // the climb that changed last

	// What was never freed, known at the end of the window.
	ages       []int64
	startBytes int64 // allocated during the warm-up
	hostBytes  int64
	exited     int64           // blocks whose process ended
	stacks     map[int32]int64 // bytes by stack
	Device     int32           // of all blocks, or mixedDevices
	memory     int32           // kind of all blocks in origin.Table.Strings, or mixedKinds
	firstStack int32
}

// floorTracker is how a group's memory in one process goes up and down. Processes are looked at
// one by one because memory ends with its process: a job that leaves to its end what it
// has is no leak, however many such jobs follow each other.
type floorTracker struct {
	pid       int32
	liveBytes int64
	liveCount int64
	exited    int64 // blocks whose process ended, which stay in the above
	exitNs    int64
	// floor is the lowest live bytes since the last checkpoint, floors those at the
	// checkpoints so far; leading zeros are left out until there is another value.
	// The floor tells a leak from a sawtooth: what is allocated and freed within a
	// step comes and goes above it.
	floor  int64
	floors []int64
}

// floorTracker returns the group's climb in a process.
func (g *groupStats) climb(pid int32) *floorTracker {
	if g.last < len(g.trackers) && g.trackers[g.last].pid == pid {
		return &g.trackers[g.last]
	}
	if g.last = slices.IndexFunc(g.trackers, func(c floorTracker) bool { return c.pid == pid }); g.last < 0 {
		g.last = len(g.trackers)
		g.trackers = append(g.trackers, floorTracker{pid: pid})
	}
	return &g.trackers[g.last]
}

// mixedDevices marks a group with memory on several devices, mixedKinds one with
// memory of several kinds.
const (
	mixedDevices = -2
	mixedKinds   = -1
)

func (s *Scan) Consume(p *timeline.Program, c *ledger.Change) {
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
			if c.Kind == ledger.FreedByExit {
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

func (s *Scan) change(g *groupStats, c *ledger.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	in := g.climb(o.Pid)
	switch c.Kind {
	case ledger.Allocated:
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
	case ledger.Freed, ledger.FreeLost, ledger.FreedWithCtx:
		g.frees++
		s.Frees++
		g.LiveCount--
		g.LiveBytes -= c.Block.Bytes
		in.liveCount--
		in.liveBytes -= c.Block.Bytes
		in.floor = min(in.floor, in.liveBytes)
		s.live -= c.Block.Bytes
	case ledger.FreedByExit:
		// The program did not free it: to leaks it stays what it was.
		g.exited++
		in.exited++
		in.exitNs = max(in.exitNs, c.AtNs)
		s.live -= c.Block.Bytes
		s.never(g, &c.Block, c.AtNs)
	case ledger.AllocFailed:
		s.failed++
	}
}

// checkpointNs is the time of checkpoint i; 0 is the end of the warm-up.
func (s *Scan) checkpointNs(i int) int64 {
	return s.warmNs + int64(float64(s.Window.ToNs-s.warmNs)*float64(i)/Checkpoints)
}

// checkpoint ends an interval for all groups; the first ends the warm-up.
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

// checkpoint notes the floor of the interval that ends, unless that is the warm-up.
func (c *floorTracker) checkpoint(step int) {
	if step >= 0 && (c.floors != nil || c.floor != 0) {
		if c.floors == nil {
			c.floors = make([]int64, step, Checkpoints)
		}
		c.floors = append(c.floors, c.floor)
	}
	c.floor = c.liveBytes
}

// never accounts for a block that was not freed until atNs.
func (s *Scan) never(g *groupStats, b *ledger.Block, atNs int64) {
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

// suppress counts a block that a suppression hides and that was not freed.
func (s *Scan) suppress(b *ledger.Block) {
	which, _ := s.Grouping.Suppress.Of(b.Origin)
	s.Grouping.Suppress.Count(which, b)
}

// Finish closes the window with the memory as it is.
func (s *Scan) Finish(p *timeline.Program) {
	if s.done {
		return
	}
	s.done = true
	for s.step < Checkpoints {
		s.checkpoint()
	}
	p.Each(func(_ int64, b ledger.Block) {
		if b.SinceNs < s.Window.FromNs {
			return
		}
		i, ok := s.Grouping.Of(b.Origin, b.Bytes)
		if ok && int(i) < len(s.groups) {
			s.never(&s.groups[i], &b, s.Window.ToNs)
		} else if !ok && s.Grouping.Suppressed(b.Origin, b.Bytes) {
			s.suppress(&b)
		}
	})
	for i := range s.groups {
		slices.Sort(s.groups[i].ages)
	}
}

// series returns the floors until the process ended.
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

// gone reports whether all that the group had not freed went with its processes.
func (g *groupStats) gone() bool { return g.LiveCount > 0 && g.exited == g.LiveCount }

// Stack returns the stack that most of the live bytes came from, or that of the
// first allocation.
func (g *groupStats) Stack() int32 {
	best, most := g.firstStack, int64(-1)
	for id, bytes := range g.stacks {
		if bytes > most || bytes == most && id < best {
			best, most = id, bytes
		}
	}
	return best
}
