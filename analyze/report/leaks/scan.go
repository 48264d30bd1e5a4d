package leaks

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// CheckpointCount is the number of intervals after the warm-up. Each has a floor: its lowest live
// bytes.
const CheckpointCount = stats.CheckpointCount

// Scan collects statistics of allocations and frees by group. Consume processes the changes of a
// replay, and Finish the memory at its end. A Scan is not safe for concurrent use.
type Scan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	groups   []groupStats
	Grouping *group.Grouping
	Window   query.Window
	warmNs   int64 // end of the warm-up, Unix ns
	step     int   // number of passed checkpoints; -1 before the end of the warm-up
	nextNs   int64 // time of the next checkpoint, Unix ns
	live     int64
	peak     int64
	peakNs   int64
	matched  bool
	Frees    int64
	failed   int64
	done     bool
	stacks   *stackCounter // nil unless groups are call sites
	// total tracks the live bytes of all groups, less the blocks from before the recording that were
	// freed since.
	total floorTracker
	// earlierFrees are the blocks from before the recording that the program freed in the window, by size and by class
	// of sizes; nil: none.
	earlierFrees map[blockSize]sizeSum
	// windows follows allocators whose events were recorded in windows; nil: there are none.
	windows   *windowScan
	inWindows windowVerdicts // set by Finish
	// Caches follows the unused memory of caching allocators.
	Caches *cachegrowth.Scan
}

// NewScan returns a scan of the memory that passes opt.Filter. It returns a *report.GroupError for
// an unknown opt.GroupBy.
func NewScan(t *timeline.Timeline, opt *query.Options) (*Scan, error) {
	by, err := group.NewGrouping(t, opt.GroupBy, &opt.Filter)
	if err != nil {
		return nil, err
	}
	by.Suppress = group.NewSuppressor(t, opt.Suppressions)
	s := &Scan{t: t, filter: &opt.Filter, Grouping: by, Window: t.ActivityWindow(&opt.Filter), step: -1}
	s.warmNs = stats.NewCheckpoints(s.Window.FromNs, s.Window.ToNs).WarmNs
	s.nextNs = s.warmNs
	s.Caches = cachegrowth.NewScan(t, &opt.Filter, s.Window)
	s.windows = newWindowScan(t, s.Window)
	if by.By == "site" {
		s.stacks = newStackCounter(t)
	}
	return s, nil
}

// scanKey is the key of the Scan that reports share.
type scanKey struct{}

// ScanOf returns the Scan of a survey. All callers must have the same options. It returns a *report.GroupError for an
// unknown opt.GroupBy.
func ScanOf(sv *survey.Survey, opt *query.Options) (s *Scan, err error) {
	s = survey.Share(sv, scanKey{}, func() *Scan {
		if s, err = NewScan(sv.Timeline, opt); err == nil {
			sv.Add(survey.Observer{Program: s.OnDriverChange, Allocator: s.OnAllocatorChange})
		}
		return s
	})
	return s, err
}

// groupStats are the counters of one group of allocations, such as a call site.
type groupStats struct {
	group.Group   // name of the group; set by Finish
	allocs, frees int64
	allocBytes    int64
	LiveBytes     int64
	LiveCount     int64
	trackers      []floorTracker // one per process
	last          int            // index of the tracker that changed last

	// Statistics of the blocks that the program did not free; complete after Finish.
	ages       []int64         // ns, sorted by Finish
	startBytes int64           // bytes allocated during the warm-up
	hostBytes  int64           // bytes of host memory
	exited     int64           // blocks that the end of their process or CUDA context freed
	stacks     map[int32]int64 // bytes by stack id
	sightings  sightings       // blocks that windows saw; nil without windows
	sizes      unfreedSizes    // unfreed blocks; nil without blocks from before the recording
	Device     int32           // of all blocks, or severalDevicesMark
	memory     int32           // kind of all blocks, an index of origin.OriginTable.Strings, or severalKindsMark
	hasSite    bool            // the allocation of some blocks was recorded
	firstStack int32           // stack id of the first allocation
	ViaStack   int32           // stack.Pair.Via of the first allocation
}

// floorTracker tracks the live bytes of a group in one process. Each process has its own tracker,
// because the end of a process frees its memory. A series of short jobs that free nothing does not
// leak.
type floorTracker struct {
	pid       int32
	liveBytes int64
	liveCount int64
	exited    int64 // number of live blocks that the end of the process or CUDA context freed
	exitNs    int64 // time of the latest of these frees, Unix ns
	// floor is the lowest live bytes since the last checkpoint. floors has one value per passed
	// checkpoint and is nil while all values are 0. The floor separates a leak from a sawtooth:
	// memory that is allocated and freed between two checkpoints does not raise it.
	floor  int64
	floors []int64
}

