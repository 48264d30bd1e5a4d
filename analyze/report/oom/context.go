package oom

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Context is a failure and the memory at its moment.
type Context struct {
	*Failure
	pid, tid, device int32
	memory           string // kind of the requested memory

	// Of the caching allocator of its process and device, if there is one.
	hasAllocator bool
	totals       caching.Totals
	unseen       int64 // reserved bytes of segments from before the recording
	spaces       []*caching.Space
	cached       []cachedPart
	whole        int64 // bytes that it may give back: segments without blocks, whole steps of expandable ones
	Expandable   bool
	// size is the size of the requested block, rounded as the allocator does. fragmented is the sum of
	// the gaps between blocks that are smaller, bytes.
	size, fragmented int64
	// The allocator's limit lies in [limitLeast, limitBelow) if it gave up without asking the driver.
	// limitLeast is 0 if it is not known.
	limitLeast, limitBelow int64
	tracked                int64 // live bytes on the device by the calls of all recorded processes
	holders                []holdingSite
	ownBytes               int64 // of tracked, those of the process

	freedNext int64 // bytes that the process freed on the device within the next second
	free      freeMemory
}

// freedAfterNs is the time after a failure in which frees count as Context.freedNext, ns.
const freedAfterNs = 1_000_000_000

// MaxContexts bounds the failures whose context is examined.
const MaxContexts = 200

// holdingSite is the live memory of one kind and call site.
type holdingSite struct {
	memory.Holding
	memory, site string
}

// contextScan examines the context of failures in a second replay.
type contextScan struct {
	t      *timeline.Timeline
	wanted map[int32]*Context // by failure.number
	number int32
	recent []*Context // failures of the last freedAfterNs
	p      *timeline.Program
	most   map[*caching.Allocator]int64 // peak of reserved bytes
}

// Contexts replays the recording again and returns the context of each failure.
func Contexts(t *timeline.Timeline, list []*Failure) ([]*Context, error) {
	s := &contextScan{t: t, wanted: make(map[int32]*Context), most: make(map[*caching.Allocator]int64)}
	contexts := make([]*Context, len(list))
	for i, f := range list {
		o := &t.Origins.List[f.Origin]
		contexts[i] = &Context{Failure: f, pid: o.Pid, tid: o.Tid, device: o.Device, memory: t.Origins.Memory(f.Origin)}
		s.wanted[f.number] = contexts[i]
	}
	_, err := t.ReplayProgram(s.program, s.driver, s.allocator)
	for _, sc := range contexts {
		sc.free = freeAt(t, sc)
	}
	return contexts, err
}

// driver takes the next change of the driver's memory.
func (s *contextScan) driver(c *livemem.Change) {
	if c.Kind == livemem.AllocFailed && c.Ptr == calls.ResultOutOfMemory {
		s.next()
	}
}

// allocator takes the next change of an allocator.
func (s *contextScan) allocator(a *caching.Allocator, c *caching.Change) {
	if c.Op == caching.SegmentAllocated || c.Op == caching.SegmentMapped {
		s.most[a] = max(s.most[a], a.Totals().Reserved+c.Bytes)
	}
	if c.Op == caching.OutOfMemory && c.Block.Origin != originpkg.None {
		if s.p == nil { // it is the first thing that happens
			s.p = &timeline.Program{T: s.t, Allocators: a.Set}
		}
		s.next()
	}
}

// program takes the next change of the program's memory. It sees a change of the driver before
// driver does.
func (s *contextScan) program(p *timeline.Program, c *livemem.Change) {
	s.p = p
	if c.Kind != livemem.Freed && c.Kind != livemem.FreedWithCtx || len(s.recent) == 0 {
		return
	}
	s.recent = slices.DeleteFunc(s.recent, func(sc *Context) bool { return c.AtNs > sc.AtNs+freedAfterNs })
	o := &s.t.Origins.List[c.Block.Origin]
	for _, sc := range s.recent {
		if o.Pid == sc.pid && o.Device == sc.device && s.t.OnHost(c.Block.Origin) == livemem.IsHost(sc.memory) {
			sc.freedNext += c.Block.Bytes
		}
	}
}

// next examines the next failure of the recording, if it was chosen.
func (s *contextScan) next() {
	sc := s.wanted[s.number]
	s.number++
	if sc == nil {
		return
	}
	s.recent = append(s.recent, sc)
	if s.p != nil {
		s.hold(sc)
		s.lookAtAllocator(sc)
	}
}

// hold sets the holders of memory on the device of a failure, or of host memory.
func (s *contextScan) hold(sc *Context) {
	var held []memory.Holding // by origin
	s.p.Each(func(_ int64, b livemem.Block) {
		held = units.Grow(held, b.Origin)
		held[b.Origin].Bytes += b.Bytes
		held[b.Origin].Blocks++
	})
	type key struct{ memory, site string }
	found := make(map[key]*holdingSite)
	gpu, paired := s.t.Facts.GPUOf(sc.pid, sc.device)
	for id, h := range held {
		origin := int32(id)
		o := &s.t.Origins.List[origin]
		if h.Blocks == 0 || s.t.OnHost(origin) != livemem.IsHost(sc.memory) {
			continue
		}
		if o.Pid != sc.pid || o.Device != sc.device && !livemem.IsHost(sc.memory) {
			if other, ok := s.t.Facts.GPUOf(o.Pid, o.Device); paired && ok && other == gpu {
				sc.tracked += h.Bytes
			}
			continue
		}
		sc.tracked += h.Bytes
		sc.ownBytes += h.Bytes
		k := key{s.t.Origins.Memory(origin), s.t.SiteLabel(origin)}
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

// lookAtAllocator sets what is known of the allocator of the process and device.
func (s *contextScan) lookAtAllocator(sc *Context) {
	if s.p.Allocators == nil || livemem.IsHost(sc.memory) {
		return
	}
	for _, a := range s.p.Allocators.List {
		if a == nil || a.Pid != sc.pid || a.Device != sc.device {
			continue
		}
		sc.hasAllocator = true
		sc.totals = a.Totals()
		sc.Expandable = a.Rules.Expandable
		sc.spaces = a.Survey(nil)
		sc.unseen = a.Unseen(sc.spaces)
		sc.tracked += sc.totals.Reserved - sc.totals.Allocated
		sc.size = a.Rules.Round(sc.Requested)
		sc.boundLimit(&a.Rules, s.most[a])
		s.sortCached(sc, a)
	}
}

// boundLimit sets the bounds of the allocator's limit: most is the peak of its reserved bytes. The
// limit is below the reserved bytes and a segment for the request. If the two contradict each other,
// the limit was lowered.
func (sc *Context) boundLimit(rules *caching.Rules, most int64) {
	if !sc.HitOwnLimit() {
		return
	}
	whole := *rules
	whole.Expandable = false // PyTorch compares the limit with a segment for the request in any case
	sc.limitBelow = sc.totals.Reserved + whole.Segment(sc.size)
	if most = max(most, sc.totals.Reserved); most < sc.limitBelow {
		sc.limitLeast = most
	}
}

// HitOwnLimit reports whether the allocator gave up without asking the driver.
func (sc *Context) HitOwnLimit() bool { return sc.byAllocator && sc.abandoned && sc.calls == 0 }

// onDevice reports whether the request was for device memory.
func (sc *Context) onDevice() bool {
	return !livemem.IsHost(sc.memory) && sc.memory != format.MemoryManaged
}
