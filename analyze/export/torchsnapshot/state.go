package torchsnapshot

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// Segments from before the recording
//
// If an allocator was active before the recording began, the recording lacks the allocation of its
// older segments. The model then has blocks without a segment, called strays, but viewers need
// every block in a segment. So the snapshot infers segments from strays: where a block was at any
// time of the recording, there must be a segment, unless a newer segment was allocated at that
// address. The free of an old segment shows its exact bounds, and the free of an old block shows
// the block. Both then apply to all earlier moments.

// addressRange is a contiguous range of addresses of an allocator.
type addressRange struct {
	from, to     int64 // addresses; to is exclusive
	stream, pool int64
	expandable   bool
}

func (r addressRange) bytes() int64 { return r.to - r.from }

// addressRanges are stretches that do not overlap, in order of address.
type addressRanges []addressRange

// findOverlaps returns the range of indexes of the stretches that overlap or touch the addresses
// from to to.
func (r addressRanges) findOverlaps(from, to int64) (first, end int) {
	first, _ = slices.BinarySearchFunc(r, from, func(s addressRange, at int64) int { return cmp.Compare(s.to, at) })
	for end = first; end < len(r) && r[end].from <= to; end++ {
	}
	return first, end
}

// uncoveredParts returns the parts of s that no stretch of l covers.
func (r addressRanges) uncoveredParts(s addressRange) addressRanges {
	var left addressRanges
	first, end := r.findOverlaps(s.from, s.to)
	for _, o := range r[first:end] {
		if o.from > s.from {
			part := s
			part.to = o.from
			left = append(left, part)
		}
		s.from = max(s.from, o.to)
	}
	if s.from < s.to {
		left = append(left, s)
	}
	return left
}

// addRange adds the parts of s that are not yet in l. It merges stretches that touch and have the
// same stream, pool and kind.
func (r *addressRanges) addRange(s addressRange) {
	for _, part := range r.uncoveredParts(s) {
		first, end := r.findOverlaps(part.from, part.to)
		list := slices.Clone((*r)[first:end])
		list = append(list, part)
		slices.SortFunc(list, func(a, b addressRange) int { return cmp.Compare(a.from, b.from) })
		merged := list[:1]
		for _, next := range list[1:] {
			last := &merged[len(merged)-1]
			same := next
			same.from, same.to = last.from, last.to
			if last.to == next.from && *last == same {
				last.to = next.to
			} else {
				merged = append(merged, next)
			}
		}
		*r = slices.Replace(*r, first, end, merged...)
	}
}

// removeRange removes a range of addresses.
func (r *addressRanges) removeRange(from, to int64) {
	first, end := r.findOverlaps(from, to)
	var left addressRanges
	for _, s := range (*r)[first:end] {
		left = append(left, addressRanges{{from: from, to: to}}.uncoveredParts(s)...)
	}
	*r = slices.Replace(*r, first, end, left...)
}

// snapshotSegment is a segment, or a contiguous part of an expandable segment, with its blocks and
// gaps in order of address.
type snapshotSegment struct {
	addressRange
	origin int32 // origin of the allocation; origin.NoOrigin if unknown
	pieces []caching.SegmentPiece

	isEarlier bool // the segment is from before the recording, and was read from the process
	isUnseen  bool // the allocation of the segment was not recorded: see caching.AllocatorSegment
}

// snapshotDevice is the state of one allocator at the moment of a snapshot.
type snapshotDevice struct {
	firstNs  int64 // time of the allocator's first event, Unix ns
	hasState bool  // copyState was called
	totals   caching.AllocatorTotals
	segments []snapshotSegment      // in order of address
	strays   []caching.SegmentPiece // blocks without a segment
	old      addressRanges          // memory from before the recording that strays show
	oldWhole addressRanges          // segments from before the recording that were freed after the moment
	newer    addressRanges          // memory that was allocated after the moment
	events   int64                  // number of events of the trace
	leftOut  int64                  // number of older events that are not written

	reports          bool  // the recording has only the allocator's reports: see format.SourceReports
	inferred         int64 // bytes of the segments that were inferred from old
	inferredSegments int64 // number of these segments
}

// listSegments returns the segments of a device. d may be nil.
func (d *snapshotDevice) listSegments() []snapshotSegment {
	if d == nil {
		return nil
	}
	return d.segments
}

// snapshotScan collects the state of a process's allocators.
type snapshotScan struct {
	s       *Snapshot
	devices map[*caching.Allocator]*snapshotDevice
}

