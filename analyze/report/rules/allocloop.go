package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// allocLoopScan finds driver memory that is allocated and freed within maxShortLifeNs, again and
// again. Driver allocations are slow, so a program should make them once at its start.
type allocLoopScan struct {
	t        *timeline.Timeline
	grouping *group.Grouping
	// Program is the memory of the program, by group of the allocating call. Segments is the memory
	// of PyTorch's allocator, by group of the freeing call: many lines need segments, and one line
	// gives them back.
	Program, Segments []allocLoopSite
	slow              []bool          // by origin: cached results of isSlowAllocation
	allocNs           map[int32]int64 // duration of the allocating call, by Block.Number, for live blocks
	allocs            int64           // allocations so far
}

// allocLoopSite counts the short-lived allocations of one call site.
type allocLoopSite struct {
	Pairs           int64   // allocations that were freed within maxShortLifeNs
	Rounds          int64   // series of their frees without an allocation between them
	Bytes           int64   // sum of their sizes
	CallNs          int64   // sum of the durations of the calls that allocated and freed them
	FirstNs, LastNs int64   // times of the first and the last of these allocations, Unix ns
	Origin          int32   // origin of the first of the calls that define the group
	pids            []int32 // processes
	allocs          int64   // value of allocLoopScan.allocs at the last free
	// freedBy is the origin of most frees, by majority vote with votes.
	freedBy int32
	votes   int64
}

// maxShortLifeNs is the longest life of a short-lived allocation, ns. In a loop with longer steps
// the time to allocate does not matter.
const maxShortLifeNs = int64(1e9)

// newAllocLoopScan returns a scan of the allocations that pass the filter.
func newAllocLoopScan(t *timeline.Timeline, f *query.Filter) *allocLoopScan {
	grouping, _ := group.NewGrouping(t, "site", f) // no error: "site" is a valid grouping
	return &allocLoopScan{t: t, grouping: grouping, allocNs: make(map[int32]int64)}
}

// isSlowAllocation reports whether an origin allocates with a slow driver function, not from a pool.
// id is the number of the origin.
func (l *allocLoopScan) isSlowAllocation(id int32) bool {
	for int(id) >= len(l.slow) {
		isSlowMemory := false
		switch l.t.Origins.MemoryKindOf(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlowMemory = true
		}
		l.slow = append(l.slow, isSlowMemory)
	}
	return l.slow[id]
}

// OnDriverChange counts a short-lived allocation when it is freed.
func (l *allocLoopScan) OnDriverChange(c *livemem.Change) {
	b := &c.Block
	isSegment := l.t.IsSegment(b.Number)
	if c.Kind == livemem.ChangeAllocFailed || !isSegment && !l.isSlowAllocation(b.Origin) {
		return // pools make short-lived allocations fast
	}
	if b.IsEarlier() {
		return
	}
	if c.Kind == livemem.ChangeAllocated {
		l.allocs++
		l.allocNs[b.Number] = c.DurNs
		return
	}
	allocNs := l.allocNs[b.Number]
	delete(l.allocNs, b.Number)
	f := l.grouping.Filter
	if c.Kind != livemem.ChangeFreed || c.AtNs-b.SinceNs > maxShortLifeNs || b.SinceNs < f.FromNs ||
		f.ToNs != 0 && b.SinceNs > f.ToNs {
		return
	}
	sites, by := &l.Program, b.Origin
	if isSegment {
		sites, by = &l.Segments, c.By
	}
	if i, ok := l.grouping.GroupOf(by, b.Bytes); ok {
		*sites = units.GrowToIndex(*sites, i)
		l.addPair(&(*sites)[i], c, by, allocNs)
	}
}

// addPair adds an allocation and its free, the change c, to a site. allocNs is the duration of the
// allocating call, ns.
func (l *allocLoopScan) addPair(s *allocLoopSite, c *livemem.Change, by int32, allocNs int64) {
	b := &c.Block
	if s.Pairs == 0 {
		s.FirstNs, s.LastNs, s.Origin = b.SinceNs, b.SinceNs, by
	}
	s.Pairs++
	s.Bytes = units.EndOfRange(s.Bytes, b.Bytes)
	s.CallNs = units.EndOfRange(s.CallNs, allocNs+c.DurNs)
	s.FirstNs, s.LastNs = min(s.FirstNs, b.SinceNs), max(s.LastNs, b.SinceNs)
	if s.allocs != l.allocs {
		s.Rounds++
		s.allocs = l.allocs
	}
	if pid := l.t.Origins.List[by].Pid; !slices.Contains(s.pids, pid) {
		s.pids = append(s.pids, pid)
	}
	switch {
	case s.votes == 0:
		s.freedBy, s.votes = c.By, 1
	case s.freedBy == c.By:
		s.votes++
	default:
		s.votes--
	}
}

const (
	// minAllocFreePairs and minPairsPerSecond are the smallest number and rate of allocation and
	// free pairs that count as a loop. A training step takes 20 ms or more, so 50 per second is one
	// per step.
	minAllocFreePairs = 100
	minPairsPerSecond = 50.0
)

