package caching

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// This file adds the blocks that an allocator had before the recording. The recorder read them from the memory of the
// process at a moment, between two events. So the model knows every block and segment from that moment on.

// EarlierState is the state of an allocator at a moment of the recording, as read from the memory of the process.
type EarlierState struct {
	Pid, Device int32
	AtNs        int64 // Unix ns. Events before it are in the state, later ones are not
	DurNs       int64 // how long the reading took, ns
	// Allocated and Reserved are the totals of the allocator's own statistics, bytes.
	Allocated, Reserved int64
	Segments            []EarlierSegment // in order of address
	// Refused is the reason why the state is unknown. Then all fields above but Pid and Device are 0. Device may be -1.
	Refused string
	// LimitBytes is the limit of reserved bytes that the program had set then; 0: none, or unknown.
	LimitBytes int64
	// Tries is the number of readings until the allocator did not change meanwhile.
	Tries int
	// IsRewound is set for the state at the start of the recording. It was computed from one that was read later: see
	// Rewind.
	IsRewound bool
	// IsReading is set for a reading in a recording that lacks events for part of the time: see gaps.go. With
	// IsRewound, it is the state when events were there again, computed from a reading soon after.
	IsReading bool
	// IsReported is set if the allocator is known only from its reported statistics: see reported.go.
	IsReported bool
}

// EarlierSegment is a segment or a mapped range of an expandable segment.
type EarlierSegment struct {
	Ptr, Bytes   int64
	Pool, Stream int64
	IsSmall      bool // for requests of at most MaxSmallRequestBytes bytes
	IsExpandable bool
	Blocks       []EarlierBlock // in order of address
}

// EarlierBlock is a block or a hole of a segment.
type EarlierBlock struct {
	Ptr, Bytes, Requested int64
	State                 PieceState
	IsPredicted           bool // Bytes follows from the allocator's rules: see SegmentPiece.agreed
}

// UseEarlierStates makes the set apply states. They must be in order of AtNs. A state from the start of the recording
// lets the model know all memory at once. The state that was read replaces it, and shows what the model missed.
func (s *AllocatorSet) UseEarlierStates(states []*EarlierState) { s.earlier = states }

// ApplyStatesBefore applies the states from before atNs (Unix ns). The caller calls it before it applies an event.
func (s *AllocatorSet) ApplyStatesBefore(atNs int64, consume ChangeConsumer) {
	for len(s.earlier) > 0 && s.earlier[0].AtNs <= atNs {
		state := s.earlier[0]
		s.earlier = s.earlier[1:]
		if state.Refused == "" {
			a := s.allocatorOf(s.numbers.NumberOf(AllocatorKey{state.Pid, state.Device}))
			a.applyEarlierState(state, consume)
		}
	}
}

// applyEarlierState replaces the model's pieces by those of a state. Blocks whose allocation was recorded keep its
// origin and time.
func (a *Allocator) applyEarlierState(state *EarlierState, consume ChangeConsumer) {
	if state.IsReported {
		a.Reports = true
	}
	e := AllocatorEvent{Op: OpStateRead, AtNs: state.AtNs, Allocated: state.Allocated, Reserved: state.Reserved}
	isUnseen := state.IsReading && (a.isStale || a.WasRead() || a.IsRecordedFromStart())
	switch {
	case state.IsReading && (state.IsRewound || a.isStale): // takeReadTotals sets them
	case state.IsRewound: // the next event has the totals
		a.IsRewound = true
	case a.Reports:
		a.compareReportedTotals(&e, 0)
	default:
		a.compareTotals(&e, NoPiece, consume)
	}
	a.change = AllocatorChange{Op: OpStateRead, AtNs: state.AtNs, Origin: origin.NoOrigin}
	consume(a, &a.change)
	kept := a.findEqualSegments(state)
	recorded := a.takeRecordedBlocks(state, kept, consume)
	segments := a.clearPieces(kept)
	var totals AllocatorTotals
	for i := range state.Segments {
		s := &state.Segments[i]
		totals = totals.AddTotals(s.totals())
		if kept.segments[s.Ptr] {
			continue
		}
		if a.Reports {
			a.addReportedSegment(s, recorded)
		} else {
			a.addEarlierSegment(s, recorded, segments[s.Ptr], isUnseen)
		}
	}
	if a.Reports { // it reports neither streams nor segments
		totals.Active, totals.Requested = totals.Allocated, totals.Allocated
		totals.InactiveSplit, totals.Segments = 0, 0
	}
	a.takeReadTotals(state, totals)
	if state.IsReading {
		a.hasReading = true
		a.emitResizedBlocks(recorded, kept, consume)
	} else {
		a.Earlier = state
	}
	a.emitFoundBlocks(recorded, kept, state.AtNs, isUnseen, consume)
}