// consumeChange follows one change of an allocator. It copies the state before the first change
// after the moment.
func (scan *snapshotScan) consumeChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if !scan.s.includesAllocator(a.Pid, a.Device) || c.Op == caching.OpBlockResized {
		return
	}
	d := scan.devices[a]
	if d == nil {
		d = &snapshotDevice{firstNs: c.AtNs, reports: a.Reports}
		scan.devices[a] = d
	}
	if !d.hasState && c.AtNs > scan.s.AtNs {
		d.copyState(a)
	}
	switch c.Op {
	case caching.OpBlockFreeRequested, caching.OpBlockFreeCompleted, caching.OpBlockLost:
		d.noteBlockEnd(c)
	case caching.OpSegmentAllocated, caching.OpSegmentMapped:
		if s := (addressRange{from: c.Ptr, to: c.Ptr + c.Bytes}); d.hasState {
			d.newer.addRange(s)
		} else {
			d.old.removeRange(s.from, s.to)
		}
	case caching.OpSegmentFreed, caching.OpSegmentUnmapped:
		d.noteSegmentEnd(a, c)
	case caching.OpStateRead:
		if !d.hasState {
			d.old = nil // the model knows all memory from now on
		}
	case caching.OpAllocatorEnd:
		d.endAllocator(a)
	}
}

// copyState copies the present totals, segments and strays of an allocator.
func (d *snapshotDevice) copyState(a *caching.Allocator) {
	d.hasState = true
	d.totals = a.Seen
	for s := range a.SegmentsInOrder() {
		g := snapshotSegment{
			addressRange: addressRange{from: s.Ptr, to: s.Ptr, pool: s.Pool, expandable: s.IsMappedRange()},
			origin:       s.Origin,
			isEarlier:    a.Earlier != nil && s.SinceNs == 0 && !s.IsUnseen,
			isUnseen:     s.IsUnseen,
		}
		for _, p := range a.PiecesWithin(s) {
			g.pieces = append(g.pieces, *p)
			g.to = p.Ptr + p.Size
		}
		if len(g.pieces) > 0 {
			g.stream = g.pieces[0].Stream
			d.segments = append(d.segments, g)
		}
	}
	a.EachLiveBlock(func(p *caching.SegmentPiece) {
		if p.Segment == caching.UnrecordedSegmentIndex {
			d.strays = append(d.strays, *p)
		}
	})
}

// noteBlockEnd follows the free or the loss of a block. A stray shows where memory from before the
// recording is. If the free is after the moment, the stray was allocated at the moment.
func (d *snapshotDevice) noteBlockEnd(c *caching.AllocatorChange) {
	b := c.Block
	if b.Segment != caching.UnrecordedSegmentIndex {
		return
	}
	d.addStrayBlock(&b)
	if !d.hasState || b.Origin != origin.NoOrigin || b.State != caching.PieceBlock {
		return
	}
	if c.Op == caching.OpBlockFreeCompleted { // the free was requested before the recording
		b.State = caching.PieceAwaitsStream
	}
	d.strays = append(d.strays, b)
}

// addStrayBlock adds the addresses of a stray to the memory from before the recording.
func (d *snapshotDevice) addStrayBlock(p *caching.SegmentPiece) {
	block := addressRange{from: p.Ptr, to: p.Ptr + p.Size, stream: p.Stream, pool: p.Pool}
	for _, part := range d.newer.uncoveredParts(block) {
		d.old.addRange(part)
	}
}

// noteSegmentEnd follows the free of a segment. If the segment is from before the recording and the
// free is after the moment, the free shows the segment's exact bounds.
func (d *snapshotDevice) noteSegmentEnd(a *caching.Allocator, c *caching.AllocatorChange) {
	switch {
	case !d.hasState:
		d.old.removeRange(c.Ptr, c.Ptr+c.Bytes)
	case !isAllocationRecorded(a, c):
		s := addressRange{from: c.Ptr, to: c.Ptr + c.Bytes, expandable: c.Op == caching.OpSegmentUnmapped}
		if first, end := d.old.findOverlaps(s.from+1, s.to-1); first < end {
			s.stream, s.pool = d.old[first].stream, d.old[first].pool
		}
		for _, part := range d.newer.uncoveredParts(s) {
			d.oldWhole = append(d.oldWhole, d.oldWhole.uncoveredParts(part)...)
		}
		slices.SortFunc(d.oldWhole, func(a, b addressRange) int { return cmp.Compare(a.from, b.from) })
	}
}

