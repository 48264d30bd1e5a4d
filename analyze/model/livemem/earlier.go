package livemem

import (
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// This file adds driver memory that a caching allocator had before the recording: its segments. They were read from
// the memory of the process.

// addEarlierSegment adds a segment from before the recording, or the parts of it that are not known yet.
func (s *Set) addEarlierSegment(h *ProcessMemory, e *MemoryEvent, consume func(*Set, *Change)) {
	kind := format.MemoryDevice
	if e.Step > 0 {
		kind = format.MemoryPhysical
	}
	b := Block{Bytes: e.Bytes, Origin: s.origins.NumberOfEarlier(e.Pid, e.Device, 0, kind, ""), Number: EarlierNumber}
	call := MemoryCall{AtNs: e.AtNs, Origin: b.Origin}
	if e.Step == 0 {
		if _, known := h.Pointers.Get(e.Ptr); !known {
			s.emitChange(consume, ChangeAllocated, &call, e.Ptr, b)
			h.Pointers.Set(e.Ptr, b)
		}
		return
	}
	end := units.EndOfRange(e.Ptr, e.Bytes)
	for at := e.Ptr; at < end; at += e.Step {
		b.Bytes = min(e.Step, end-at)
		known := false
		h.Mappings.EachOverlapping(at, at+b.Bytes, func(Mapping) { known = true })
		if known {
			continue
		}
		number := earlierHandle(at)
		s.emitChange(consume, ChangeAllocated, &call, number, b)
		h.Handles[number] = &PhysicalHandle{Block: b, maps: 1}
		h.Mappings.InsertMapping(Mapping{at, at + b.Bytes, h.Handles[number], number})
	}
}

// earlierHandle returns the number of the handle that is mapped at an address since before the recording. The
// driver's number of the handle is unknown, and never negative.
func earlierHandle(ptr int64) int64 { return ^ptr }

// takeUnmapped reports whether the release of an unknown handle is that of a handle from before the recording: an
// allocator releases each handle after it has unmapped it.
func (p *ProcessMemory) takeUnmapped() bool {
	if p.unmapped == 0 {
		return false
	}
	p.unmapped--
	return true
}
