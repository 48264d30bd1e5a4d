package oom

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// cachedMemoryPart is unused memory of a caching allocator that a failed request could not use for
// one reason.
type cachedMemoryPart struct {
	reason                 CachedReason
	bytes, pieces, largest int64           // total size, number of holes, size of the largest hole
	segments               int64           // number of segments with such holes
	holders                map[int32]int64 // by origin of a block: bytes of holes in its segments
	heldBy                 string          // call site with the most such bytes
}

// CachedReason is the reason why a request could not use cached memory of a caching allocator.
type CachedReason uint8

const (
	CachedTooSmall       CachedReason = iota // no hole of the right pool and stream is large enough for the request
	CachedOtherSizeClass                     // the holes are in segments for another size class
	CachedOtherStream                        // the cached memory is reserved for another stream
	CachedOtherPool                          // the cached memory is in another pool
	CachedUsedByStream                       // the program freed the block, but a CUDA stream still uses it
	CachedWholeSegment                       // a whole unused segment, which returns to the driver before a retry
	CachedLargeEnough                        // no reason: a hole is large enough for the request
)

func (r CachedReason) String() string {
	return [...]string{
		"too small pieces", "for blocks of another size", "of another stream", "in another pool", "still used by a " +
			"stream",
		"whole segments", "large enough",
	}[r]
}

// classifyCachedMemory sets Context.cached: the holes of an allocator, grouped by reason.
func (s *contextScan) classifyCachedMemory(sc *FailureContext, a *caching.Allocator) {
	parts := make(map[CachedReason]*cachedMemoryPart)
	at := func(r CachedReason) *cachedMemoryPart {
		if parts[r] == nil {
			parts[r] = &cachedMemoryPart{reason: r, holders: make(map[int32]int64)}
		}
		return parts[r]
	}
	for seg := range a.SegmentsInOrder() {
		s.classifySegment(sc, a, seg, at)
		sc.Expandable = sc.Expandable || seg.IsMappedRange()
	}
	for r := range CachedLargeEnough + 1 {
		if p := parts[r]; p != nil {
			p.heldBy, p.holders = s.topHolderSite(p), nil
			sc.cached = append(sc.cached, *p)
		}
	}
	slices.SortStableFunc(sc.cached, func(a, b cachedMemoryPart) int { return cmp.Compare(b.bytes, a.bytes) })
}

// classifySegment adds the holes of a segment to the parts that at returns.
func (s *contextScan) classifySegment(
	sc *FailureContext,
	a *caching.Allocator,
	seg *caching.AllocatorSegment,
	at func(CachedReason) *cachedMemoryPart,
) {
	empty := !seg.IsMappedRange() && seg.Used == 0
	counted := make(map[CachedReason]bool)
	var parts []*cachedMemoryPart
	var gaps, step int64
	if seg.IsMappedRange() {
		step = a.MappingStepBytes(seg)
	}
	for _, p := range a.PiecesWithin(seg) {
		var part *cachedMemoryPart
		switch {
		case p.State == caching.PieceAwaitsStream:
			part = at(CachedUsedByStream)
		case p.State == caching.PieceBlock:
			continue
		default:
			part = at(sc.cachedReason(a, seg, p, empty))
			gaps += p.Size
			if !empty && p.Size < sc.roundedSize {
				sc.fragmented += p.Size
			}
			if empty {
				sc.returnable += p.Size
			} else if seg.IsMappedRange() && !sc.abandoned { // an abandoned request has already unmapped these
				sc.returnable += caching.WholeStepBytes(seg.Ptr, p.Ptr, p.Size, step)
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
	for _, p := range a.PiecesWithin(seg) {
		if p.State != caching.PieceHole {
			for _, part := range parts {
				part.holders[holderOf(p)] += gaps
			}
		}
	}
}

// cachedReason returns the reason why the request could not use a hole p. empty means that the
// segment has no blocks.
func (c *FailureContext) cachedReason(
	a *caching.Allocator,
	seg *caching.AllocatorSegment,
	p *caching.SegmentPiece,
	empty bool,
) CachedReason {
	small := a.Rules.RoundBlockSize(c.Requested) <= caching.MaxSmallRequestBytes
	switch {
	case !c.byAllocator && empty, empty && p.Size < c.Requested:
		return CachedWholeSegment
	case !c.byAllocator:
		return CachedTooSmall // the driver cannot use holes of segments in use
	case p.Pool != c.pool:
		return CachedOtherPool
	case p.Stream != c.stream:
		return CachedOtherStream
	case !seg.IsMappedRange() && small != (seg.Size == caching.SmallSegmentBytes):
		return CachedOtherSizeClass
	case p.Size < c.Requested:
		return CachedTooSmall
	}
	return CachedLargeEnough
}

// unseenHolder replaces the origin of blocks whose allocation was not recorded.
const unseenHolder = origin.NoOrigin - 1

// holderOf returns the origin of a block, or unseenHolder.
func holderOf(p *caching.SegmentPiece) int32 {
	if p.IsUnseen {
		return unseenHolder
	}
	return p.Origin
}

// topHolderSite returns the call site whose blocks strand most of a part.
func (s *contextScan) topHolderSite(p *cachedMemoryPart) string {
	sites := make(map[string]int64)
	for holder, bytes := range p.holders {
		site := origin.UnseenSite
		if holder != unseenHolder {
			site = s.t.SiteOfBlock(holder)
		}
		sites[site] += bytes
	}
	best := ""
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		if best == "" || sites[site] > sites[best] {
			best = site
		}
	}
	return best
}
