package torchsnapshot

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// What a snapshot shows of allocators that were at work before the recording began: the
// model knows blocks by themselves there (strays), a viewer wants them in segments. Where
// a block was, at any time of the recording, there was memory from the driver, and all
// the time if no segment was seen to come. So what strays cover, put together, is as much
// of the old segments as can be known. A segment that is freed tells its bounds, and a
// block that is freed tells of itself, so that both are known for all moments before.

// stretch is memory of an allocator that is contiguous.
type stretch struct {
	from, to     int64 // to is not included
	stream, pool int64
	expandable   bool
}

func (s stretch) bytes() int64 { return s.to - s.from }

// stretches are such that do not overlap, in order of address.
type stretches []stretch

// around returns which stretches overlap addresses, or touch them.
func (l stretches) around(from, to int64) (first, end int) {
	first, _ = slices.BinarySearchFunc(l, from, func(s stretch, at int64) int { return cmp.Compare(s.to, at) })
	for end = first; end < len(l) && l[end].from <= to; end++ {
	}
	return first, end
}

// without returns what is left of s outside of the list.
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

// add adds what is not there yet; what touches its equal becomes one with it.
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

// remove takes addresses away.
func (l *stretches) remove(from, to int64) {
	first, end := l.around(from, to)
	var left stretches
	for _, s := range (*l)[first:end] {
		left = append(left, stretches{{from: from, to: to}}.without(s)...)
	}
	*l = slices.Replace(*l, first, end, left...)
}

// snapshotSegment is a segment, or a stretch of an expandable one, with the blocks and
// gaps that it is made of, in order of address.
type snapshotSegment struct {
	stretch
	origin int32
	pieces []caching.Piece
}

// snapshotDevice is one allocator at the moment of a snapshot.
type snapshotDevice struct {
	firstNs  int64 // its first event
	taken    bool
	totals   caching.Totals
	segments []snapshotSegment // in order of address
	strays   []caching.Piece   // blocks elsewhere
	old      stretches         // memory from before the recording, as far as blocks were there
	oldWhole stretches         // segments of it that were freed after the moment
	came     stretches         // memory that came after the moment
	events   int64             // of the trace
	leftOut  int64             // of these, not written

	reports                    bool  // the allocator is known by its reports
	inferred, inferredSegments int64 // bytes and number of segments made of old
}

// list returns the segments, none for no device.
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

func (n *snapshotScan) step(a *caching.Allocator, c *caching.Change) {
	if !n.s.wants(a.Pid, a.Device) || c.Op == caching.BlockResized {
		return
	}
	d := n.devices[a]
	if d == nil {
		d = &snapshotDevice{firstNs: c.AtNs, reports: a.Reports}
		n.devices[a] = d
	}
	if !d.taken && c.AtNs > n.s.AtNs {
		d.take(a)
	}
	switch c.Op {
	case caching.BlockFreeRequested, caching.BlockFreeCompleted, caching.BlockLost:
		d.blockEnds(c)
	case caching.SegmentAllocated, caching.SegmentMapped:
		if s := (stretch{from: c.Ptr, to: c.Ptr + c.Bytes}); d.taken {
			d.came.add(s)
		} else {
			d.old.remove(s.from, s.to)
		}
	case caching.SegmentFreed, caching.SegmentUnmapped:
		d.segmentEnds(a, c)
	case caching.AllocatorEnd:
		d.end(a)
	}
}

// take copies the state.
func (d *snapshotDevice) take(a *caching.Allocator) {
	d.taken = true
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

// blockEnds learns where memory from before the recording is, and of blocks in it.
func (d *snapshotDevice) blockEnds(c *caching.Change) {
	b := c.Block
	if b.Segment != caching.StraySegment {
		return
	}
	d.addStray(&b)
	if !d.taken || b.Origin != origin.None || b.State != caching.IsBlock {
		return
	}
	if c.Op == caching.BlockFreeCompleted { // it was awaiting when the recording began
		b.State = caching.IsAwaiting
	}
	d.strays = append(d.strays, b)
}

// addStray notes that there was memory where a stray is.
func (d *snapshotDevice) addStray(p *caching.Piece) {
	for _, part := range d.came.without(stretch{from: p.Ptr, to: p.Ptr + p.Size, stream: p.Stream, pool: p.Pool}) {
		d.old.add(part)
	}
}

// segmentEnds notes the end of memory from before the recording.
func (d *snapshotDevice) segmentEnds(a *caching.Allocator, c *caching.Change) {
	switch {
	case !d.taken:
		d.old.remove(c.Ptr, c.Ptr+c.Bytes)
	case !knows(a, c):
		s := stretch{from: c.Ptr, to: c.Ptr + c.Bytes, expandable: c.Op == caching.SegmentUnmapped}
		if first, end := d.old.around(s.from+1, s.to-1); first < end {
			s.stream, s.pool = d.old[first].stream, d.old[first].pool
		}
		for _, part := range d.came.without(s) {
			d.oldWhole = append(d.oldWhole, d.oldWhole.without(part)...)
		}
		slices.SortFunc(d.oldWhole, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	}
}

// knows reports whether a segment, or a part of one, that goes was seen to come.
func knows(a *caching.Allocator, c *caching.Change) bool {
	if c.Op == caching.SegmentFreed {
		n, ok := a.Began[c.Ptr]
		return ok && !a.Segments[n].IsStretch()
	}
	i := a.HoleAt(c.Ptr)
	return i != caching.None && a.Pieces[i].Ptr+a.Pieces[i].Size >= c.Ptr+c.Bytes
}

// end takes the state if that was not done, and what blocks that are still there tell.
func (d *snapshotDevice) end(a *caching.Allocator) {
	if !d.taken {
		d.take(a)
	}
	a.Each(func(p *caching.Piece) {
		if p.Segment == caching.StraySegment {
			d.addStray(p)
		}
	})
}

// finish gives the snapshot its devices. If a process had several allocators for a
// device, because it ran another program, the last one that there was counts.
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

// addOld makes segments of what is known from before the recording.
func (d *snapshotDevice) addOld() {
	var known stretches
	for i := range d.segments {
		known = append(known, d.segments[i].stretch)
	}
	slices.SortFunc(d.strays, func(a, b caching.Piece) int { return cmp.Compare(a.Ptr, b.Ptr) })
	d.fillGaps()
	for i, list := range []stretches{d.oldWhole, d.old} {
		var parts stretches
		for _, s := range list {
			parts = append(parts, known.without(s)...)
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
		known = append(known, parts...)
		slices.SortFunc(known, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	}
	slices.SortFunc(d.segments, func(a, b snapshotSegment) int { return cmp.Compare(a.from, b.from) })
}

// fillGaps puts strays into known segments: where events were lost, a block can be in the
// middle of what the model takes for a gap.
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

// piecesOf returns the strays in a stretch, with gaps between them.
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
