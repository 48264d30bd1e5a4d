package analyzetest

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

func (w *TorchAllocator) allocSegment(key *TorchSegment, size int64) *TorchBlock {
	if w.Conf.Expandable {
		return w.expandSegment(key, size)
	}
	bytes := (size + 2*Mib - 1) / (2 * Mib) * (2 * Mib)
	if key.Small {
		bytes = 2 * Mib
	} else if size < 10*Mib {
		bytes = 20 * Mib
	}
	if w.reserved+bytes > w.Capacity {
		return nil
	}
	s := *key
	s.Ptr = w.nextVA
	w.nextVA += bytes + w.R.Int64N(2)*2*Mib // adjacent to the next segment, or not
	s.Blocks = []*TorchBlock{{segment: &s, Ptr: s.Ptr, Size: bytes}}
	w.Segments = append(w.Segments, &s)
	w.reserved += bytes
	w.cudaMallocs++
	w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddAlloc(ns, 5, s.Ptr, bytes)) })
	SetStackAndSite(w.AddEvent(format.AllocatorSegmentAlloc, s.Ptr, bytes, &s), 4, "segment")
	return s.Blocks[0]
}

// expandSegment maps memory at the lowest address with enough room.
func (w *TorchAllocator) expandSegment(key *TorchSegment, size int64) *TorchBlock {
	var s *TorchSegment
	for _, o := range w.Segments {
		if o.Expandable && o.Stream == key.Stream && o.Pool == key.Pool && o.Small == key.Small {
			s = o
		}
	}
	if s == nil {
		c := *key
		s = &c
		s.Ptr, s.Expandable = w.nextVA, true
		s.Blocks = []*TorchBlock{{segment: s, Ptr: s.Ptr, Size: w.Capacity + 200*Mib, Unmapped: true}}
		w.nextVA += w.Capacity + 200*Mib
		w.Segments = append(w.Segments, s)
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
			if w.reserved+bytes > w.Capacity {
				return nil
			}
			if bytes < b.Size {
				w.insertAfter(b, &TorchBlock{segment: s, Ptr: b.Ptr + bytes, Size: b.Size - bytes, Unmapped: true})
				b.Size = bytes
			}
			b.Unmapped = false
			w.reserved += bytes
			w.mapPages(b.Ptr, bytes, granule)
			SetStackAndSite(w.AddEvent(format.AllocatorSegmentMap, b.Ptr, bytes, s), 4, "segment")
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
func (w *TorchAllocator) mapPages(from, bytes, page int64) {
	for va := from; va < from+bytes; va += page {
		w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddMemCreate(ns, va>>20, page)) })
	}
	for va := from; va < from+bytes; va += page {
		w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddMemMap(ns, va, page, va>>20)) })
	}
}

// recordDriverCall makes a driver call if driver calls are recorded.
func (w *TorchAllocator) recordDriverCall(make func(ns int64)) {
	if w.Driver {
		w.Now += 10
		make(w.Now - 8)
	}
}

// setCallOrigin sets the process, device and call site of a driver call.
func (w *TorchAllocator) setCallOrigin(r *format.Row) {
	SetStackAndSite(r, 4, "segment")
	r.Pid, r.Tid, r.Device = w.Pid, w.Pid, w.Device
}

func (w *TorchAllocator) emptyCache() {
	w.completeFrees(func(*TorchBlock) bool { return true })
	for _, s := range slices.Clone(w.Segments) {
		switch {
		case s.Expandable:
			w.unmapFreePages(s)
		case len(s.Blocks) == 1 && s.Blocks[0].IsFree():
			w.AddEvent(format.AllocatorSegmentFree, s.Ptr, s.Blocks[0].Size, s)
			w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddFree(ns, 5, s.Ptr)) })
			w.reserved -= s.Blocks[0].Size
			w.cudaMallocs--
			w.Segments = slices.DeleteFunc(w.Segments, func(o *TorchSegment) bool { return o == s })
		}
	}
}

func (w *TorchAllocator) unmapFreePages(s *TorchSegment) {
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
		w.reserved -= to - from
		for va := from; va < to; va += granule {
			w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddMemUnmap(ns, va, granule)) })
			w.recordDriverCall(func(ns int64) { w.setCallOrigin(w.tp.AddMemRelease(ns, va>>20)) })
		}
		w.AddEvent(format.AllocatorSegmentUnmap, from, to-from, s)
		add(TorchBlock{segment: s, Ptr: b.Ptr, Size: from - b.Ptr})
		add(TorchBlock{segment: s, Ptr: from, Size: to - from, Unmapped: true})
		add(TorchBlock{segment: s, Ptr: to, Size: b.Ptr + b.Size - to})
	}
	s.Blocks = blocks
	if len(blocks) == 1 && blocks[0].Unmapped && w.R.IntN(2) == 0 {
		w.Segments = slices.DeleteFunc(w.Segments, func(o *TorchSegment) bool { return o == s })
	}
}