// trackerOfProcess returns the tracker of process pid, and creates it if necessary.
func (g *groupStats) trackerOfProcess(pid int32) *floorTracker {
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
	severalDevicesMark = -2 // value of groupStats.Device for memory on several devices
	severalKindsMark   = -1 // value of groupStats.memory for memory of several kinds
)

// OnDriverChange processes the next change of a replay.
func (s *Scan) OnDriverChange(p *timeline.ProgramMemory, c *livemem.Change) {
	if s.done {
		return
	}
	if c.AtNs > s.Window.ToNs {
		s.Finish(p)
		return
	}
	for c.AtNs > s.nextNs {
		s.recordCheckpoint()
	}
	if c.Block.SinceNs < s.Window.FromNs {
		return
	}
	i, ok := s.Grouping.GroupOf(c.Block.Origin, c.Block.Bytes)
	if !ok {
		if s.Grouping.IsSuppressed(c.Block.Origin, c.Block.Bytes) {
			s.matched = true
			if c.Kind == livemem.ChangeFreedByExit {
				s.countSuppressedBlock(&c.Block)
			}
		}
		return
	}
	s.matched = true
	for int(i) >= len(s.groups) {
		s.groups = append(s.groups, groupStats{Device: s.t.Origins.List[c.Block.Origin].Device})
	}
	g := &s.groups[i]
	if part := s.stacks.partOf(i, g, c.Block.Origin); part != nil {
		s.countInGroup(part, c)
	}
	s.countInGroup(g, c)
	s.countTotal(c)
}

// countInGroup adds a change of one of the group's blocks to the counters of the group.
func (s *Scan) countInGroup(g *groupStats, c *livemem.Change) {
	o := &s.t.Origins.List[c.Block.Origin]
	in := g.trackerOfProcess(o.Pid)
	switch c.Kind {
	case livemem.ChangeAllocated:
		if g.allocs == 0 {
			g.firstStack, g.ViaStack, g.memory = o.Stack, o.Via, o.Memory
		} else if g.memory != o.Memory {
			g.memory = severalKindsMark
		}
		g.hasSite = g.hasSite || !s.t.Origins.IsUnseen(c.Block.Origin)
		g.allocs++
		g.allocBytes += c.Block.Bytes
		g.LiveCount++
		g.LiveBytes += c.Block.Bytes
		in.liveCount++
		in.liveBytes += c.Block.Bytes
	case livemem.ChangeFreed, livemem.ChangeFreeLost, livemem.ChangeFreedWithContext:
		g.frees++
		g.LiveCount--
		g.LiveBytes -= c.Block.Bytes
		in.liveCount--
		in.liveBytes -= c.Block.Bytes
		in.floor = min(in.floor, in.liveBytes)
	case livemem.ChangeFreedByExit:
		// The end of the process freed the block, not the program. It stays live in this report.
		g.exited++
		in.exited++
		in.exitNs = max(in.exitNs, c.AtNs)
		s.addUnfreed(g, &c.Block, c.AtNs)
	}
}

// countTotal adds a change to the counters of all groups together.
func (s *Scan) countTotal(c *livemem.Change) {
	switch c.Kind {
	case livemem.ChangeAllocFailed:
		s.failed++
		return
	case livemem.ChangeFreed, livemem.ChangeFreeLost, livemem.ChangeFreedWithContext:
		s.Frees++
	}
	change := livemem.LiveBytesChange(c)
	s.live += change
	if s.live > s.peak {
		s.peak, s.peakNs = s.live, c.AtNs
	}
	if s.windows != nil && s.t.Origins.MemoryKindOf(c.Block.Origin) == format.MemoryTorch {
		return // a reading changes blocks one after the other: windows has their floors
	}
	s.total.liveBytes += change
	s.total.floor = min(s.total.floor, s.total.liveBytes)
}

// OnAllocatorChange processes the next change of an allocator. The free of a block from before the
// recording lowers the total.
func (s *Scan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	s.Caches.OnAllocatorChange(a, c)
	s.onWindowChange(a, c)
	if s.done || s.windows != nil || c.Op != caching.OpBlockFreeRequested || c.Block.Origin != origin.NoOrigin ||
		c.AtNs > s.Window.ToNs ||
		!s.filter.PassesAllocator(a.Pid, a.Device) {
		return
	}
	if c.Block.IsEarlier {
		if s.t.IsInTeardown(a.Pid, c.AtNs) {
			return
		}
		s.noteEarlierFree(a, c)
	}
	for c.AtNs > s.nextNs {
		s.recordCheckpoint()
	}
	s.total.liveBytes -= c.Block.Requested
	s.total.floor = min(s.total.floor, s.total.liveBytes)
}

// checkpointTimeNs returns the time of checkpoint i, Unix ns. Checkpoint 0 is the end of the
// warm-up.
func (s *Scan) checkpointTimeNs(i int) int64 {
	return s.warmNs + int64(float64(s.Window.ToNs-s.warmNs)*float64(i)/CheckpointCount)
}