// pairsPerSecond returns the rate of the pairs, and whether it is that of a loop, or costs as much.
func (s *allocLoopSite) pairsPerSecond() (float64, bool) {
	if s.Pairs < minAllocFreePairs {
		return 0, false
	}
	perSec := float64(s.Pairs-1) / (float64(max(1, s.LastNs-s.FirstNs)) / 1e9)
	return perSec, perSec >= minPairsPerSecond || s.timePct() >= minHostSharePct
}

// timePct returns the share of the time between the first and the last pair that the driver calls
// took, %: the mean of all processes.
func (s *allocLoopSite) timePct() float64 {
	return units.Percent(s.CallNs, max(1, s.LastNs-s.FirstNs)) / float64(max(1, len(s.pids)))
}

var allocLoopRule = Rule{
	ID: "alloc-in-loop",
	About: "device, managed or pinned memory is allocated and freed within a second, at least 100 times and 50 " +
		"times per second, or for 5% of the time. For segments of PyTorch's allocator the line that frees them " +
		"counts, otherwise the line that allocates. Allocations from pools (cuMemAllocAsync) and blocks of " +
		"PyTorch's allocator do not count",
	Report: "api --group-by site",
	advice: "Each cudaFree waits until the GPU is idle. Allocate once and reuse the block, or use cudaMallocAsync, " +
		"which allocates from a pool.",
	check: checkAllocLoop,
}

// checkAllocLoop returns a hit for the program's own memory, and one for segments.
func checkAllocLoop(s *Scan) (hits []Hit, err error) {
	if h, ok := s.programLoopHit(); ok {
		hits = append(hits, h)
	}
	if h, ok := s.segmentLoopHit(); ok {
		hits = append(hits, h)
	}
	return hits, nil
}

// programLoopHit returns the hit for memory that is not a segment of an allocator.
func (s *Scan) programLoopHit() (h Hit, ok bool) {
	h = s.newHit(SeverityNotice, "")
	var pairs int64
	for i := range s.allocLoops.Program {
		l := &s.allocLoops.Program[i]
		perSec, ok := l.pairsPerSecond()
		if !ok {
			continue
		}
		pairs += l.Pairs
		e := s.allocLoopEvidence(l)
		e.Detail = fmt.Sprintf(
			"%s, freed within a second, %s times per second",
			s.t.Origins.FunctionOf(l.Origin),
			units.FormatRate(perSec),
		)
		if freed := s.t.SiteOfOrigin(l.freedBy); freed != e.Where && freed != timeline.NoStackSite {
			e.Detail += ", freed at " + freed
		}
		h.Evidence = append(h.Evidence, e)
	}
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf("%s freed within a second, in a loop", units.CountWithNoun(pairs, "allocation"))
	return h, len(h.Evidence) > 0
}

// segmentLoopHit returns the hit for segments of PyTorch's allocator.
func (s *Scan) segmentLoopHit() (h Hit, ok bool) {
	h = s.newHit(SeverityNotice, "")
	var worst *allocLoopSite
	for i := range s.allocLoops.Segments {
		l := &s.allocLoops.Segments[i]
		perSec, ok := l.pairsPerSecond()
		if !ok {
			continue
		}
		if worst == nil || l.CallNs > worst.CallNs {
			worst = l
		}
		e := s.allocLoopEvidence(l)
		e.Ns = l.CallNs
		e.Detail = fmt.Sprintf(
			"segments, %s, freed here and allocated again within a second, %s per second, %.1f%% of the time",
			l.perRoundText(),
			units.FormatRate(perSec),
			l.timePct(),
		)
		h.Evidence = append(h.Evidence, e)
	}
	if worst == nil {
		return h, false
	}
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf(
		"segments of PyTorch's allocator are freed and allocated again, %s, %.1f%% of the time in these driver calls",
		worst.perRoundText(),
		worst.timePct(),
	)
	h.Advice, h.sharePct = s.segmentLoopAdvice(worst), worst.timePct()
	return h, true
}

// perRoundText returns how many segments are freed together.
func (s *allocLoopSite) perRoundText() string {
	return units.FormatRate(float64(s.Pairs)/float64(max(1, s.Rounds))) + " at a time"
}

// allocLoopEvidence returns the row of a site, without its detail.
func (s *Scan) allocLoopEvidence(l *allocLoopSite) Evidence {
	return Evidence{
		Where:   s.t.SiteOfOrigin(l.Origin),
		Stack:   s.t.Origins.List[l.Origin].Stack,
		Count:   l.Pairs,
		Bytes:   l.Bytes,
		FirstNs: l.FirstNs,
		lastNs:  l.LastNs,
	}
}

// segmentLoopAdvice returns the advice for a line that frees segments: the program empties the
// cache, or else the allocator does so because it gets no more memory.
func (s *Scan) segmentLoopAdvice(l *allocLoopSite) string {
	frames := s.t.Stacks.Stacks[s.t.Origins.List[l.Origin].Stack]
	if slices.ContainsFunc(frames, func(id int32) bool {
		name := s.t.Stacks.Frames[id].Func
		return strings.Contains(name, "empty_cache") || strings.Contains(name, "emptyCache")
	}) {
		return "Remove torch.cuda.empty_cache() from the loop: each cudaFree waits until the GPU is idle, and the " +
			"next step allocates the segments again."
	}
	return "Each cudaFree waits until the GPU is idle. Remove calls of torch.cuda.empty_cache() from the loop, or " +
		"leave the allocator more memory: it frees its cache if it reaches a limit."
}
