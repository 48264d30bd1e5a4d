package analyzetest

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

func (a *TorchAllocator) allocSegment(key *TorchSegment, size int64) *TorchBlock {
	if a.Conf.Expandable {
		return a.expandSegment(key, size)
	}
	bytes := (size + 2*Mib - 1) / (2 * Mib) * (2 * Mib)
	if key.Small {
		bytes = 2 * Mib
	} else if size < 10*Mib {
		bytes = 20 * Mib
	}
	if a.reserved+bytes > a.Capacity {
		return nil
	}
	s := *key
	s.Ptr = a.nextVA
	a.nextVA += bytes + a.R.Int64N(2)*2*Mib // adjacent to the next segment, or not
	s.Blocks = []*TorchBlock{{segment: &s, Ptr: s.Ptr, Size: bytes}}
	a.Segments = append(a.Segments, &s)
	a.reserved += bytes
	a.cudaMallocs++
	a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddAlloc(ns, 5, s.Ptr, bytes)) })
	SetStackAndSite(a.AddEvent(format.AllocatorSegmentAlloc, s.Ptr, bytes, &s), 4, "segment")
	return s.Blocks[0]
}

// expandSegment maps memory at the lowest address with enough room.
func (a *TorchAllocator) expandSegment(key *TorchSegment, size int64) *TorchBlock {
	var s *TorchSegment
	for _, o := range a.Segments {
		if o.Expandable && o.Stream == key.Stream && o.Pool == key.Pool && o.Small == key.Small {
			s = o
		}
	}
	if s == nil {
		c := *key
		s = &c
		s.Ptr, s.Expandable = a.nextVA, true
		s.Blocks = []*TorchBlock{{segment: s, Ptr: s.Ptr, Size: a.Capacity + 200*Mib, Unmapped: true}}
		a.nextVA += a.Capacity + 200*Mib
		a.Segments = append(a.Segments, s)
	}
	granule := 20 * Mib
	if s.Small {
		granule = 2 * Mib
	}
	for i := 0; i < len(s.Blocks); i++ {
		var room int64
		for k := i; k < len(s.Blocks) && (s.Blocks[k].IsFree() || s.Blocks[k].Unmapped); k++ {
			room += s.Blocks[k].Size
		}
		if room < size || room == s.Blocks[i].Size && s.Blocks[i].IsFree() {
			continue
		}
		first := s.Blocks[i]
		for have := int64(0); have < size; {
			b := s.Blocks[i]
			if !b.Unmapped {
				have += b.Size
				i++
				continue
			}
			bytes := min(b.Size, (size-have+granule-1)/granule*granule)
			if a.reserved+bytes > a.Capacity {
				return nil
			}
			if bytes < b.Size {
				a.insertAfter(b, &TorchBlock{segment: s, Ptr: b.Ptr + bytes, Size: b.Size - bytes, Unmapped: true})
				b.Size = bytes
			}
			b.Unmapped = false
			a.reserved += bytes
			a.mapPages(b.Ptr, bytes, granule)
			SetStackAndSite(a.AddEvent(format.AllocatorSegmentMap, b.Ptr, bytes, s), 4, "segment")
			have += bytes
			i++
			if b != first {
				first.Size += b.Size
				s.Blocks = slices.DeleteFunc(s.Blocks, func(o *TorchBlock) bool { return o == b })
				i--
			}
			if i < len(s.Blocks) && s.Blocks[i].IsFree() {
				have += s.Blocks[i].Size
				first.Size += s.Blocks[i].Size
				s.Blocks = slices.Delete(s.Blocks, i, i+1)
			}
		}
		return first
	}
	return nil
}

// mapPages adds the driver calls that create and map memory, page by page.
func (a *TorchAllocator) mapPages(from, bytes, page int64) {
	for va := from; va < from+bytes; va += page {
		a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddMemCreate(ns, va>>20, page)) })
	}
	for va := from; va < from+bytes; va += page {
		a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddMemMap(ns, va, page, va>>20)) })
	}
}

// recordDriverCall makes a driver call if driver calls are recorded.
func (a *TorchAllocator) recordDriverCall(make func(ns int64)) {
	if a.Driver {
		a.Now += 10
		make(a.Now - 8)
	}
}

// setCallOrigin sets the process, device and call site of a driver call.
func (a *TorchAllocator) setCallOrigin(r *format.Row) {
	SetStackAndSite(r, 4, "segment")
	r.Pid, r.Tid, r.Device = a.Pid, a.Pid, a.Device
}

func (a *TorchAllocator) emptyCache() {
	a.completeFrees(func(*TorchBlock) bool { return true })
	for _, s := range slices.Clone(a.Segments) {
		switch {
		case s.Expandable:
			a.unmapFreePages(s)
		case len(s.Blocks) == 1 && s.Blocks[0].IsFree():
			a.AddEvent(format.AllocatorSegmentFree, s.Ptr, s.Blocks[0].Size, s)
			a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddFree(ns, 5, s.Ptr)) })
			a.reserved -= s.Blocks[0].Size
			a.cudaMallocs--
			a.Segments = slices.DeleteFunc(a.Segments, func(o *TorchSegment) bool { return o == s })
		}
	}
}

func (a *TorchAllocator) unmapFreePages(s *TorchSegment) {
	granule := 20 * Mib
	if s.Small {
		granule = 2 * Mib
	}
	var blocks []*TorchBlock
	add := func(b TorchBlock) {
		if n := len(blocks); b.Size > 0 && n > 0 && b.Unmapped && blocks[n-1].Unmapped {
			blocks[n-1].Size += b.Size
		} else if b.Size > 0 {
			blocks = append(blocks, &b)
		}
	}
	for _, b := range s.Blocks {
		from, to := (b.Ptr-s.Ptr+granule-1)/granule*granule+s.Ptr, (b.Ptr+b.Size-s.Ptr)/granule*granule+s.Ptr
		if !b.IsFree() || from >= to {
			if n := len(blocks); n > 0 && b.Unmapped && blocks[n-1].Unmapped {
				blocks[n-1].Size += b.Size
			} else {
				blocks = append(blocks, b)
			}
			continue
		}
		a.reserved -= to - from
		for va := from; va < to; va += granule {
			a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddMemUnmap(ns, va, granule)) })
			a.recordDriverCall(func(ns int64) { a.setCallOrigin(a.recording.AddMemRelease(ns, va>>20)) })
		}
		a.AddEvent(format.AllocatorSegmentUnmap, from, to-from, s)
		add(TorchBlock{segment: s, Ptr: b.Ptr, Size: from - b.Ptr})
		add(TorchBlock{segment: s, Ptr: from, Size: to - from, Unmapped: true})
		add(TorchBlock{segment: s, Ptr: to, Size: b.Ptr + b.Size - to})
	}
	s.Blocks = blocks
	if len(blocks) == 1 && blocks[0].Unmapped && a.R.IntN(2) == 0 {
		a.Segments = slices.DeleteFunc(a.Segments, func(o *TorchSegment) bool { return o == s })
	}
}
