package oom

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Context is a failure and what there was at that moment.
type Context struct {
	*Failure
	pid, tid, device int32
	memory           string // kind that was asked for

	// Of the caching allocator of its process and device, if there is one.
	hasAllocator bool
	totals       caching.Totals
	unseen       int64 // reserved bytes of which the segments are older than the recording
	spaces       []*caching.Space
	cached       []cachedPart
	whole        int64 // bytes of segments without blocks, or whole steps of expandable ones that it may still give back
	Expandable   bool
	// size is the block that was requested, rounded as the allocator does. fragmented are the bytes of
	// gaps between blocks that are smaller than that.
	size, fragmented int64
	// The allocator's limit lies in [limitLeast, limitBelow) if it gave up without asking the driver.
	// limitLeast is 0 if it is not known.
	limitLeast, limitBelow int64
	tracked                int64 // bytes live on the device, as calls of recorded processes tell
	holders                []holdingSite
	ownBytes               int64 // of them, of the process

	freedNext int64 // bytes that the process freed on the device within the next second
	free      freeMemory
}

// freedAfterNs is how long after a failure it counts what is freed.
const freedAfterNs = 1_000_000_000

// MaxContexts bounds the failures of which the scene is looked at.
const MaxContexts = 200

// holdingSite is what one place holds.
type holdingSite struct {
	memory.Holding
	memory, site string
}

// contextScan looks at the scenes of failures in a second replay.
type contextScan struct {
	t      *timeline.Timeline
	wanted map[int32]*Context // by failure.number
	number int32
	recent []*Context // of the last second
	p      *timeline.Program
	most   map[*caching.Allocator]int64 // most bytes that were reserved
}

// Contexts replays the recording again and looks at what there was at failures.
func Contexts(t *timeline.Timeline, list []*Failure) ([]*Context, error) {
	s := &contextScan{t: t, wanted: make(map[int32]*Context), most: make(map[*caching.Allocator]int64)}
	scenes := make([]*Context, len(list))
	for i, f := range list {
		o := &t.Origins.List[f.Origin]
		scenes[i] = &Context{Failure: f, pid: o.Pid, tid: o.Tid, device: o.Device, memory: t.Origins.Memory(f.Origin)}
		s.wanted[f.number] = scenes[i]
	}
	_, err := t.ReplayProgram(s.program, s.driver, s.allocator)
	for _, sc := range scenes {
		sc.free = freeAt(t, sc)
	}
	return scenes, err
}

func (s *contextScan) driver(c *ledger.Change) {
	if c.Kind == ledger.AllocFailed && c.Ptr == calls.ResultOutOfMemory {
		s.next()
	}
}

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

// program takes a change of what the program has; the driver's come before driver hears
// of them.
func (s *contextScan) program(p *timeline.Program, c *ledger.Change) {
	s.p = p
	if c.Kind != ledger.Freed && c.Kind != ledger.FreedWithCtx || len(s.recent) == 0 {
		return
	}
	s.recent = slices.DeleteFunc(s.recent, func(sc *Context) bool { return c.AtNs > sc.AtNs+freedAfterNs })
	o := &s.t.Origins.List[c.Block.Origin]
	for _, sc := range s.recent {
		if o.Pid == sc.pid && o.Device == sc.device && s.t.OnHost(c.Block.Origin) == ledger.IsHost(sc.memory) {
			sc.freedNext += c.Block.Bytes
		}
	}
}

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

// hold notes what places hold on the device of a failure, or of the host's memory.
func (s *contextScan) hold(sc *Context) {
	var held []memory.Holding // by origin
	s.p.Each(func(_ int64, b ledger.Block) {
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
		if h.Blocks == 0 || s.t.OnHost(origin) != ledger.IsHost(sc.memory) {
			continue
		}
		if o.Pid != sc.pid || o.Device != sc.device && !ledger.IsHost(sc.memory) {
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
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.site, b.site), strings.Compare(a.memory, b.memory))
	})
}

func (s *contextScan) lookAtAllocator(sc *Context) {
	if s.p.Allocators == nil || ledger.IsHost(sc.memory) {
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

// boundLimit sets the bounds of the allocator's limit. It reserved most bytes before, and would not
// reserve a segment for the request. If the two contradict each other, the limit was lowered.
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

// HitOwnLimit reports whether an allocator gave up without asking the driver.
func (sc *Context) HitOwnLimit() bool { return sc.byAllocator && sc.given && sc.calls == 0 }

// onDevice reports whether memory of a device was asked for.
func (sc *Context) onDevice() bool {
	return !ledger.IsHost(sc.memory) && sc.memory != format.MemoryManaged
}
