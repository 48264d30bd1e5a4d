package oom

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
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

// cachedPart is free memory of a caching allocator that a request could not use, and why.
type cachedPart struct {
	reason                 CachedReason
	bytes, pieces, largest int64
	segments               int64
	holders                map[int32]int64 // origins of blocks → bytes of gaps in their segments
	heldBy                 string          // the place with most of that
}

// CachedReason says why free memory of a caching allocator is of no use to a request.
type CachedReason uint8

const (
	TooSmall    CachedReason = iota // the right pool and stream, but no piece is large enough
	OtherClass                      // segments for small blocks, or for others
	OtherStream                     // of another stream
	OtherPool                       // of a private pool, or the default one
	Awaited                         // given back by the program, but a stream still uses it
	GoesBack                        // whole segments, which go back to the driver when the allocator retries
	LargeEnough                     // a piece is large enough: the model cannot tell why it was not used
)

func (r CachedReason) String() string {
	return [...]string{"too small pieces", "for blocks of another size", "of another stream", "in another pool", "still used by a stream",
		"whole segments", "large enough"}[r]
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

// sortCached tells for each gap why the request could not use it.
func (s *contextScan) sortCached(sc *Context, a *caching.Allocator) {
	parts := make(map[CachedReason]*cachedPart)
	at := func(r CachedReason) *cachedPart {
		if parts[r] == nil {
			parts[r] = &cachedPart{reason: r, holders: make(map[int32]int64)}
		}
		return parts[r]
	}
	for seg := range a.Ranges() {
		s.sortSegment(sc, a, seg, at)
		sc.Expandable = sc.Expandable || seg.IsStretch()
	}
	for r := range LargeEnough + 1 {
		if p := parts[r]; p != nil {
			p.heldBy, p.holders = s.topHolder(p), nil
			sc.cached = append(sc.cached, *p)
		}
	}
	slices.SortStableFunc(sc.cached, func(a, b cachedPart) int { return cmp.Compare(b.bytes, a.bytes) })
}

func (s *contextScan) sortSegment(sc *Context, a *caching.Allocator, seg *caching.Segment, at func(CachedReason) *cachedPart) {
	empty := !seg.IsStretch() && seg.Used == 0
	counted := make(map[CachedReason]bool)
	var parts []*cachedPart
	var gaps, step int64
	if seg.IsStretch() {
		step = a.Step(seg)
	}
	for _, p := range a.Within(seg) {
		var part *cachedPart
		switch {
		case p.State == caching.IsAwaiting:
			part = at(Awaited)
		case p.State == caching.IsBlock:
			continue
		default:
			part = at(sc.reason(a, seg, p, empty))
			gaps += p.Size
			if !empty && p.Size < sc.size {
				sc.fragmented += p.Size
			}
			if empty {
				sc.whole += p.Size
			} else if seg.IsStretch() && !sc.given { // before it gives up, the allocator gives back what it can
				sc.whole += caching.WholeSteps(seg.Ptr, p.Ptr, p.Size, step)
			}
		}
		part.bytes += p.Size
		part.pieces++
		part.largest = max(part.largest, p.Size)
		if !counted[part.reason] {
			counted[part.reason] = true
			part.segments++
			parts = append(parts, part)
		}
	}
	if gaps == 0 || empty {
		return
	}
	for _, p := range a.Within(seg) {
		if p.State != caching.IsGap {
			for _, part := range parts {
				part.holders[p.Origin] += gaps
			}
		}
	}
}

// reason says why a gap is of no use to the request of a scene.
func (sc *Context) reason(a *caching.Allocator, seg *caching.Segment, p *caching.Piece, empty bool) CachedReason {
	small := a.Rules.Round(sc.Requested) <= caching.SmallRequest
	switch {
	case !sc.byAllocator && empty, empty && p.Size < sc.Requested:
		return GoesBack
	case !sc.byAllocator:
		return TooSmall // to the driver all pieces of segments in use are too small
	case p.Pool != sc.pool:
		return OtherPool
	case p.Stream != sc.stream:
		return OtherStream
	case !seg.IsStretch() && small != (seg.Size == caching.SmallSegment):
		return OtherClass
	case p.Size < sc.Requested:
		return TooSmall
	}
	return LargeEnough
}

// topHolder is the place whose blocks keep most of a part.
func (s *contextScan) topHolder(p *cachedPart) string {
	sites := make(map[string]int64)
	for origin, bytes := range p.holders {
		sites[s.t.BlockSite(origin)] += bytes
	}
	best := ""
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		if best == "" || sites[site] > sites[best] {
			best = site
		}
	}
	return best
}

