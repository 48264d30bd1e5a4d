package caching

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
)

// This file models allocators whose events were recorded for part of the time only. In a gap the model keeps its last
// state. A reading of the allocator's memory replaces it, in a gap or after it: see EarlierState.IsReading. Between a
// gap and the next reading the model is stale: the totals of the first event are taken over, and what the gap
// explains counts as unseen and not as lost.

// UseGaps makes the set know the times without events, in order of time. A later call may add later gaps.
func (s *AllocatorSet) UseGaps(gaps []query.Window) { s.gaps = gaps }

// enterGaps makes all allocators stale if a gap began at or before atNs, Unix ns. Times must not decrease.
func (s *AllocatorSet) enterGaps(atNs int64) {
	for s.gapsBegun < len(s.gaps) && s.gaps[s.gapsBegun].FromNs <= atNs {
		s.gapsBegun++
		for _, a := range s.List {
			if a != nil {
				a.setStale()
			}
		}
	}
}

// isInGap reports whether atNs, Unix ns, is in the last gap that began.
func (s *AllocatorSet) isInGap(atNs int64) bool {
	return s.gapsBegun > 0 && atNs < s.gaps[s.gapsBegun-1].ToNs
}

// setStale marks the model as one that lacks events.
func (a *Allocator) setStale() {
	a.isStale = true
	a.Check.pending = NoPiece
	a.Check.takesOver = a.Check.Known
}

// IsStale reports whether events were not recorded since the model was last known to have all blocks.
func (a *Allocator) IsStale() bool { return a.isStale }

// ApplyReading applies a reading of an allocator: a state with IsReading. Readings must come in order of AtNs, and a
// caller calls it before it applies later events.
func (s *AllocatorSet) ApplyReading(state *EarlierState, consume ChangeConsumer) {
	s.ApplyStatesBefore(state.AtNs, consume)
	s.enterGaps(state.AtNs)
	a := s.allocatorOf(s.numbers.NumberOf(AllocatorKey{state.Pid, state.Device}))
	a.applyEarlierState(state, consume)
	if a.isStale = s.isInGap(state.AtNs); a.isStale {
		a.setStale()
	}
}

// countLostFree counts a block or a segment whose end was not recorded.
func (a *Allocator) countLostFree() {
	if a.isStale {
		a.Counts.UnseenFrees++
	} else {
		a.Counts.LostFrees++
	}
}

// takeAwaiting ends the program's use of a known block that a reading shows as freed and still used by a stream.
func (a *Allocator) takeAwaiting(p *SegmentPiece, atNs int64, consume ChangeConsumer) {
	a.change = AllocatorChange{
		Op: OpBlockFreeRequested, AtNs: atNs, Block: *p, Origin: origin.NoOrigin, IsUnseen: a.isStale,
	}
	consume(a, &a.change)
	a.countLostFree()
	p.State = PieceAwaitsStream
}

// takeReadTotals takes over the totals of a reading, which the model computes from its blocks. Before stays: it is the
// memory from before the recording.
func (a *Allocator) takeReadTotals(state *EarlierState, totals AllocatorTotals) {
	if !state.IsReading || !a.WasRead() && !a.isStale && !a.IsRecordedFromStart() {
		a.Before = totals.subtract(a.Seen)
		return
	}
	a.Check.Known = [2]bool{true, true}
	a.Seen = totals.subtract(a.Before)
}

// emitResizedBlocks passes known blocks whose size a reading shows to be another one to consume.
func (a *Allocator) emitResizedBlocks(
	known map[int64]SegmentPiece,
	kept *keptSegments,
	consume ChangeConsumer,
) {
	for i := range a.Pieces {
		p := &a.Pieces[i]
		if p.State == PieceHole || kept.hasPiece(i) {
			continue
		}
		if old, isKnown := known[p.Ptr]; isKnown && old.Size != p.Size {
			a.Check.Resized++
			a.change = AllocatorChange{
				Op: OpBlockResized, AtNs: p.SinceNs, Block: *p, oldSize: old.Size, Origin: origin.NoOrigin,
			}
			consume(a, &a.change)
		}
	}
}
