package oom

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
)

// cachedPart is unused memory of a caching allocator, and the reason why a request could not use it.
type cachedPart struct {
	reason                 CachedReason
	bytes, pieces, largest int64
	segments               int64
	holders                map[int32]int64 // bytes of gaps in the segments of blocks, by their origin
	heldBy                 string          // call site with most of these bytes
}

// CachedReason says why a request could not use memory of a caching allocator.
type CachedReason uint8

const (
	TooSmall    CachedReason = iota // no piece of the right pool and stream is large enough
	OtherClass                      // its segments are for blocks of another size class
	OtherStream                     // it is for another stream
	OtherPool                       // it is in another pool
	Awaited                         // the program freed it, but a stream still uses it
	GoesBack                        // whole segments: they go back to the driver before a retry
	LargeEnough                     // none: a piece is large enough
)

func (r CachedReason) String() string {
	return [...]string{
		"too small pieces", "for blocks of another size", "of another stream", "in another pool", "still used by a " +
			"stream",
		"whole segments", "large enough",
	}[r]
}

// sortCached sets Context.cached: the gaps of an allocator by reason.
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

// sortSegment adds the gaps of a segment to the parts that at returns.
func (s *contextScan) sortSegment(
	sc *Context,
	a *caching.Allocator,
	seg *caching.Segment,
	at func(CachedReason) *cachedPart,
) {
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
			} else if seg.IsStretch() && !sc.abandoned { // before it gives up, the allocator gives back what it can
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
		if p.State != caching.IsHole {
			for _, part := range parts {
				part.holders[p.Origin] += gaps
			}
		}
	}
}

// reason returns why the request could not use a gap; empty means that its segment has no blocks.
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

// topHolder returns the call site whose blocks keep most of a part.
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