// emitFoundBlocks passes the blocks of a new state from atNs (Unix ns) to consume, without those that were known
// before. With isUnseen, they are not from before the recording.
func (a *Allocator) emitFoundBlocks(
	known map[int64]SegmentPiece,
	kept *keptSegments,
	atNs int64,
	isUnseen bool,
	consume ChangeConsumer,
) {
	for i := range a.Pieces {
		p := &a.Pieces[i]
		if _, isKnown := known[p.Ptr]; isKnown || !p.IsEarlier || kept.hasPiece(i) {
			continue
		}
		if isUnseen {
			p.IsEarlier, p.IsUnseen, p.SinceNs = false, true, atNs
			a.Counts.UnseenBlocks++
		}
		a.change = AllocatorChange{
			Op: OpBlockFound, AtNs: atNs, Block: *p, Origin: origin.NoOrigin, IsUnseen: isUnseen,
		}
		consume(a, &a.change)
	}
}

// takeRecordedBlocks returns the live blocks of the model that are in the state, without those of kept segments. The
// frees of others were not recorded.
func (a *Allocator) takeRecordedBlocks(
	state *EarlierState,
	kept *keptSegments,
	consume ChangeConsumer,
) map[int64]SegmentPiece {
	live := state.blocksInUse(kept)
	recorded := make(map[int64]SegmentPiece)
	for i := range a.Pieces {
		p := &a.Pieces[i]
		// Of some unseen blocks, only the free was recorded.
		if p.State == PieceHole || p.IsUnseen && p.SinceNs == 0 || kept.hasPiece(i) {
			continue
		}
		if b, ok := live[p.Ptr]; ok && a.mayBeSame(state, &b, p) {
			if b.State == PieceAwaitsStream && p.State == PieceBlock && state.IsReading {
				a.takeAwaiting(p, state.AtNs, consume)
			}
			recorded[p.Ptr] = *p
			continue
		}
		a.endLostBlock(p, state.AtNs, consume)
	}
	return recorded
}

// placedBlock is a block of a state, with the segment that contains it.
type placedBlock struct {
	*EarlierBlock
	segment *EarlierSegment
}

// blocksInUse returns the blocks of a state by address, without those of kept segments.
func (s *EarlierState) blocksInUse(kept *keptSegments) map[int64]placedBlock {
	live := make(map[int64]placedBlock)
	for i := range s.Segments {
		segment := &s.Segments[i]
		if kept.segments[segment.Ptr] {
			continue
		}
		for k := range segment.Blocks {
			if b := &segment.Blocks[k]; b.State != PieceHole {
				live[b.Ptr] = placedBlock{b, segment}
			}
		}
	}
	return live
}

// mayBeSame reports whether a block of a state may be the live block p of the model. A block that was freed and
// allocated again at its address with the same properties looks the same.
func (a *Allocator) mayBeSame(state *EarlierState, b *placedBlock, p *SegmentPiece) bool {
	switch {
	case a.Reports && b.Bytes == p.Size:
		return true
	case !state.IsReading:
		return b.Requested == p.Requested
	}
	return b.Requested == p.Requested && b.segment.Pool == p.Pool && b.segment.Stream == p.Stream &&
		(b.Bytes == p.Size || !p.agreed) && (b.State == p.State || p.State == PieceBlock)
}

// clearPieces removes all pieces and segments but the kept ones. It returns the segments that it removed, by address.
func (a *Allocator) clearPieces(kept *keptSegments) map[int64]AllocatorSegment {
	removed := make(map[int64]AllocatorSegment)
	for ptr, n := range a.Began {
		if !kept.segments[ptr] {
			removed[ptr] = a.Segments[n]
		}
	}
	if len(kept.segments) > 0 {
		a.clearOtherPieces(kept, removed)
		return removed
	}
	for i := range a.Pieces {
		a.at.Delete(a.Pieces[i].Ptr)
	}
	a.Pieces, a.spare, a.Segments, a.idle, a.holes = a.Pieces[:0], a.spare[:0], a.Segments[:0], a.idle[:0], a.holes[:0]
	clear(a.Began)
	clear(a.ends)
	a.holesSorted = false
	a.Check.pending = NoPiece
	return removed
}

