package livemem

import "github.com/gpurec/gpurec/analyze/units"

// PhysicalHandle is physical memory of cuMemCreate. It lives as long as the program holds a
// reference or has it mapped. The driver reuses the handle's number only after that.
type PhysicalHandle struct {
	Block Block // size, age and origin of the memory
	Refs  int64 // references by cuMemCreate, imports and retains, minus releases
	maps  int64 // number of mappings of this physical memory
	// Borrows counts the imports of this memory. It is 0 for memory that the process created.
	Borrows int64
	// replaced is set if the driver returned the same number for other memory, so the end of this
	// memory was not recorded. Its mappings stay until their addresses are mapped again.
	replaced bool
}

// createHandle adds the memory of a new handle.
func (s *Set) createHandle(h *ProcessMemory, m *MemoryCall, consume func(*Set, *Change)) {
	if old := h.Handles[m.Ptr]; old != nil {
		s.Counts.LostFrees++
		s.endReusedHandle(h, m, old, consume)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(s.Counts.Allocs)}
	s.Counts.Allocs++
	s.emitChange(consume, ChangeAllocated, m, m.Ptr, b)
	h.Handles[m.Ptr] = &PhysicalHandle{Block: b, Refs: 1}
}

// endReusedHandle ends the memory of a handle whose number the driver returned again.
func (s *Set) endReusedHandle(h *ProcessMemory, m *MemoryCall, old *PhysicalHandle, consume func(*Set, *Change)) {
	if old.Borrows == 0 {
		s.emitChange(consume, ChangeFreeLost, m, m.Ptr, old.Block)
	}
	old.replaced = true
	delete(h.Handles, m.Ptr)
}

// releaseHandle drops one reference to a handle.
func (s *Set) releaseHandle(h *ProcessMemory, m *MemoryCall, consume func(*Set, *Change)) {
	mem := h.Handles[m.Ptr]
	if mem == nil || mem.Refs == 0 {
		if !h.takeUnmapped() {
			s.Counts.UnmatchedFrees++
		}
		return
	}
	mem.Refs--
	s.endUnusedHandle(h, m, m.Ptr, mem, ChangeFreed, consume)
}

// endUnusedHandle ends the memory of a handle that has neither references nor mappings.
func (s *Set) endUnusedHandle(
	h *ProcessMemory,
	m *MemoryCall,
	number int64,
	mem *PhysicalHandle,
	kind ChangeKind,
	consume func(*Set, *Change),
) {
	if mem.replaced || mem.Refs > 0 || mem.maps > 0 {
		return
	}
	if mem.Borrows > 0 {
		s.borrowCountOf(mem.Block.Origin).Returned += mem.Borrows
	} else {
		if kind == ChangeFreed {
			s.Counts.Frees++
		}
		s.emitChange(consume, kind, m, number, mem.Block)
	}
	delete(h.Handles, number)
}

// mapMemory maps a handle's memory to an address range. A mapping that is still there was unmapped
// by a call that was not recorded.
func (s *Set) mapMemory(h *ProcessMemory, m *MemoryCall, consume func(*Set, *Change)) {
	end := units.EndOfRange(m.Ptr, m.Bytes)
	if end <= m.Ptr {
		return
	}
	mem := h.Handles[m.Handle]
	if mem != nil {
		mem.maps++
	}
	h.Mappings.RemoveOverlapping(m.Ptr, end, func(old Mapping) {
		s.Counts.LostFrees++
		s.dropMapping(h, m, old, ChangeFreeLost, consume)
	})
	h.Mappings.InsertMapping(Mapping{m.Ptr, end, mem, m.Handle})
}

func (s *Set) unmapAddresses(h *ProcessMemory, m *MemoryCall, consume func(*Set, *Change)) {
	found := false
	h.Mappings.RemoveOverlapping(m.Ptr, units.EndOfRange(m.Ptr, m.Bytes), func(old Mapping) {
		found = true
		s.dropMapping(h, m, old, ChangeFreed, consume)
	})
	if !found {
		s.Counts.UnmatchedFrees++
	}
}

func (s *Set) dropMapping(h *ProcessMemory, m *MemoryCall, old Mapping, kind ChangeKind, consume func(*Set, *Change)) {
	if old.Handle == nil {
		return
	}
	old.Handle.maps--
	if old.Handle.Block.Number == EarlierNumber && kind == ChangeFreed {
		h.unmapped++
	}
	s.endUnusedHandle(h, m, old.Number, old.Handle, kind, consume)
}