// freeMemory is what is known of a device's free memory at a moment. Ages are positive
// for what was asked before it.
type freeMemory struct {
	bytes  int64
	ageNs  int64
	source string // "" is not known

	asked, askedAgeNs any // cuMemGetInfo
	nvml, nvmlAgeNs   any
	total             int64 // of the device; 0 not known
	others            any   // used by other processes
	othersNamed       []string
}

// fromAllocator is the source of numbers that PyTorch asked the driver for itself.
const fromAllocator = "the allocator"

// freeAt collects what is known, and takes the allocator's word before that of the
// nearest other.
func freeAt(t *timeline.Timeline, sc *Context) freeMemory {
	var f freeMemory
	take := func(bytes, ageNs int64, source string) {
		if f.source == "" || f.source != fromAllocator && max(ageNs, -ageNs) < max(f.ageNs, -f.ageNs) {
			f.bytes, f.ageNs, f.source = bytes, ageNs, source
		}
	}
	if sc.deviceFree >= 0 {
		take(sc.deviceFree, 0, fromAllocator)
	}
	if s, ok := askedNear(t, sc.device, sc.AtNs); ok {
		f.asked, f.askedAgeNs, f.total = s.FreeBytes, sc.AtNs-s.AtNs, s.TotalBytes
		take(s.FreeBytes, sc.AtNs-s.AtNs, "cuMemGetInfo")
	}
	index, paired := t.Facts.NVMLDevice(sc.pid, sc.device)
	if !paired {
		return f
	}
	if m, _, isMIG := t.Facts.MIGOf(sc.pid, sc.device); isMIG { // samples are of the whole GPU
		f.total = max(f.total, m.MemoryBytes)
	} else {
		f.total = max(f.total, t.Facts.Devices[index].TotalBytes)
		if s, ok := t.Facts.Nearest(catalog.MetricMemoryFree, index, sc.AtNs); ok {
			f.nvml, f.nvmlAgeNs = units.RoundInt(s.Value), sc.AtNs-s.AtNs
			take(units.RoundInt(s.Value), sc.AtNs-s.AtNs, "NVML")
		}
		otherProcesses(t, &f, sc, index)
	}
	// A sample may be from before the memory was filled: what calls tell bounds it.
	if most := max(0, f.total-sc.tracked); f.total > 0 && f.source != fromAllocator && (f.source == "" || most < f.bytes) {
		f.bytes, f.ageNs, f.source = most, 0, atMost
	}
	return f
}

// atMost is the source of a number that is only a bound.
const atMost = "the device's memory without what is known to be used: there is no more"

func otherProcesses(t *timeline.Timeline, f *freeMemory, sc *Context, index int32) {
	var sum int64
	for _, s := range t.Facts.ProcessesAt(index, sc.AtNs) {
		f.others = sum
		if s.Pid == sc.pid {
			continue
		}
		sum += units.RoundInt(s.Value)
		f.others = sum
		if name, _ := t.ProcessName(s.Pid); len(f.othersNamed) < 3 {
			f.othersNamed = append(f.othersNamed, fmt.Sprintf("%d %s %s", s.Pid, name, units.Bytes(units.RoundInt(s.Value))))
		}
	}
}

// askedNear returns the program's answer of cuMemGetInfo that is nearest to a moment.
func askedNear(t *timeline.Timeline, device int32, atNs int64) (best timeline.FreeSample, ok bool) {
	for _, s := range t.Free {
		if s.Device == device && (!ok || max(s.AtNs-atNs, atNs-s.AtNs) < max(best.AtNs-atNs, atNs-best.AtNs)) {
			best, ok = s, true
		}
	}
	return best, ok
}

// onDevice reports whether memory of a device was asked for.
func (sc *Context) onDevice() bool {
	return !ledger.IsHost(sc.memory) && sc.memory != format.MemoryManaged
}