// addEarlierSegment adds a segment with its pieces. known is the same segment if the model has it. isUnseen says that
// another one is not from before the recording.
func (a *Allocator) addEarlierSegment(
	s *EarlierSegment,
	recorded map[int64]SegmentPiece,
	known AllocatorSegment,
	isUnseen bool,
) {
	segment := AllocatorSegment{Ptr: s.Ptr, Pool: s.Pool, Origin: origin.NoOrigin}
	if known.Ptr != 0 && known.IsMappedRange() == s.IsExpandable {
		segment.Origin, segment.SinceNs, segment.IsUnseen = known.Origin, known.SinceNs, known.IsUnseen
	} else {
		segment.IsUnseen = isUnseen
	}
	if !s.IsExpandable {
		segment.Size, segment.Used = s.Bytes, s.usedBytes()
	}
	n := a.newSegment(segment)
	if s.IsExpandable {
		n = expandableSegmentIndex
	}
	last := int32(NoPiece)
	for i := range s.Blocks {
		p := newEarlierPiece(s, &s.Blocks[i], recorded)
		p.Segment, p.prev = n, last
		k := a.newPiece(p)
		if last != NoPiece {
			a.Pieces[last].next = k
		}
		last = k
	}
	if s.IsExpandable && last != NoPiece {
		a.ends[s.Ptr+s.Bytes] = last
	}
}

// addReportedSegment adds the blocks of a segment of an allocator that is known only from its reported statistics.
func (a *Allocator) addReportedSegment(s *EarlierSegment, recorded map[int64]SegmentPiece) {
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.State == PieceBlock {
			p := newEarlierPiece(s, b, recorded)
			p.Requested, p.Segment = p.Size, UnrecordedSegmentIndex
			a.newPiece(p)
		}
	}
}

// newEarlierPiece returns a piece of a segment.
func newEarlierPiece(s *EarlierSegment, b *EarlierBlock, recorded map[int64]SegmentPiece) SegmentPiece {
	p := SegmentPiece{
		Ptr: b.Ptr, Size: b.Bytes, Requested: b.Requested, Pool: s.Pool, Stream: s.Stream, Origin: origin.NoOrigin,
		State: b.State, prev: NoPiece, next: NoPiece, agreed: !b.IsPredicted, IsEarlier: b.State != PieceHole,
	}
	if known, ok := recorded[b.Ptr]; ok && b.State != PieceHole {
		p.Origin, p.SinceNs, p.IsEarlier, p.IsUnseen = known.Origin, known.SinceNs, known.IsEarlier, known.IsUnseen
	}
	return p
}

// usedBytes returns the bytes of the segment's blocks.
func (s *EarlierSegment) usedBytes() (bytes int64) {
	for i := range s.Blocks {
		if s.Blocks[i].State != PieceHole {
			bytes += s.Blocks[i].Bytes
		}
	}
	return bytes
}

// totals returns the totals of one segment.
func (s *EarlierSegment) totals() (t AllocatorTotals) {
	t.Reserved = s.Bytes
	if !s.IsExpandable {
		t.Segments = 1
		t.InactiveSplit = (&AllocatorSegment{Size: s.Bytes, Used: s.usedBytes()}).strandedBytes()
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == PieceHole {
			continue
		}
		t.Active += b.Bytes
		t.Requested += b.Requested
		if b.State == PieceBlock {
			t.Allocated += b.Bytes
			t.Allocations++
		}
	}
	return t
}

// subtract returns the difference of two totals, field by field.
func (a AllocatorTotals) subtract(b AllocatorTotals) AllocatorTotals {
	return AllocatorTotals{
		a.Allocated - b.Allocated, a.Requested - b.Requested, a.Reserved - b.Reserved, a.Active - b.Active,
		a.InactiveSplit - b.InactiveSplit, a.Segments - b.Segments, a.Allocations - b.Allocations,
	}
}