// isAllocationRecorded reports whether the recording has the allocation of a segment, or of a part
// of one, that is freed by c.
func isAllocationRecorded(a *caching.Allocator, c *caching.AllocatorChange) bool {
	if c.Op == caching.OpSegmentFreed {
		n, ok := a.Began[c.Ptr]
		return ok && !a.Segments[n].IsMappedRange()
	}
	i := a.HoleAt(c.Ptr)
	return i != caching.NoPiece && a.Pieces[i].Ptr+a.Pieces[i].Size >= c.Ptr+c.Bytes
}

// endAllocator copies the state, unless that was done before, and adds the remaining strays.
func (d *snapshotDevice) endAllocator(a *caching.Allocator) {
	if !d.hasState {
		d.copyState(a)
	}
	a.EachLiveBlock(func(p *caching.SegmentPiece) {
		if p.Segment == caching.UnrecordedSegmentIndex {
			d.addStrayBlock(p)
		}
	})
}

// setDevices sets the devices of the snapshot. If a process had several allocators for a device,
// because it executed another program, the snapshot has the last one that began before the moment.
func (scan *snapshotScan) setDevices(all *caching.AllocatorSet) {
	all.EachAllocator(func(a *caching.Allocator) {
		d := scan.devices[a]
		if d == nil {
			return
		}
		if !slices.Contains(all.Ended, a) {
			d.endAllocator(a)
		}
		d.totals = d.totals.AddTotals(a.Before)
		for int(a.Device) >= len(scan.s.devices) {
			scan.s.devices = append(scan.s.devices, nil)
		}
		if a.Device < 0 {
			return
		}
		if scan.s.devices[a.Device] == nil || d.firstNs <= scan.s.AtNs {
			scan.s.devices[a.Device] = d
		}
	})
	for _, d := range scan.s.devices {
		if d != nil {
			d.addOldSegments()
		}
	}
}

// addOldSegments adds the segments from before the recording: those with exact bounds, then
// inferred ones.
func (d *snapshotDevice) addOldSegments() {
	var covered addressRanges
	for i := range d.segments {
		covered = append(covered, d.segments[i].addressRange)
	}
	slices.SortFunc(d.strays, func(a, b caching.SegmentPiece) int { return cmp.Compare(a.Ptr, b.Ptr) })
	d.fillSegmentGaps()
	for i, list := range []addressRanges{d.oldWhole, d.old} {
		var parts addressRanges
		for _, s := range list {
			parts = append(parts, covered.uncoveredParts(s)...)
		}
		for _, part := range parts {
			d.segments = append(
				d.segments,
				snapshotSegment{addressRange: part, origin: origin.NoOrigin, pieces: d.straysAndGaps(part)},
			)
			if i > 0 {
				d.inferred += part.bytes()
				d.inferredSegments++
			}
		}
		covered = append(covered, parts...)
		slices.SortFunc(covered, func(a, b addressRange) int { return cmp.Compare(a.from, b.from) })
	}
	slices.SortFunc(d.segments, func(a, b snapshotSegment) int { return cmp.Compare(a.from, b.from) })
}

// fillSegmentGaps moves strays into the gaps of segments. Because of lost events, the model can
// have a block outside of the segment to which its address belongs.
func (d *snapshotDevice) fillSegmentGaps() {
	if len(d.strays) == 0 {
		return
	}
	for i := range d.segments {
		var list []caching.SegmentPiece
		for _, p := range d.segments[i].pieces {
			if p.State == caching.PieceHole {
				list = append(list, d.straysAndGaps(addressRange{from: p.Ptr, to: p.Ptr + p.Size})...)
			} else {
				list = append(list, p)
			}
		}
		d.segments[i].pieces = list
	}
}

// straysAndGaps returns the strays in a stretch, and the gaps between them, in order of address.
func (d *snapshotDevice) straysAndGaps(s addressRange) []caching.SegmentPiece {
	var list []caching.SegmentPiece
	at := s.from
	gap := func(to int64) {
		if to > at {
			list = append(list, caching.SegmentPiece{Ptr: at, Size: to - at, Origin: origin.NoOrigin})
		}
	}
	first, _ := slices.BinarySearchFunc(
		d.strays,
		s.from,
		func(p caching.SegmentPiece, from int64) int { return cmp.Compare(p.Ptr, from) },
	)
	for _, p := range d.strays[first:] {
		if p.Ptr+p.Size > s.to {
			break
		}
		if p.Ptr >= at {
			gap(p.Ptr)
			list = append(list, p)
			at = p.Ptr + p.Size
		}
	}
	gap(s.to)
	return list
}
