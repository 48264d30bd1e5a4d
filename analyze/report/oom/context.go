package oom

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// FailureContext is a failed allocation and the memory at that time.
type FailureContext struct {
	*Failure
	pid, tid, device int32
	memory           string // kind of the requested memory

	// State of the caching allocator of the process and device, if there is one.
	hasAllocator bool
	totals       caching.AllocatorTotals
	unseen       int64 // reserved bytes in segments from before the recording
	spaces       []*caching.MemorySpace
	cached       []cachedMemoryPart
	returnable   int64 // bytes that can return to the driver: empty segments, whole steps of expandable ones
	Expandable   bool
	// roundedSize is the block size for the request, by the allocator's rounding rules. fragmented
	// is the sum of the holes that are smaller than roundedSize, bytes.
	roundedSize, fragmented int64
	// The allocator's own limit is in [limitLeast, limitBelow), bytes, if the allocator gave up
	// without calling the driver. limitLeast is 0 if it is unknown. limit is the limit if it was read from the process
	// and agrees with the bounds; 0: unknown.
	limitLeast, limitBelow, limit int64
	hasLoweredLimit               bool  // the bounds contradict each other
	tracked                       int64 // live bytes on the device by the calls of all recorded processes
	holders                       []holdingSite
	ownBytes                      int64 // part of tracked that belongs to the process of the request

	freedAfter int64 // bytes that the process freed on the device within freedAfterFailureNs
	free       freeMemory
}

// freedAfterFailureNs is the time after a failure in which frees count for Context.freedAfter, ns.
const freedAfterFailureNs = 1_000_000_000

// MaxExaminedFailures is the maximum number of failures that Contexts examines.
const MaxExaminedFailures = 200

// holdingSite is the live memory of one kind at one call site.
type holdingSite struct {
	memory.HeldMemory
	memory, site string
}

// contextScan collects the context of failures in a second replay.
type contextScan struct {
	t            *timeline.Timeline
	contexts     map[int32]*FailureContext // by Failure.number
	failures     int32                     // number of failures so far
	recent       []*FailureContext         // failures within the last freedAfterFailureNs
	p            *timeline.ProgramMemory
	peakReserved map[*caching.Allocator]int64 // highest reserved bytes so far
}

// ExamineFailures replays the recording again and returns the context of each failure of the list.
func ExamineFailures(t *timeline.Timeline, list []*Failure) ([]*FailureContext, error) {
	s := &contextScan{t: t, contexts: make(map[int32]*FailureContext), peakReserved: make(map[*caching.Allocator]int64)}
	contexts := make([]*FailureContext, len(list))
	for i, f := range list {
		o := &t.Origins.List[f.Origin]
		contexts[i] = &FailureContext{
			Failure: f,
			pid:     o.Pid,
			tid:     o.Tid,
			device:  o.Device,
			memory:  t.Origins.MemoryKindOf(f.Origin),
		}
		s.contexts[f.number] = contexts[i]
	}
	_, err := t.ReplayProgram(s.onProgramChange, s.onDriverChange, s.onAllocatorChange)
	for _, sc := range contexts {
		sc.free = freeMemoryAt(t, sc)
	}
	return contexts, err
}

// onDriverChange processes the next change of driver memory.
func (s *contextScan) onDriverChange(c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocFailed && c.Ptr == calls.ResultOutOfMemory {
		s.examineNext()
	}
}

// onAllocatorChange processes the next change of an allocator.
func (s *contextScan) onAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if c.Op == caching.OpSegmentAllocated || c.Op == caching.OpSegmentMapped {
		s.peakReserved[a] = max(s.peakReserved[a], a.Totals().Reserved+c.Bytes)
	}
	if c.Op == caching.OpTotalsRead {
		s.peakReserved[a] = max(s.peakReserved[a], c.Own.Reserved)
	}
	if a.WasRead() && (c.Op.ChangesSegment() || c.Op == caching.OpBlockFound) {
		s.peakReserved[a] = max(s.peakReserved[a], a.Totals().Reserved)
	}
	if c.Op == caching.OpOutOfMemory && c.Block.Origin != origin.NoOrigin {
		if s.p == nil { // the failure is the first event of the recording
			s.p = &timeline.ProgramMemory{T: s.t, Allocators: a.Set}
		}
		s.examineNext()
	}
}

// onProgramChange processes the next change of the program's memory. The replay calls it before
// onDriverChange for the same change.
func (s *contextScan) onProgramChange(p *timeline.ProgramMemory, c *livemem.Change) {
	s.p = p
	if c.Kind != livemem.ChangeFreed && c.Kind != livemem.ChangeFreedWithContext || len(s.recent) == 0 {
		return
	}
	s.recent = slices.DeleteFunc(
		s.recent,
		func(sc *FailureContext) bool { return c.AtNs > sc.AtNs+freedAfterFailureNs },
	)
	o := &s.t.Origins.List[c.Block.Origin]
	for _, sc := range s.recent {
		if o.Pid == sc.pid && o.Device == sc.device &&
			s.t.IsHostOrigin(c.Block.Origin) == livemem.IsHostKind(sc.memory) {
			sc.freedAfter += c.Block.Bytes
		}
	}
}