// recordCheckpoint ends an interval for all groups. The first interval is the warm-up.
func (s *Scan) recordCheckpoint() {
	for i := range s.groups {
		s.groups[i].recordFloors(s.step)
	}
	s.stacks.recordFloors(s.step)
	s.total.recordFloor(s.step)
	s.step++
	s.nextNs = math.MaxInt64
	if s.step < CheckpointCount {
		s.nextNs = s.checkpointTimeNs(s.step + 1)
	}
}

// recordFloors stores the floors of all processes, see recordFloor.
func (g *groupStats) recordFloors(step int) {
	for i := range g.trackers {
		g.trackers[i].recordFloor(step)
	}
}

// recordFloor stores the floor of the interval that ends, unless the interval is the warm-up.
func (t *floorTracker) recordFloor(step int) {
	if step >= 0 && (t.floors != nil || t.floor != 0) {
		if t.floors == nil {
			t.floors = make([]int64, step, CheckpointCount)
		}
		t.floors = append(t.floors, t.floor)
	}
	t.floor = t.liveBytes
}

// addUnfreed adds a block that the program had not freed at atNs, Unix ns.
func (s *Scan) addUnfreed(g *groupStats, b *livemem.Block, atNs int64) {
	o := &s.t.Origins.List[b.Origin]
	g.ages = append(g.ages, max(0, atNs-b.SinceNs))
	if b.SinceNs <= s.warmNs {
		g.startBytes += b.Bytes
	}
	if s.t.IsHostOrigin(b.Origin) {
		g.hostBytes += b.Bytes
	}
	if g.Device != o.Device {
		g.Device = severalDevicesMark
	}
	g.addStack(o.Stack, b.Bytes)
	s.addUnfreedSize(g, b)
}

// addStack adds unfreed bytes of a stack.
func (g *groupStats) addStack(id int32, bytes int64) {
	if g.stacks == nil {
		g.stacks = make(map[int32]int64)
	}
	g.stacks[id] += bytes
}

// countSuppressedBlock counts an unfreed block that matches a suppression.
func (s *Scan) countSuppressedBlock(b *livemem.Block) {
	which, _ := s.Grouping.Suppress.FindSuppression(b.Origin)
	s.Grouping.Suppress.CountBlock(which, b)
}

// Finish ends the window. p is the program's memory at the end. Later calls have no effect.
func (s *Scan) Finish(p *timeline.ProgramMemory) {
	if s.done {
		return
	}
	s.done = true
	for s.step < CheckpointCount {
		s.recordCheckpoint()
	}
	p.EachBlock(func(_ int64, b livemem.Block) {
		if b.SinceNs < s.Window.FromNs {
			return
		}
		i, ok := s.Grouping.GroupOf(b.Origin, b.Bytes)
		if ok && int(i) < len(s.groups) {
			g := &s.groups[i]
			if part := s.stacks.partOf(i, g, b.Origin); part != nil {
				s.addUnfreed(part, &b, s.Window.ToNs)
			}
			s.addUnfreed(g, &b, s.Window.ToNs)
		} else if !ok && s.Grouping.IsSuppressed(b.Origin, b.Bytes) {
			s.countSuppressedBlock(&b)
		}
	})
	s.finishWindows(p)
	for i := range s.groups {
		s.groups[i].Group = s.Grouping.Groups[i]
	}
	s.groups = s.stacks.splitSites(s.groups)
	s.measureWindows()
	for i := range s.groups {
		slices.Sort(s.groups[i].ages)
	}
}

// floorsUntilExit returns the floors up to the end of the process.
func (s *Scan) floorsUntilExit(c *floorTracker) []int64 {
	if c.liveCount == 0 || c.exited < c.liveCount {
		return c.floors
	}
	for n := range c.floors {
		if s.checkpointTimeNs(n+1) > c.exitNs {
			return c.floors[:n]
		}
	}
	return c.floors
}

// allProcessesExited reports whether the end of processes or CUDA contexts freed all blocks that
// the program did not free.
func (g *groupStats) allProcessesExited() bool { return g.LiveCount > 0 && g.exited == g.LiveCount }

// Pid returns the process that has at least nine tenths of the live bytes of the group; 0: none has.
func (g *groupStats) Pid() int32 {
	for i := range g.trackers {
		if t := &g.trackers[i]; 10*t.liveBytes >= 9*g.LiveBytes {
			return t.pid
		}
	}
	return 0
}

// StackID returns the id of the stack with most of the unfreed bytes. It returns the stack of the
// first allocation if all blocks were freed.
func (g *groupStats) StackID() int32 {
	best, most := g.firstStack, int64(-1)
	for id, bytes := range g.stacks {
		if bytes > most || bytes == most && id < best {
			best, most = id, bytes
		}
	}
	return best
}
