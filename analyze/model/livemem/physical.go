package livemem

import "github.com/gpurec/gpurec/analyze/units"

// Handle is physical memory of cuMemCreate. It lives as long as the program holds a reference or
// has it mapped. The driver reuses the handle's number only after that.
type Handle struct {
	Block Block // size, age and origin of the memory
	Refs  int64 // references by cuMemCreate, imports and retains, minus releases
	maps  int64 // number of mappings of this physical memory
	// Borrows counts the imports of this memory. It is 0 for memory that the process created.
	Borrows int64
	// replaced is set if the driver returned the same number for other memory, so the end of this
	// memory was not recorded. Its mappings stay until their addresses are mapped again.
	replaced bool
}

// create adds the memory of a new handle.
func (s *Set) create(h *ProcessMemory, m *Call, consume func(*Set, *Change)) {
	if old := h.Handles[m.Ptr]; old != nil {
		s.Counts.LostFrees++
		s.lose(h, m, old, consume)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(s.Counts.Allocs)}
	s.Counts.Allocs++
	s.emit(consume, Allocated, m.AtNs, m.Ptr, b, m.Origin)
	h.Handles[m.Ptr] = &Handle{Block: b, Refs: 1}
}

// lose ends the memory of a handle whose number the driver returned again.
func (s *Set) lose(h *ProcessMemory, m *Call, old *Handle, consume func(*Set, *Change)) {
	if old.Borrows == 0 {
		s.emit(consume, FreeLost, m.AtNs, m.Ptr, old.Block, m.Origin)
	}
	old.replaced = true
	delete(h.Handles, m.Ptr)
}

// release drops one reference to a handle.
func (s *Set) release(h *ProcessMemory, m *Call, consume func(*Set, *Change)) {
	mem := h.Handles[m.Ptr]
	if mem == nil || mem.Refs == 0 {
		s.Counts.UnmatchedFrees++
		return
	}
	mem.Refs--
	s.settle(h, m, m.Ptr, mem, Freed, consume)
}

// settle ends the memory of a handle that has neither references nor mappings.
func (s *Set) settle(
	h *ProcessMemory,
	m *Call,
	number int64,
	mem *Handle,
	kind ChangeKind,
	consume func(*Set, *Change),
) {
	if mem.replaced || mem.Refs > 0 || mem.maps > 0 {
		return
	}
	if mem.Borrows > 0 {
		s.borrows(mem.Block.Origin).Returned += mem.Borrows
	} else {
		if kind == Freed {
			s.Counts.Frees++
		}
		s.emit(consume, kind, m.AtNs, number, mem.Block, m.Origin)
	}
	delete(h.Handles, number)
}

// mapMemory maps a handle's memory to an address range. A mapping that is still there was unmapped
// by a call that was not recorded.
func (s *Set) mapMemory(h *ProcessMemory, m *Call, consume func(*Set, *Change)) {
	end := units.EndOf(m.Ptr, m.Bytes)
	if end <= m.Ptr {
		return
	}
	mem := h.Handles[m.Handle]
	if mem != nil {
		mem.maps++
	}
	h.Mappings.Cut(m.Ptr, end, func(old Mapping) {
		s.Counts.LostFrees++
		s.unmapped(h, m, old, FreeLost, consume)
	})
	h.Mappings.Insert(Mapping{m.Ptr, end, mem, m.Handle})
}

func (s *Set) unmap(h *ProcessMemory, m *Call, consume func(*Set, *Change)) {
	found := false
	h.Mappings.Cut(m.Ptr, units.EndOf(m.Ptr, m.Bytes), func(old Mapping) {
		found = true
		s.unmapped(h, m, old, Freed, consume)
	})
	if !found {
		s.Counts.UnmatchedFrees++
	}
}

func (s *Set) unmapped(h *ProcessMemory, m *Call, old Mapping, kind ChangeKind, consume func(*Set, *Change)) {
	if old.Handle == nil {
		return
	}
	old.Handle.maps--
	s.settle(h, m, old.Number, old.Handle, kind, consume)
}