// examineNext collects the context of the next failure in the recording, if the list has it.
func (s *contextScan) examineNext() {
	sc := s.contexts[s.failures]
	s.failures++
	if sc == nil {
		return
	}
	s.recent = append(s.recent, sc)
	if s.p != nil {
		s.findHolders(sc)
		s.examineAllocator(sc)
	}
}

// findHolders sets the holders of memory on the device of a failure, or of host memory.
func (s *contextScan) findHolders(sc *FailureContext) {
	var holdings []memory.HeldMemory // by origin
	s.p.EachBlock(func(_ int64, b livemem.Block) {
		holdings = units.GrowToIndex(holdings, b.Origin)
		holdings[b.Origin].Bytes += b.Bytes
		holdings[b.Origin].Blocks++
	})
	type key struct{ memory, site string }
	found := make(map[key]*holdingSite)
	gpu, paired := s.t.Facts.GPUOfOrdinal(sc.pid, sc.device)
	for id, h := range holdings {
		originID := int32(id)
		o := &s.t.Origins.List[originID]
		if h.Blocks == 0 || s.t.IsHostOrigin(originID) != livemem.IsHostKind(sc.memory) {
			continue
		}
		if o.Pid != sc.pid || o.Device != sc.device && !livemem.IsHostKind(sc.memory) {
			if other, ok := s.t.Facts.GPUOfOrdinal(o.Pid, o.Device); paired && ok && other == gpu {
				sc.tracked += h.Bytes
			}
			continue
		}
		sc.tracked += h.Bytes
		sc.ownBytes += h.Bytes
		k := key{s.t.Origins.MemoryKindOf(originID), s.t.SiteOfOrigin(originID)}
		if found[k] == nil {
			found[k] = &holdingSite{memory: k.memory, site: k.site}
		}
		found[k].Bytes += h.Bytes
		found[k].Blocks += h.Blocks
	}
	for _, h := range found {
		sc.holders = append(sc.holders, *h)
	}
	slices.SortFunc(sc.holders, func(a, b holdingSite) int {
		return cmp.Or(
			cmp.Compare(b.Bytes, a.Bytes),
			strings.Compare(a.site, b.site),
			strings.Compare(a.memory, b.memory),
		)
	})
}

// examineAllocator sets the state of the allocator of the process and device.
func (s *contextScan) examineAllocator(sc *FailureContext) {
	if s.p.Allocators == nil || livemem.IsHostKind(sc.memory) {
		return
	}
	for _, a := range s.p.Allocators.List {
		if a == nil || a.Pid != sc.pid || a.Device != sc.device {
			continue
		}
		sc.hasAllocator = true
		sc.totals = a.Totals()
		sc.Expandable = a.Rules.Expandable
		sc.spaces = a.MeasureSpaces(nil)
		sc.unseen = a.UnseenReservedBytes(sc.spaces)
		sc.tracked += sc.totals.Reserved - sc.totals.Allocated
		sc.roundedSize = a.Rules.RoundBlockSize(sc.Requested)
		sc.boundOwnLimit(&a.Rules, s.peakReserved[a])
		sc.setOwnLimit(s.t.Facts.EarlierStates)
		s.classifyCachedMemory(sc, a)
	}
}

// boundOwnLimit sets the bounds of the allocator's own limit. peakReserved is the highest number of
// reserved bytes so far; the limit allowed it. The limit is below the reserved bytes plus a segment
// for the request. If the bounds contradict each other, the program lowered the limit.
func (c *FailureContext) boundOwnLimit(rules *caching.AllocatorRules, peakReserved int64) {
	if !c.HitOwnLimit() {
		return
	}
	fixedRules := *rules
	fixedRules.Expandable = false // PyTorch always checks the limit with a full segment
	c.limitBelow = c.totals.Reserved + fixedRules.MaxSegmentSize(c.roundedSize)
	peakReserved = max(peakReserved, c.totals.Reserved)
	if c.hasLoweredLimit = peakReserved >= c.limitBelow; !c.hasLoweredLimit {
		c.limitLeast = peakReserved
	}
}

// setOwnLimit sets the limit that was read from the process. It leaves a limit out that contradicts the bounds: the
// program has changed it since.
func (c *FailureContext) setOwnLimit(states []*caching.EarlierState) {
	for _, s := range states {
		if s.Pid == c.pid && s.Device == c.device && s.AtNs <= c.AtNs && !c.hasLoweredLimit &&
			s.LimitBytes >= c.limitLeast && s.LimitBytes < c.limitBelow {
			c.limit = s.LimitBytes
		}
	}
}

// HitOwnLimit reports whether the allocator gave up without calling the driver.
func (c *FailureContext) HitOwnLimit() bool {
	return c.byAllocator && c.abandoned && c.driverCalls == 0
}

// isDeviceRequest reports whether the request was for device memory.
func (c *FailureContext) isDeviceRequest() bool {
	return !livemem.IsHostKind(c.memory) && c.memory != format.MemoryManaged
}
