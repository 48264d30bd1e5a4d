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

// stretch is a contiguous range of addresses of an allocator.
type stretch struct {
	from, to     int64 // addresses; to is exclusive
	stream, pool int64
	expandable   bool
}

func (s stretch) bytes() int64 { return s.to - s.from }

// stretches are stretches that do not overlap, in order of address.
type stretches []stretch

// around returns the range of indexes of the stretches that overlap or touch the addresses from to
// to.
func (l stretches) around(from, to int64) (first, end int) {
	first, _ = slices.BinarySearchFunc(l, from, func(s stretch, at int64) int { return cmp.Compare(s.to, at) })
	for end = first; end < len(l) && l[end].from <= to; end++ {
	}
	return first, end
}

// without returns the parts of s that no stretch of l covers.
func (l stretches) without(s stretch) stretches {
	var left stretches
	first, end := l.around(s.from, s.to)
	for _, o := range l[first:end] {
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

// add adds the parts of s that are not yet in l. It merges stretches that touch and have the same
// stream, pool and kind.
func (l *stretches) add(s stretch) {
	for _, part := range l.without(s) {
		first, end := l.around(part.from, part.to)
		list := slices.Clone((*l)[first:end])
		list = append(list, part)
		slices.SortFunc(list, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
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
		*l = slices.Replace(*l, first, end, merged...)
	}
}

// remove removes a range of addresses.
func (l *stretches) remove(from, to int64) {
	first, end := l.around(from, to)
	var left stretches
	for _, s := range (*l)[first:end] {
		left = append(left, stretches{{from: from, to: to}}.without(s)...)
	}
	*l = slices.Replace(*l, first, end, left...)
}

// snapshotSegment is a segment, or a contiguous part of an expandable segment, with its blocks and
// gaps in order of address.
type snapshotSegment struct {
	stretch
	origin int32 // origin of the allocation; origin.None if unknown
	pieces []caching.Piece
}

// snapshotDevice is the state of one allocator at the moment of a snapshot.
type snapshotDevice struct {
	firstNs  int64 // time of the allocator's first event, Unix ns
	hasState bool  // copyState was called
	totals   caching.Totals
	segments []snapshotSegment // in order of address
	strays   []caching.Piece   // blocks without a segment
	old      stretches         // memory from before the recording that strays show
	oldWhole stretches         // segments from before the recording that were freed after the moment
	newer    stretches         // memory that was allocated after the moment
	events   int64             // number of events of the trace
	leftOut  int64             // number of older events that are not written

	reports          bool  // the recording has only the allocator's reports: see format.SourceReports
	inferred         int64 // bytes of the segments that were inferred from old
	inferredSegments int64 // number of these segments
}

// list returns the segments of a device. d may be nil.
func (d *snapshotDevice) list() []snapshotSegment {
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

// step follows one change of an allocator. It copies the state before the first change after the
// moment.
func (n *snapshotScan) step(a *caching.Allocator, c *caching.Change) {
	if !n.s.wants(a.Pid, a.Device) || c.Op == caching.BlockResized {
		return
	}
	d := n.devices[a]
	if d == nil {
		d = &snapshotDevice{firstNs: c.AtNs, reports: a.Reports}
		n.devices[a] = d
	}
	if !d.hasState && c.AtNs > n.s.AtNs {
		d.copyState(a)
	}
	switch c.Op {
	case caching.BlockFreeRequested, caching.BlockFreeCompleted, caching.BlockLost:
		d.blockEnds(c)
	case caching.SegmentAllocated, caching.SegmentMapped:
		if s := (stretch{from: c.Ptr, to: c.Ptr + c.Bytes}); d.hasState {
			d.newer.add(s)
		} else {
			d.old.remove(s.from, s.to)
		}
	case caching.SegmentFreed, caching.SegmentUnmapped:
		d.segmentEnds(a, c)
	case caching.AllocatorEnd:
		d.end(a)
	}
}

// copyState copies the present totals, segments and strays of an allocator.
func (d *snapshotDevice) copyState(a *caching.Allocator) {
	d.hasState = true
	d.totals = a.Seen
	for s := range a.Ranges() {
		g := snapshotSegment{
			stretch: stretch{from: s.Ptr, to: s.Ptr, pool: s.Pool, expandable: s.IsStretch()},
			origin:  s.Origin,
		}
		for _, p := range a.Within(s) {
			g.pieces = append(g.pieces, *p)
			g.to = p.Ptr + p.Size
		}
		if len(g.pieces) > 0 {
			g.stream = g.pieces[0].Stream
			d.segments = append(d.segments, g)
		}
	}
	a.Each(func(p *caching.Piece) {
		if p.Segment == caching.StraySegment {
			d.strays = append(d.strays, *p)
		}
	})
}

// blockEnds follows the free or the loss of a block. A stray shows where memory from before the
// recording is. If the free is after the moment, the stray was allocated at the moment.
func (d *snapshotDevice) blockEnds(c *caching.Change) {
	b := c.Block
	if b.Segment != caching.StraySegment {
		return
	}
	d.addStray(&b)
	if !d.hasState || b.Origin != origin.None || b.State != caching.IsBlock {
		return
	}
	if c.Op == caching.BlockFreeCompleted { // the free was requested before the recording
		b.State = caching.IsAwaiting
	}
	d.strays = append(d.strays, b)
}

// addStray adds the addresses of a stray to the memory from before the recording.
func (d *snapshotDevice) addStray(p *caching.Piece) {
	for _, part := range d.newer.without(stretch{from: p.Ptr, to: p.Ptr + p.Size, stream: p.Stream, pool: p.Pool}) {
		d.old.add(part)
	}
}

// segmentEnds follows the free of a segment. If the segment is from before the recording and the
// free is after the moment, the free shows the segment's exact bounds.
func (d *snapshotDevice) segmentEnds(a *caching.Allocator, c *caching.Change) {
	switch {
	case !d.hasState:
		d.old.remove(c.Ptr, c.Ptr+c.Bytes)
	case !isKnown(a, c):
		s := stretch{from: c.Ptr, to: c.Ptr + c.Bytes, expandable: c.Op == caching.SegmentUnmapped}
		if first, end := d.old.around(s.from+1, s.to-1); first < end {
			s.stream, s.pool = d.old[first].stream, d.old[first].pool
		}
		for _, part := range d.newer.without(s) {
			d.oldWhole = append(d.oldWhole, d.oldWhole.without(part)...)
		}
		slices.SortFunc(d.oldWhole, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	}
}

// isKnown reports whether the recording has the allocation of a segment, or of a part of one, that
// is freed by c.
func isKnown(a *caching.Allocator, c *caching.Change) bool {
	if c.Op == caching.SegmentFreed {
		n, ok := a.Began[c.Ptr]
		return ok && !a.Segments[n].IsStretch()
	}
	i := a.HoleAt(c.Ptr)
	return i != caching.None && a.Pieces[i].Ptr+a.Pieces[i].Size >= c.Ptr+c.Bytes
}

// end copies the state, unless that was done before, and adds the remaining strays.
func (d *snapshotDevice) end(a *caching.Allocator) {
	if !d.hasState {
		d.copyState(a)
	}
	a.Each(func(p *caching.Piece) {
		if p.Segment == caching.StraySegment {
			d.addStray(p)
		}
	})
}

// finish sets the devices of the snapshot. If a process had several allocators for a device,
// because it executed another program, the snapshot has the last one that began before the moment.
func (n *snapshotScan) finish(all *caching.Set) {
	all.All(func(a *caching.Allocator) {
		d := n.devices[a]
		if d == nil {
			return
		}
		if !slices.Contains(all.Ended, a) {
			d.end(a)
		}
		d.totals = d.totals.Plus(a.Before)
		for int(a.Device) >= len(n.s.devices) {
			n.s.devices = append(n.s.devices, nil)
		}
		if a.Device < 0 {
			return
		}
		if n.s.devices[a.Device] == nil || d.firstNs <= n.s.AtNs {
			n.s.devices[a.Device] = d
		}
	})
	for _, d := range n.s.devices {
		if d != nil {
			d.addOld()
		}
	}
}

// addOld adds the segments from before the recording: those with exact bounds, then inferred ones.
func (d *snapshotDevice) addOld() {
	var covered stretches
	for i := range d.segments {
		covered = append(covered, d.segments[i].stretch)
	}
	slices.SortFunc(d.strays, func(a, b caching.Piece) int { return cmp.Compare(a.Ptr, b.Ptr) })
	d.fillGaps()
	for i, list := range []stretches{d.oldWhole, d.old} {
		var parts stretches
		for _, s := range list {
			parts = append(parts, covered.without(s)...)
		}
		for _, part := range parts {
			d.segments = append(
				d.segments,
				snapshotSegment{stretch: part, origin: origin.None, pieces: d.piecesOf(part)},
			)
			if i > 0 {
				d.inferred += part.bytes()
				d.inferredSegments++
			}
		}
		covered = append(covered, parts...)
		slices.SortFunc(covered, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	}
	slices.SortFunc(d.segments, func(a, b snapshotSegment) int { return cmp.Compare(a.from, b.from) })
}

// fillGaps moves strays into the gaps of segments. Because of lost events, the model can have a
// block outside of the segment to which its address belongs.
func (d *snapshotDevice) fillGaps() {
	if len(d.strays) == 0 {
		return
	}
	for i := range d.segments {
		var list []caching.Piece
		for _, p := range d.segments[i].pieces {
			if p.State == caching.IsHole {
				list = append(list, d.piecesOf(stretch{from: p.Ptr, to: p.Ptr + p.Size})...)
			} else {
				list = append(list, p)
			}
		}
		d.segments[i].pieces = list
	}
}

// piecesOf returns the strays in a stretch, and the gaps between them, in order of address.
func (d *snapshotDevice) piecesOf(s stretch) []caching.Piece {
	var list []caching.Piece
	at := s.from
	gap := func(to int64) {
		if to > at {
			list = append(list, caching.Piece{Ptr: at, Size: to - at, Origin: origin.None})
		}
	}
	first, _ := slices.BinarySearchFunc(
		d.strays,
		s.from,
		func(p caching.Piece, from int64) int { return cmp.Compare(p.Ptr, from) },
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
